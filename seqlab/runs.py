"""Training runs on disk: prepare one in its directory, reopen it, train it, and save the model."""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from seqlab.bundle import Bundle, is_bundle, read_codec_file, save_bundle
from seqlab.codecs.codec import Codec
from seqlab.corpus.examples import Corpus
from seqlab.data.lines import STDIN, spool
from seqlab.distributed import World
from seqlab.errors import DataError, RecipeError, RunError, UsageError
from seqlab.held_out import HeldOut
from seqlab.kernels.build import build_in_background
from seqlab.machine import peak_memory
from seqlab.model import RUN, STORES, Model
from seqlab.recipe import Recipe, load_recipe, override, parse_recipe, to_toml, value_of
from seqlab.tasks import build_model, check_recipe, codec_of, task_of
from seqlab.tasks.hmm_fitting import probabilities_of
from seqlab.tasks.settings import settle
from seqlab.tasks.task import Report
from seqlab.tasks.transfer import carry_over, place_vectors, take_over, vectors_of
from seqlab.training.checkpoint import Progress, read_checkpoint, temporary, write_checkpoint
from seqlab.training.log import Reporter
from seqlab.training.run import KEPT, Run
from seqlab.training.weights import load_weights, parameters_of

START = "start.safetensors"
SPOOLED = "stdin.txt"  # standard input, copied so that it can be read again


@dataclass(frozen=True)
class Trained:
    """The result of a training: the model, and whether it was stopped early.

    With several processes, only the leading one has scored and saved the model.
    """

    model: Model
    stopped: bool
    step: int
    leads: bool = True
    report: Report | None = None  # of the final evaluation

    @property
    def scored(self) -> bool:
        """Whether the model was evaluated, rather than only validated during training."""
        return "unscored" not in self.model.metrics


def prepare_run(
    folder: Path,
    recipe: Recipe,
    settings: Sequence[str],
    old: Bundle | None,
    files: list[str],
    valid: list[str],
    *,
    overwrite: bool,
    report: Reporter,
    chooses_recipe: bool = False,
) -> tuple[Recipe, Corpus]:
    """Prepare the data of a new run and store it in `folder`.

    Everything is written to a temporary directory and moved when complete, so that bad input leaves nothing behind.
    With `chooses_recipe`, the task may replace its default recipe by another one that suits the files.
    """
    _check_folder(folder, overwrite=overwrite)
    if [*files, *valid].count(STDIN) > 1:
        raise UsageError(
            "standard input can be read only once",
            hint="save the training or the validation data as a file.",
        )
    if old is None and recipe.model.elmo is not None:
        raise RecipeError(
            "[model.elmo] needs a model that was trained before", hint="give it with --from."
        )
    old_codec = None
    if old is not None:
        recipe, old_codec = _take_over(recipe, settings, old)
    target = folder.resolve()
    part = target.with_name(f".{target.name}.part")
    with temporary(part):
        run = part / RUN
        stores = run / STORES
        stores.mkdir(parents=True)
        try:
            train_files = [spool(path, str(run)) for path in files]
            valid_files = [spool(path, str(run)) for path in valid]
            if chooses_recipe:
                recipe = _choose_recipe(recipe, settings, train_files, report)
            recipe = _choose_settings(recipe, train_files, report)
            task = task_of(recipe)
            kind = task.data_kind(recipe)
            codec = kind.prepare(task, recipe, train_files, valid_files, stores, old_codec)
            # opened here, so that a text that is too short fails before anything is moved
            corpus = kind.open(recipe, codec, stores)
            recipe = _store_initial_weights(recipe, codec, old, run / START)
        except DataError as error:
            spooled = str(run / SPOOLED)
            raise DataError(
                str(error).replace(spooled, "stdin"), hint=error.hint.replace(spooled, "stdin")
            ) from error
        (run / "recipe.toml").write_text(to_toml(recipe), "utf-8")
        (run / "tokenizer.json").write_text(
            json.dumps(codec.to_json(), ensure_ascii=False), "utf-8"
        )
        _make_empty(target)
        run.replace(target / RUN)
    del corpus
    return recipe, kind.open(recipe, codec, folder / RUN / STORES)


def _check_folder(folder: Path, *, overwrite: bool) -> None:
    """Refuse a directory that holds other files, or a run that must not be overwritten."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder}: this is a file", hint="give a directory with --out.")
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not ((folder / RUN).is_dir() or is_bundle(folder)):
        raise RunError(
            f"{folder}: this directory holds other files", hint="give another one with --out."
        )
    if not overwrite:
        raise RunError(
            f"{folder}: this directory already holds a run",
            hint="--resume continues it, --overwrite replaces it, --out trains into another. It was not changed.",
        )


def _choose_recipe(
    recipe: Recipe, settings: Sequence[str], files: list[str], report: Reporter
) -> Recipe:
    """The recipe that suits the files, with the user's settings, and a report where it is not the task's default."""
    task = task_of(recipe)
    name = task.recipe_for(task, recipe, files)
    if name == recipe.name:
        return recipe
    report.say(f"the recipe for such a file: {name}")
    return check_recipe(override(load_recipe(name), settings))


def _choose_settings(recipe: Recipe, files: list[str], report: Reporter) -> Recipe:
    """Fill in the settings that the recipe leaves open from the data, and report those that were used."""
    task = task_of(recipe)
    facts, choices = task.choose(task, recipe, files)
    recipe = check_recipe(settle(recipe, choices))
    used = {path: value for path, value in choices.items() if value_of(recipe, path) == value}
    report.plan(facts, used)
    return recipe


def existing_run(out: str | Path | None) -> Path:
    """Return the directory of a run to resume."""
    if out is None:
        raise UsageError(
            "--resume needs the directory of a run", hint="give its directory with --out."
        )
    if not is_run(Path(out)):
        raise RunError(f"{out}: there is no run here to resume", hint="train without --resume.")
    return Path(out)


def is_run(folder: Path) -> bool:
    return (folder / RUN / "recipe.toml").is_file()


def is_scored(folder: Path) -> bool:
    """Whether the directory holds a model that was evaluated, not only one whose training was stopped."""
    return _scored_step(folder) is not None


def _scored_step(folder: Path) -> int | None:
    """Return the training step of the model in the directory, or None without a model that was evaluated."""
    try:
        metrics = json.loads((folder / "metrics.json").read_bytes()) if is_bundle(folder) else {}
        return None if "unscored" in metrics else int(metrics["steps"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def recipe_of_run(folder: Path) -> Recipe:
    """Read the recipe of the run in a directory."""
    path = folder / RUN / "recipe.toml"
    return parse_recipe(path.read_text("utf-8"), where=str(path))


def _codec_of_run(folder: Path, recipe: Recipe) -> Codec:
    path = folder / RUN / "tokenizer.json"
    return read_codec_file(path.read_bytes(), path, partial(codec_of, recipe))


def reopen_run(
    folder: Path, task: str | None, recipe: str | Recipe | None, settings: Sequence[str]
) -> tuple[Recipe, Corpus]:
    """Open the recipe and the stored data of a run; only settings of training and decoding may differ from before."""
    stored = recipe_of_run(folder)
    name = recipe.name if isinstance(recipe, Recipe) else recipe
    names = (stored.name, str(folder / RUN / "recipe.toml"))
    if (task or stored.task) != stored.task or (name or stored.name) not in names:
        raise RunError(
            f"{folder}: this run has the recipe '{stored.name}' for '{stored.task}'",
            hint="resume it without naming another recipe or task, or train into another directory with --out.",
        )
    codec = _codec_of_run(folder, stored)
    chosen = override(stored, settings)
    if chosen.model_copy(update={"train": stored.train, "decode": stored.decode}) != stored:
        raise RunError(
            f"{folder}: the model and the data of a run cannot change when it is resumed",
            hint="only --set train.* and decode.* are allowed.",
        )
    check_recipe(chosen)
    return chosen, task_of(chosen).data_kind(chosen).open(chosen, codec, folder / RUN / STORES)


def fit(
    folder: Path,
    recipe: Recipe,
    corpus: Corpus,
    *,
    resume: bool,
    report: Reporter,
    stop: Callable[[], bool],
    world: World,
    threads: int | None = None,
    score_if_stopped: bool = True,
    spent: float = 0.0,
) -> Trained:
    """Train a prepared run, evaluate its model and save it.

    `spent` are seconds of a time limit that have passed before a new run begins.

    A run that is stopped is saved with the scores of its last validation, unless `score_if_stopped`. If the
    evaluation is interrupted, the model is saved in the same way, and resuming the run evaluates it.
    """
    task = task_of(recipe)
    model = build_model(recipe, corpus.codec)
    if (folder / RUN / START).exists():
        load_weights(model, read_checkpoint(folder / RUN / START)[1]["model"])
    bundle = Bundle(recipe, corpus.codec, model, {})
    seconds = None if recipe.train.minutes is None else 60 * recipe.train.minutes
    held_out = HeldOut(bundle, corpus, folder / RUN / STORES, seconds)
    run = Run(
        task.learner(recipe, model, corpus, world),
        recipe.train,
        validate=lambda: held_out.validate(run.progress),
        folder=folder / RUN,
        report=report,
        world=world,
        threads=thread_counts(threads) if world.size == 1 else (),
    )
    if resume:
        run.resume(to_toml(recipe), _scored_step(folder))
    else:
        run.progress.seconds = spent
    start_time = time.perf_counter() - run.progress.seconds
    if world.leads:
        build_in_background()
    outcome = run.fit(stop=stop)
    if not world.leads:
        return Trained(Model(bundle, folder), outcome.stopped, outcome.progress.step, leads=False)
    facts = _training_facts(run, outcome.progress, corpus)

    def save(scores: dict[str, Any]) -> Model:
        trained = Bundle(recipe, corpus.codec, model, facts | scores)
        save_bundle(trained, folder)
        return Model(trained, folder)

    unscored = {"validation": _last_validation(run, task.name), "unscored": True}
    if outcome.stopped and not score_if_stopped:
        return Trained(save(unscored), stopped=True, step=outcome.progress.step)
    seconds_left = None
    if seconds is not None and not outcome.stopped:
        seconds_left = seconds - (time.perf_counter() - start_time)
    try:
        evaluation = held_out.score(seconds_left)
    except KeyboardInterrupt:
        save(unscored)
        raise
    scores = {"validation": evaluation.to_json(), **bundle.metrics}
    return Trained(save(scores), outcome.stopped, outcome.progress.step, report=evaluation)


def thread_counts(threads: int | None) -> tuple[int, ...]:
    """Return the numbers of threads to try: `threads` if it is given, else 1, 2, 4 ... up to torch's own number."""
    if threads is not None:
        return (threads,)
    most = torch.get_num_threads()
    if "OMP_NUM_THREADS" in os.environ:
        return (most,)
    powers = [1 << exponent for exponent in range(most.bit_length())]
    return (*(power for power in powers if power < most), most)


def _training_facts(run: Run, progress: Progress, corpus: Corpus) -> dict[str, Any]:
    """What metrics.json says about the training itself."""
    facts: dict[str, Any] = {
        "steps": progress.step,
        "best_step": progress.best_step,
        "seconds": round(progress.seconds, 1),
        "peak_memory": peak_memory(),
        "data": corpus.size,
        "python": sys.version.split()[0],
    }
    if fit_facts := run.learner.fit_facts():
        facts["fit"] = fit_facts
    return facts


def _last_validation(run: Run, task: str) -> dict[str, Any]:
    """Return the scores of the last validation in the form of an evaluation."""
    rows = [row["validation"] for row in run.metrics.rows() if "validation" in row]
    note = "the run was stopped: these are the scores of its last validation; run `seqlab evaluate` for the others"
    return {
        "task": task,
        "examples": 0,
        **(rows[-1] if rows else {}),
        "baselines": {},
        "baseline_note": note,
    }


def checkpoints(folder: str | Path) -> dict[str, Path]:
    """Return the checkpoints of a run by their names for `load_checkpoint`: `best`, `last` and steps (`train.keep`)."""
    run = Path(folder) / RUN
    files = [*run.glob("*.safetensors"), *(run / KEPT).glob("*.safetensors")]
    by_name = {file.stem: file for file in files if file.name != START}
    return dict(sorted(by_name.items()))


def load_checkpoint(folder: str | Path, name: str) -> Model:
    """Load the model at a checkpoint of its run: the `best`, the `last`, or one that `train.keep` has kept."""
    files = checkpoints(folder)
    if name not in files:
        names = ", ".join(files) or "none yet"
        raise RunError(f"{folder}: there is no checkpoint '{name}'", hint=f"there are: {names}.")
    folder = Path(folder)
    recipe = recipe_of_run(folder)
    codec = _codec_of_run(folder, recipe)
    model = build_model(recipe, codec)
    weights = read_checkpoint(files[name])[1]["model"]
    load_weights(model if recipe.model.hmm is None else probabilities_of(model), weights)
    return Model(Bundle(recipe, codec, model, {}), folder)


def _take_over(recipe: Recipe, settings: Sequence[str], old: Bundle) -> tuple[Recipe, Codec]:
    """Return the recipe with the architecture and the tokenizer of an old model, and the user's settings."""
    initial, codec = take_over(recipe, old.recipe, old.codec)
    changed = override(initial, settings)
    fixed = {"source", "target", "shared"}
    if changed.model_dump(include=fixed) != initial.model_dump(include=fixed):
        raise RecipeError(
            f"the tokenizer of the model to start from ('{initial.source.kind}') cannot change",
            hint="leave out --set source.*, or train without --from.",
        )
    return check_recipe(changed), codec


def _store_initial_weights(recipe: Recipe, codec: Codec, old: Bundle | None, path: Path) -> Recipe:
    """Store initial weights that come from an old model or from word vectors, and return the recipe with their size."""
    if old is None and recipe.model.vectors is None:
        return recipe
    table = None
    if recipe.model.vectors is not None:
        table = vectors_of(recipe.model.vectors, codec)
        recipe = override(recipe, [f"model.embedding={table.shape[1]}"])
    model = build_model(recipe, codec)
    if table is not None:
        place_vectors(model, table)
    if old is not None:
        same_output = old.recipe.task == recipe.task and old.codec.target == codec.target
        weights = dict(old.model.named_parameters())
        if not same_output:
            weights = {name: w for name, w in weights.items() if not name.startswith("head.")}
        carry_over(model, weights)
    write_checkpoint(path, Progress(), {"model": parameters_of(model)})
    return recipe


def _make_empty(folder: Path) -> None:
    """Create a directory or delete its contents; the directory itself stays, because it may be a link."""
    folder.mkdir(exist_ok=True)
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()

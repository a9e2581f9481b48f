"""A training in its folder: begun, gone on with, fitted, and written down as a model."""

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
from seqlab.recipe import Recipe, override, parse_recipe, to_toml, value_of
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
    """How a training ended: the model, and whether it was stopped before its end.

    Of many processes, only the one that leads has scored the model and written it down.
    """

    model: Model
    stopped: bool
    step: int
    leads: bool = True
    report: Report | None = None  # of the scoring at the end

    @property
    def scored(self) -> bool:
        """Whether the model has scores, and not only the figures of its last validation."""
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
) -> tuple[Recipe, Corpus]:
    """Prepare the data beside the directory and move it there when it is whole: bad input leaves nothing behind."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder}: this is a file", hint="give a directory with --out.")
    if folder.exists() and any(folder.iterdir()):
        if not ((folder / RUN).is_dir() or is_bundle(folder)):
            raise RunError(
                f"{folder}: this directory holds other files", hint="give another one with --out."
            )
        if not overwrite:
            raise RunError(
                f"{folder}: this directory already holds a run",
                hint="--resume goes on with it, --overwrite throws it away, --out takes another. It was not touched.",
            )
    if [*files, *valid].count(STDIN) > 1:
        raise UsageError(
            "standard input can be read only once", hint="put one of the two into a file."
        )
    if old is None and recipe.model.elmo is not None:
        raise RecipeError(
            "[model.elmo] is a model that was trained before", hint="give it with --from."
        )
    recipe, old_codec = (recipe, None) if old is None else _started(recipe, settings, old)
    target = folder.resolve()
    part = target.with_name(f".{target.name}.part")
    with temporary(part):
        stores = part / RUN / STORES
        stores.mkdir(parents=True)
        try:
            again, again_valid = (
                [spool(path, str(part / RUN)) for path in paths] for paths in (files, valid)
            )
            task = task_of(recipe)
            facts, choices = task.choose(task, recipe, again)
            recipe = check_recipe(settle(recipe, choices))
            report.plan(
                facts,
                {path: value for path, value in choices.items() if value_of(recipe, path) == value},
            )
            kind = task.data_kind(recipe)
            codec = kind.prepare(task, recipe, again, again_valid, stores, old_codec)
            corpus = kind.open(recipe, codec, stores)  # so that a text too short fails here
            recipe = _first_weights(recipe, codec, old, part / RUN / START)
        except DataError as error:
            spooled = str(part / RUN / SPOOLED)
            raise DataError(
                str(error).replace(spooled, "stdin"), hint=error.hint.replace(spooled, "stdin")
            ) from error
        (part / RUN / "recipe.toml").write_text(to_toml(recipe), "utf-8")
        (part / RUN / "tokenizer.json").write_text(
            json.dumps(codec.to_json(), ensure_ascii=False), "utf-8"
        )
        _make_empty(target)
        (part / RUN).replace(target / RUN)
    del corpus
    return recipe, kind.open(recipe, codec, folder / RUN / STORES)


def existing_run(out: str | Path | None) -> Path:
    if out is None:
        raise UsageError("--resume needs to know which run", hint="give its directory with --out.")
    if not is_run(Path(out)):
        raise RunError(f"{out}: there is no run here to resume", hint="train without --resume.")
    return Path(out)


def is_run(folder: Path) -> bool:
    return (folder / RUN / "recipe.toml").is_file()


def is_scored(folder: Path) -> bool:
    """Whether a model lies there that has its scores: its training was not stopped, or it was scored all the same."""
    return _scored_step(folder) is not None


def _scored_step(folder: Path) -> int | None:
    """The step of the model that lies there, if one does and has its scores."""
    try:
        metrics = json.loads((folder / "metrics.json").read_bytes()) if is_bundle(folder) else {}
        return None if "unscored" in metrics else int(metrics["steps"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def recipe_of_run(folder: Path) -> Recipe:
    """The recipe of the run in a folder."""
    path = folder / RUN / "recipe.toml"
    return parse_recipe(path.read_text("utf-8"), where=str(path))


def _codec_of_run(folder: Path, recipe: Recipe) -> Codec:
    path = folder / RUN / "tokenizer.json"
    return read_codec_file(path.read_bytes(), path, partial(codec_of, recipe))


def reopen_run(
    folder: Path, task: str | None, recipe: str | Recipe | None, settings: Sequence[str]
) -> tuple[Recipe, Corpus]:
    stored = recipe_of_run(folder)
    name = recipe.name if isinstance(recipe, Recipe) else recipe
    names = (stored.name, str(folder / RUN / "recipe.toml"))
    if (task or stored.task) != stored.task or (name or stored.name) not in names:
        raise RunError(
            f"{folder}: this run is of recipe '{stored.name}' for '{stored.task}'",
            hint="resume it without naming another, or train into another directory with --out.",
        )
    codec = _codec_of_run(folder, stored)
    chosen = override(stored, settings)
    if chosen.model_copy(update={"train": stored.train, "decode": stored.decode}) != stored:
        raise RunError(
            f"{folder}: a run cannot change its model or data halfway",
            hint="only --set train.* and decode.* can change.",
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
    """Train a run that is prepared, score its model and write it down.

    `spent` are seconds of a limited time that are gone before a new run begins.

    A run that is stopped is written down with the figures of its last validation, unless `score_if_stopped`. If the
    scoring itself is interrupted, the model is written down in the same way, and resuming the run scores it.
    """
    task, model = task_of(recipe), build_model(recipe, corpus.codec)
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
    began = time.perf_counter() - run.progress.seconds
    if world.leads:
        build_in_background()
    outcome = run.fit(stop=stop)
    if not world.leads:
        return Trained(Model(bundle, folder), outcome.stopped, outcome.progress.step, leads=False)
    metrics = {
        "steps": outcome.progress.step,
        "best_step": outcome.progress.best_step,
        "seconds": round(outcome.progress.seconds, 1),
        "peak_memory": peak_memory(),
        "data": corpus.size,
        "python": sys.version.split()[0],
    }
    if facts := run.learner.fit_facts():
        metrics["fit"] = facts

    def written(scores: dict[str, Any]) -> Model:
        finished = Bundle(recipe, corpus.codec, model, metrics | scores)
        save_bundle(finished, folder)
        return Model(finished, folder)

    unscored = {"validation": _last_validation(run, task.name), "unscored": True}
    if outcome.stopped and not score_if_stopped:
        return Trained(written(unscored), stopped=True, step=outcome.progress.step)
    try:
        left = (
            None if seconds is None or outcome.stopped else seconds - (time.perf_counter() - began)
        )
        report_at_end = held_out.score(left)
    except KeyboardInterrupt:
        written(unscored)
        raise
    scores = {"validation": report_at_end.to_json(), **bundle.metrics}
    return Trained(written(scores), outcome.stopped, outcome.progress.step, report=report_at_end)


def thread_counts(threads: int | None) -> tuple[int, ...]:
    """The numbers of threads to choose from: the one that is asked for, or 1, 2, 4 ... up to what torch would take."""
    if threads is not None:
        return (threads,)
    most = torch.get_num_threads()
    if "OMP_NUM_THREADS" in os.environ:
        return (most,)
    return (*(1 << power for power in range(most.bit_length()) if 1 << power < most), most)


def _last_validation(run: Run, task: str) -> dict[str, Any]:
    """The figures of the last validation, in the form of scores."""
    rows = [row["validation"] for row in run.metrics.rows() if "validation" in row]
    note = "the run was stopped: these are the figures of its last validation; `seqlab evaluate` gives the others"
    return {
        "task": task,
        "examples": 0,
        **(rows[-1] if rows else {}),
        "baselines": {},
        "baseline_note": note,
    }


def checkpoints(folder: str | Path) -> dict[str, Path]:
    """What a run has kept of itself so far, by names for `load_checkpoint`: steps (`train.keep`), `best` and `last`."""
    run = Path(folder) / RUN
    files = [
        file
        for file in (*run.glob("*.safetensors"), *(run / KEPT).glob("*.safetensors"))
        if file.name != START
    ]
    return {file.stem: file for file in sorted(files, key=lambda file: file.stem)}


def load_checkpoint(folder: str | Path, name: str) -> Model:
    """The model as a run of it stood: at its `best` so far, at the `last` step saved, or at one that was kept."""
    files = checkpoints(folder)
    if name not in files:
        kept = ", ".join(files) or "none yet"
        raise RunError(f"{folder}: there is no checkpoint '{name}'", hint=f"there are: {kept}.")
    folder = Path(folder)
    recipe = recipe_of_run(folder)
    codec = _codec_of_run(folder, recipe)
    model = build_model(recipe, codec)
    weights = read_checkpoint(files[name])[1]["model"]
    load_weights(model if recipe.model.hmm is None else probabilities_of(model), weights)
    return Model(Bundle(recipe, codec, model, {}), folder)


def _started(recipe: Recipe, settings: Sequence[str], old: Bundle) -> tuple[Recipe, Codec]:
    """The recipe as it can begin with an old model's weights; what the user asks for must be possible with them."""
    taken, codec = take_over(recipe, old.recipe, old.codec)
    changed = override(taken, settings)
    fixed = {"source", "target", "shared"}
    if changed.model_dump(include=fixed) != taken.model_dump(include=fixed):
        raise RecipeError(
            f"the model to start from was trained with its own tokenizer ('{taken.source.kind}'), which cannot change",
            hint="leave out --set source.*, or train without --from.",
        )
    return check_recipe(changed), codec


def _first_weights(recipe: Recipe, codec: Codec, old: Bundle | None, path: Path) -> Recipe:
    """Store the weights that the run begins with, where these come from elsewhere; the recipe may follow their size."""
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
        same = old.recipe.task == recipe.task and old.codec.target == codec.target
        carry_over(
            model,
            {n: w for n, w in old.model.named_parameters() if same or not n.startswith("head.")},
        )
    write_checkpoint(path, Progress(), {"model": parameters_of(model)})
    return recipe


def _make_empty(folder: Path) -> None:
    """A directory with nothing in it; one that is there stays, for it may be a link, or where somebody stands."""
    folder.mkdir(exist_ok=True)
    for inside in folder.iterdir():
        if inside.is_dir() and not inside.is_symlink():
            shutil.rmtree(inside)
        else:
            inside.unlink()

"""The verbs as plain functions: train, load, look at data. The command line calls these alone."""

import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

from seqlab.bundle import Bundle, is_bundle, refuse_existing, save_bundle
from seqlab.corpus.examples import Corpus
from seqlab.cross_validation import num_folds, write_folds
from seqlab.data.in_memory import as_files
from seqlab.data.lines import STDIN, names_of, paths_of
from seqlab.distributed import joined, restarted
from seqlab.errors import DataError, RecipeError, SeqlabWarning, UsageError
from seqlab.huggingface_import import read_huggingface
from seqlab.machine import keep_freed_memory, restore_threads
from seqlab.model import RUN, Model, load
from seqlab.recipe import Recipe, load_recipe, override
from seqlab.recipes import default_recipes
from seqlab.runs import (
    SPOOLED,
    Trained,
    checkpoints,
    existing_run,
    fit,
    is_run,
    load_checkpoint,
    prepare_run,
    reopen_run,
)
from seqlab.selection import keep_better, same_split
from seqlab.tasks import check_recipe, load_bundle, task_named, task_of
from seqlab.tasks.lm import STREAM
from seqlab.training.checkpoint import locked, temporary
from seqlab.training.log import Reporter, SilentReporter

__all__ = [
    "Model",
    "Trained",
    "batch_setting",
    "checkpoints",
    "default_folder",
    "export",
    "import_model",
    "joined",
    "load",
    "load_checkpoint",
    "look",
    "train",
]


BASELINE_SHARE = 0.2  # of a limited time, at most, is for the baseline


def train(
    task: str | None = None,
    data: Any = (),
    *,
    valid: Any = (),
    recipe: str | Recipe | None = None,
    settings: Sequence[str] = (),
    start: str | Path | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    report: Reporter | None = None,
    begun: Callable[[Path], None] = lambda folder: None,
    stop: Callable[[], bool] = lambda: False,
    threads: int | None = None,
    score_if_stopped: bool = True,
) -> Trained:
    """Train a recipe on the user's files into the directory `out`.

    `data` is a path, several, or what is in Python already: texts, pairs, dicts, columns, arrays or a data frame.
    `settings` are `section.key=value` overrides; `start` is a trained model whose weights the new one begins with.
    With `resume`, a stopped run goes on where it stood, and only `out` is needed. What `out` already holds is never
    touched unless `resume` or `overwrite` says so. `begun` is told the directory as soon as the run lies there.
    `stop` is asked after each step. `threads` fixes the number of threads, which is otherwise chosen by measuring.
    """
    if resume and overwrite:
        raise UsageError(
            "--resume goes on with a run, --overwrite throws it away", hint="choose one of them."
        )
    keep_freed_memory()
    with joined() as world, restore_threads():
        again = resume or (restarted() and out is not None and is_run(Path(out)))
        fitted = partial(
            fit,
            resume=again,
            report=(report if world.leads else None) or SilentReporter(),
            stop=stop,
            world=world,
            threads=threads,
            score_if_stopped=score_if_stopped,
        )
        if again:
            folder = existing_run(out)
            with locked(folder) if world.leads else nullcontext():
                if world.leads:
                    begun(folder)
                trained = fitted(folder, *reopen_run(folder, task, recipe, settings))
                return _compare_with_baseline(trained, folder) if world.leads else trained
        old = None if start is None else load_bundle(start)
        chosen = _chosen_recipe(task, recipe, settings, old)
        names = names_of(data)
        if not names:
            raise UsageError(
                "there is nothing to train on", hint="give a file, or - for standard input."
            )
        folder = (
            Path(out)
            if out is not None
            else default_folder(chosen.task if recipe is None else chosen.name, names)
        )
        if not world.leads:
            world.wait()
            return fitted(folder, *reopen_run(folder, None, None, ()))
        are_paths = None not in (paths_of(data), paths_of(valid))
        in_files = nullcontext([names, names_of(valid)]) if are_paths else as_files(data, valid)
        with locked(folder), in_files as (files, held_out):
            reporter = report or SilentReporter()
            prepared = prepare_run(
                folder, chosen, settings, old, files, held_out, overwrite=overwrite, report=reporter
            )
            world.wait()
            begun(folder)
            chooses_model = recipe is not None or any(
                each.startswith("model.") for each in settings
            )
            if not chooses_model and old is None and world.size == 1:
                spooled = str(folder / RUN / SPOOLED)
                again_files, again_valid = (
                    [spooled if path == STDIN else path for path in paths]
                    for paths in (files, held_out)
                )
                start_time = time.perf_counter()
                learn = partial(train, None, again_files, stop=stop, threads=threads)
                _train_baseline(prepared[0], partial(learn, valid=again_valid), folder)
                if prepared[0].train.minutes is not None:
                    fitted = partial(fitted, spent=time.perf_counter() - start_time)
                elif not held_out:
                    _train_folds(*prepared, learn, folder, reporter)
            return _compare_with_baseline(fitted(folder, *prepared), folder)


def batch_setting(
    batch: int, task: str | None, recipe: str | Recipe | None, settings: Sequence[str]
) -> str:
    """The setting that makes batches so large: tokens of examples, or streams of one long text side by side."""
    if task is None and recipe is None:
        raise UsageError(
            "--batch needs to know the task", hint="name it, or give --set train.batch_tokens=N."
        )
    chosen = _chosen_recipe(task, recipe, settings)
    name = "batch_rows" if task_of(chosen).data_kind(chosen) is STREAM else "batch_tokens"
    return f"train.{name}={batch}"


def _train_baseline(network: Recipe, learn: Callable[..., Trained], folder: Path) -> None:
    """Train the baseline of a network on the same split, in a folder of its own beside the network's run."""
    if name := task_of(network).baseline(network):
        minutes = network.train.minutes
        limit = [] if minutes is None else [f"train.minutes={BASELINE_SHARE * minutes}"]
        learn(recipe=name, settings=[*same_split(network), *limit], out=folder / name)


def _train_folds(
    network: Recipe,
    corpus: Corpus,
    learn: Callable[..., Trained],
    folder: Path,
    report: Reporter,
) -> None:
    """Where too little is held out for a score, score network and baseline on other parts of the file as well."""
    folds, baseline, reports = num_folds(network, corpus), task_of(network).baseline(network), []
    if folds == 1 or not baseline:
        return
    report.say(f"few examples: scored in {folds} folds, each by models trained on the others")
    for fold in range(2, folds + 1):
        part, out = override(network, [f"data.fold={fold}"]), folder / RUN / "fold"
        with (
            temporary(out),
            warnings.catch_warnings(),
            suppress(DataError),
        ):  # nothing may be left for a part
            warnings.simplefilter("ignore", SeqlabWarning)  # it was said of the first part
            both = [
                learn(recipe=part, out=out / "network"),
                learn(recipe=baseline, settings=same_split(part), out=out / "baseline"),
            ]
            if any(trained.stopped for trained in both):
                return
            reports.append({trained.model.recipe.name: trained.report for trained in both})
    write_folds(folder, reports)


def _compare_with_baseline(trained: Trained, folder: Path) -> Trained:
    """The better of a network and its baseline, if one was trained beside it."""
    name = task_of(trained.model.recipe).baseline(trained.model.recipe)
    if not name or trained.stopped or not is_bundle(folder / name):
        return trained
    return keep_better(trained, folder, load_bundle(folder / name))


def look(task: str, data: Any, *, settings: Sequence[str] = ()) -> dict[str, Any]:
    """What is in a file, read as training would read it: sizes, labels, repetitions, and the first example."""
    recipe = _chosen_recipe(task, None, settings)
    with as_files(data) as (files,):
        return task_of(recipe).data_kind(recipe).look(task_of(recipe), recipe, files)


def import_model(folder: str | Path, out: str | Path) -> Model:
    """A Hugging Face directory as a model of Seqlab's, in the new directory `out`."""
    return _saved(lambda: read_huggingface(folder), Path(out))


def export(path: str | Path, out: str | Path, *, int8: bool = False) -> Model:
    """A trained model without the run beside it, in the new directory `out`; with `int8`, in a quarter of the room."""
    return _saved(lambda: load(path, int8=int8).bundle, Path(out))


def _saved(make: Callable[[], Bundle], out: Path) -> Model:
    refuse_existing(out)
    bundle = make()
    save_bundle(bundle, out)
    return Model(bundle, out)


def default_folder(name: str, files: Sequence[str]) -> Path:
    """Where a run goes when nobody says: runs/RECIPE-FILE, or runs/TASK-FILE where no recipe was named."""
    file = "stdin" if files[0] == STDIN else Path(files[0]).name.split(".")[0]
    return Path("runs") / f"{name}-{file}"


def _chosen_recipe(
    task: str | None,
    recipe: str | Recipe | None,
    settings: Sequence[str],
    old: Bundle | None = None,
) -> Recipe:
    """The recipe that was named; else the task's own, and with a model to start from one that suits it."""
    if isinstance(recipe, Recipe):
        chosen = recipe
    elif recipe is not None:
        chosen = load_recipe(recipe)
    elif old is not None and task in (old.recipe.task, None):
        chosen = old.recipe
    else:
        tuned = task_named(task or "").fine_tuning_recipe if old is not None else ""
        chosen = load_recipe(tuned or default_recipes()[task_named(task or "").name])
    if task is not None and chosen.task != task:
        raise RecipeError(
            f"recipe '{chosen.name}' is for '{chosen.task}', not for '{task}'",
            hint="`seqlab recipes` lists the recipes of each task.",
        )
    return check_recipe(override(chosen, settings))

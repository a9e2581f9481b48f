"""Training, importing and exporting models, and summaries of data, as functions; the command line calls them."""

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
from seqlab.distributed import restarted, worker_group
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
    "load",
    "load_checkpoint",
    "look",
    "train",
    "worker_group",
]


# the maximum share of a limited time for the baseline
BASELINE_SHARE = 0.2


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
    """Train a recipe on the user's data and save the model in the directory `out`.

    `data` is one path or several, or data in memory: texts, pairs, dicts, columns, arrays or a data frame.
    `settings` are `section.key=value` overrides; `start` is a trained model from whose weights the new one starts.
    `resume` continues a stopped run, for which only `out` is needed. Existing files in `out` are not changed
    without `resume` or `overwrite`. `begun` is called with the directory as soon as the run is prepared.
    `stop` is called after each step. `threads` fixes the number of threads, which is otherwise chosen by measuring.
    """
    if resume and overwrite:
        raise UsageError(
            "--resume continues a run, --overwrite replaces it", hint="choose one of them."
        )
    keep_freed_memory()
    with worker_group() as world, restore_threads():
        resume = resume or (restarted() and out is not None and is_run(Path(out)))
        fit_run = partial(
            fit,
            resume=resume,
            report=(report if world.leads else None) or SilentReporter(),
            stop=stop,
            world=world,
            threads=threads,
            score_if_stopped=score_if_stopped,
        )
        if resume:
            folder = existing_run(out)
            with locked(folder) if world.leads else nullcontext():
                if world.leads:
                    begun(folder)
                trained = fit_run(folder, *reopen_run(folder, task, recipe, settings))
                return _compare_with_baseline(trained, folder) if world.leads else trained
        old = None if start is None else load_bundle(start)
        chosen = _find_recipe(task, recipe, settings, old)
        names = names_of(data)
        if not names:
            raise UsageError(
                "there is nothing to train on", hint="give a file, or - for standard input."
            )
        name = chosen.task if recipe is None else chosen.name
        folder = default_folder(name, names) if out is None else Path(out)
        if not world.leads:
            world.wait()
            return fit_run(folder, *reopen_run(folder, None, None, ()))
        are_paths = None not in (paths_of(data), paths_of(valid))
        in_files = nullcontext([names, names_of(valid)]) if are_paths else as_files(data, valid)
        model_is_named = recipe is not None or any(s.startswith("model.") for s in settings)
        with locked(folder), in_files as (files, valid_files):
            reporter = report or SilentReporter()
            prepared = prepare_run(
                folder,
                chosen,
                settings,
                old,
                files,
                valid_files,
                overwrite=overwrite,
                report=reporter,
                chooses_recipe=not model_is_named and old is None,
            )
            world.wait()
            begun(folder)
            if not model_is_named and old is None and world.size == 1:
                start_time = time.perf_counter()
                files, valid_files = (_reread(paths, folder) for paths in (files, valid_files))
                learn = partial(train, None, files, stop=stop, threads=threads)
                _train_baseline(prepared[0], partial(learn, valid=valid_files), folder)
                if prepared[0].train.minutes is not None:
                    fit_run = partial(fit_run, spent=time.perf_counter() - start_time)
                elif not valid_files:
                    _train_folds(*prepared, learn, folder, reporter)
            return _compare_with_baseline(fit_run(folder, *prepared), folder)


def batch_setting(
    batch: int, task: str | None, recipe: str | Recipe | None, settings: Sequence[str]
) -> str:
    """Return the setting of the batch size: in tokens of examples, or in parallel streams of one long text."""
    if task is None and recipe is None:
        raise UsageError(
            "--batch needs a task", hint="name the task, or give --set train.batch_tokens=N."
        )
    chosen = _find_recipe(task, recipe, settings)
    name = "batch_rows" if task_of(chosen).data_kind(chosen) is STREAM else "batch_tokens"
    return f"train.{name}={batch}"


def _reread(paths: list[str], folder: Path) -> list[str]:
    """Return the paths with standard input replaced by its copy, for another training on the same data."""
    return [str(folder / RUN / SPOOLED) if path == STDIN else path for path in paths]


def _train_baseline(network: Recipe, learn: Callable[..., Trained], folder: Path) -> None:
    """Train the baseline of a network on the same split, in a folder inside the network's folder."""
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
    """Cross-validate the network and its baseline if the held-out part has too few examples for a score."""
    folds = num_folds(network, corpus)
    baseline = task_of(network).baseline(network)
    if folds == 1 or not baseline:
        return
    reports = []
    report.say(f"few examples: scored in {folds} folds, each by models trained on the others")
    for fold in range(2, folds + 1):
        part = override(network, [f"data.fold={fold}"])
        out = folder / RUN / "fold"
        # a fold without any example is left out
        with temporary(out), warnings.catch_warnings(), suppress(DataError):
            # the user has seen the warnings of the first fold
            warnings.simplefilter("ignore", SeqlabWarning)
            both = [
                learn(recipe=part, out=out / "network"),
                learn(recipe=baseline, settings=same_split(part), out=out / "baseline"),
            ]
            if any(trained.stopped for trained in both):
                return
            reports.append({trained.model.recipe.name: trained.report for trained in both})
    write_folds(folder, reports)


def _compare_with_baseline(trained: Trained, folder: Path) -> Trained:
    """Return the better one of a network and its baseline, if a baseline was trained."""
    name = task_of(trained.model.recipe).baseline(trained.model.recipe)
    if not name or trained.stopped or not is_bundle(folder / name):
        return trained
    return keep_better(trained, folder, load_bundle(folder / name))


def look(task: str, data: Any, *, settings: Sequence[str] = ()) -> dict[str, Any]:
    """Summarise files, read as in training: sizes, labels, repeated sources, and the first example."""
    recipe = _find_recipe(task, None, settings)
    with as_files(data) as (files,):
        return task_of(recipe).data_kind(recipe).summarise(task_of(recipe), recipe, files)


def import_model(folder: str | Path, out: str | Path) -> Model:
    """Convert a Hugging Face directory to a Seqlab model in the new directory `out`."""
    return _save_new(lambda: read_huggingface(folder), Path(out))


def export(path: str | Path, out: str | Path, *, int8: bool = False) -> Model:
    """Save a trained model without its run in the new directory `out`; `int8` makes it a quarter of the size."""
    return _save_new(lambda: load(path, int8=int8).bundle, Path(out))


def _save_new(read: Callable[[], Bundle], out: Path) -> Model:
    """Save a bundle in a new directory, which is checked before the bundle is read."""
    refuse_existing(out)
    bundle = read()
    save_bundle(bundle, out)
    return Model(bundle, out)


def default_folder(name: str, files: Sequence[str]) -> Path:
    """Return the default directory of a run: runs/RECIPE-FILE, or runs/TASK-FILE if no recipe was named."""
    file = "stdin" if files[0] == STDIN else Path(files[0]).name.split(".")[0]
    return Path("runs") / f"{name}-{file}"


def _find_recipe(
    task: str | None,
    recipe: str | Recipe | None,
    settings: Sequence[str],
    old: Bundle | None = None,
) -> Recipe:
    """Return the named recipe, else that of the model to start from, or the default or fine-tuning one of the task."""
    if isinstance(recipe, Recipe):
        chosen = recipe
    elif recipe is not None:
        chosen = load_recipe(recipe)
    elif old is not None and task in (old.recipe.task, None):
        chosen = old.recipe
    else:
        named_task = task_named(task or "")
        name = default_recipes()[named_task.name]
        if old is not None and named_task.fine_tuning_recipe:
            name = named_task.fine_tuning_recipe
        chosen = load_recipe(name)
    if task is not None and chosen.task != task:
        raise RecipeError(
            f"recipe '{chosen.name}' is for '{chosen.task}', not for '{task}'",
            hint="`seqlab recipes` lists the recipes of each task.",
        )
    return check_recipe(override(chosen, settings))

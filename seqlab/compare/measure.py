"""Train several recipes on the same data, with the same time or steps, and measure their scores and costs.

Every model is trained in a separate process, so that its memory can be measured, and in a separate folder, so that
models that exist already are not trained again.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any

from seqlab.compare.comparison import Comparison, RecipeResult
from seqlab.errors import DataError, RunError, UsageError, nearest
from seqlab.metrics.scores import duration
from seqlab.model import RUN, Model, load
from seqlab.recipe import Recipe, load_recipe, override, to_toml
from seqlab.recipes import recipe_names
from seqlab.runs import is_scored
from seqlab.tasks import task_named
from seqlab.tasks.task import LOWER_IS_BETTER

# cells that can replace the one of a task's recurrent recipe; "bi" before the name means both directions
CELLS = ("rnn", "lstm", "gru")
# inputs on which the speed of answering is measured
SPEED_INPUTS = 200


def compare(
    task: str,
    data: Sequence[str],
    recipes: Sequence[str] = (),
    *,
    out: Path,
    valid: Sequence[str] = (),
    test: Sequence[str] = (),
    settings: Sequence[str] = (),
    seeds: int = 1,
    minutes: float | None = None,
    threads: int | None = None,
    announce: Callable[[str], None] = lambda text: None,
) -> Comparison:
    """Train each recipe with each seed and evaluate it on `test`, or on the held-out part, the same for all.

    With `minutes`, this is the time limit of each training; otherwise recipe and `settings` set its length.
    """
    chosen = [find_recipe(task, name) for name in recipes or task_named(task).ladder]
    runs: dict[str, list[dict[str, Any]]] = {}
    for name, recipe in {recipe.name: recipe for recipe in chosen}.items():
        runs[name] = []
        for seed in range(1, seeds + 1):
            all_settings = [*settings, f"train.seed={seed}"]
            if minutes is not None:
                all_settings.append(f"train.minutes={minutes}")
            arguments = [*data, *_options("--valid", valid), *_options("--set", all_settings)]
            if threads:
                arguments += ["--threads", str(threads)]
            announce(f"{name}, seed {seed}")
            folder = out / f"{name}-{seed}"
            runs[name].append(_measure(task, recipe, folder, arguments, [*data, *valid], test))
    all_scores = [run["scores"] for part in runs.values() for run in part if "scores" in run]
    measure, more = _main_score(task, all_scores)
    results = tuple(_summarise(name, part, measure, more) for name, part in runs.items())
    setup = _setup_of(data, [*test] or [*valid], minutes, seeds)
    return Comparison(task, measure, more, results, setup)


def _options(name: str, values: Sequence[str]) -> list[str]:
    """Repeat an option of the command line for each value."""
    return [word for value in values for word in (name, value)]


def _setup_of(data: Sequence[str], scored: Sequence[str], minutes: float | None, seeds: int) -> str:
    """Describe the files, the training time and the number of seeds."""
    trained = " and ".join(Path(file).name for file in data)
    evaluated = " and ".join(Path(file).name for file in scored) or "what was held out"
    length = "as long as its recipe says"
    if minutes is not None:
        length = f"{duration(60 * minutes)} of training each"
    return f"{trained}, scored on {evaluated}; {length}; {seeds} seed{'s' if seeds > 1 else ''}"


def find_recipe(task: str, name: str) -> Recipe:
    """Find a recipe of a task by its name, a file, the name of a recurrent cell, or a part of its name."""
    own = [recipe for recipe in recipe_names() if load_recipe(recipe).task == task]
    if name.endswith(".toml"):
        return load_recipe(name).model_copy(update={"name": Path(name).stem})
    if name in own:
        return load_recipe(name)
    base = task_named(task).recurrent_recipe
    has_recipe = any(recipe.startswith(f"{name}-") for recipe in own)
    if name.removeprefix("bi") in CELLS and base and not has_recipe:
        return _with_cell(base, name)
    near = [recipe for recipe in own if name in recipe.split("-")]
    if not near:
        near = [recipe for recipe in own if recipe.startswith(name)]
    in_ladder = [recipe for recipe in near if recipe in task_named(task).ladder]
    for matches in (in_ladder, near):
        if len(matches) == 1:
            return load_recipe(matches[0])
    hint = f"it may be {' or '.join(near)}." if near else nearest(name, own)
    raise UsageError(f"there is no recipe '{name}' for '{task}'", hint=hint)


def _with_cell(base: str, name: str) -> Recipe:
    """Return a recurrent recipe with another cell: "gru" for tagging is `gru-tagger`."""
    recipe = load_recipe(base)
    cell = name.removeprefix("bi")
    settings = [f"model.encoder.kind={cell}"]
    if recipe.model.decoder is not None:
        # the encoder of an encoder-decoder stays bidirectional
        settings.append(f"model.decoder.kind={cell}")
    else:
        bidirectional = "true" if name.startswith("bi") else "false"
        settings.append(f"model.encoder.bidirectional={bidirectional}")
    return override(recipe, settings).model_copy(
        update={"name": f"{name}-{base.rpartition('-')[2]}"}
    )


def _measure(
    task: str,
    recipe: Recipe,
    folder: Path,
    arguments: list[str],
    files: Sequence[str],
    test: Sequence[str],
) -> dict[str, Any]:
    """Train, evaluate and time one model, and store the result; if it is stored already, only read it."""
    stored = folder.with_name(f"{folder.name}.json")
    request: dict[str, Any] = {
        "recipe": to_toml(recipe),
        "words": arguments,
        "files": [_file_state(file) for file in files],
    }
    scored = {"test": list(test), "files": [_file_state(file) for file in test]}
    old = json.loads(stored.read_text("utf-8")) if stored.is_file() else {}
    same = old.get("asked") == request
    if same and "scores" in old and old.get("scored") == scored:
        return old
    folder.parent.mkdir(parents=True, exist_ok=True)
    stored.write_text(json.dumps({"asked": request}), "utf-8")
    if not (same and is_scored(folder)):
        error = _train(task, recipe, folder, arguments, resume=same)
        if error.startswith(tuple(files)):
            # a mistake in the data would stop every recipe
            raise DataError(
                error,
                hint=f"`seqlab data look {task} {' '.join(arguments[:1])}` reads it as training does.",
            )
        if error:
            return {"failed": error}
    model = load(folder)
    scores = model.metrics["validation"]
    if test or recipe.data.test:
        scores = model.evaluate(*test).to_json()
    facts = model.info() | {"answers_per_second": _speed(model), "tokens": _tokens(model)}
    facts.pop("path")
    measured = {"asked": request, "scored": scored, "scores": scores, "facts": facts}
    stored.write_text(json.dumps(measured, indent=2), "utf-8")
    return measured


def _train(task: str, recipe: Recipe, folder: Path, arguments: list[str], *, resume: bool) -> str:
    """Train a recipe in a process of its own, or resume its run; return the error message if it fails."""
    recipe_file = folder.with_name(f"{recipe.name}.toml")
    recipe_file.write_text(to_toml(recipe), "utf-8")
    if resume and (folder / RUN / "last.safetensors").exists():
        start = ["--resume"]
    else:
        start = [task, *arguments, "--recipe", str(recipe_file), "--overwrite"]
    command = [sys.executable, "-m", "seqlab", "train", *start, "--out", str(folder), "--quiet"]
    code, stderr = _run(command)
    return _error_message(stderr) if code else ""


def _run(command: list[str]) -> tuple[int, str]:
    """Run a training and return its exit code and stderr. If this process is interrupted, the training saves and stops.

    The training has its own session: otherwise it would also get the signal of the terminal, and not save.
    """
    streams: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.PIPE,
    }
    with subprocess.Popen(command, **streams, text=True, start_new_session=True) as process:
        try:
            _, stderr = process.communicate()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            process.communicate()
            raise
    return process.returncode, stderr


def _file_state(file: str) -> list[int]:
    """Return the size and the modification time of a file, to notice that it was replaced."""
    if not Path(file).exists():
        # the error message comes from the training
        return []
    status = Path(file).stat()
    return [status.st_size, status.st_mtime_ns]


def _tokens(model: Model) -> str:
    """Describe the tokens of a model, because losses per token are comparable only for the same tokens."""
    part = model.recipe.target if model.bundle.codec.writes else model.recipe.source
    return f"{part.kind} {part.size}" if part.kind in ("bpe", "words") else part.kind


def _error_message(stderr: str) -> str:
    """Return the last error message of a training."""
    messages = [
        line.removeprefix("error: ") for line in stderr.splitlines() if line.startswith("error: ")
    ]
    if not messages:
        raise RunError(
            "a training failed without an error message",
            hint=stderr[-500:] or "run it by itself to see more.",
        )
    return messages[-1]


def _speed(model: Model) -> float | None:
    """Return answers per second on held-out inputs, answered together; None for models without answers."""
    try:
        count, work = model.data().prediction_work(model.task, model.bundle, SPEED_INPUTS)
    except UsageError:
        # nothing was held out, or the model has no answers of its own
        return None
    if not count:
        return None
    start = time.perf_counter()
    work()
    return count / (time.perf_counter() - start)


def _main_score(task: str, scores: Sequence[dict[str, Any]]) -> tuple[str, bool]:
    """Return the first score of the task that all models have, or the loss, and whether higher is better."""
    for name in task_named(task).judged_by:
        if scores and all(isinstance(table.get(name), float) for table in scores):
            return name, name not in LOWER_IS_BETTER
    return "loss", False


def _summarise(name: str, runs: Sequence[dict[str, Any]], measure: str, more: bool) -> RecipeResult:
    """Summarise the runs of one recipe with all seeds."""
    scores = [run["scores"] for run in runs if "scores" in run]
    facts = [run["facts"] for run in runs if "scores" in run]
    if not scores:
        return RecipeResult(name, failed=runs[0]["failed"])
    baselines = [
        (table[measure], baseline)
        for baseline, table in scores[0].get("baselines", {}).items()
        if measure in table
    ]
    best = (max if more else min)(baselines, key=itemgetter(0), default=(None, ""))
    speeds = [
        fact["answers_per_second"] for fact in facts if fact["answers_per_second"] is not None
    ]
    return RecipeResult(
        name,
        scores=tuple(table[measure] for table in scores),
        baseline=best[0],
        baseline_name=best[1],
        parameters=facts[0]["parameters"],
        steps=facts[0]["metrics"]["steps"],
        seconds=fmean(fact["metrics"]["seconds"] for fact in facts),
        answers_per_second=fmean(speeds) if speeds else None,
        memory=max(fact["metrics"]["peak_memory"] for fact in facts),
        bytes=facts[0]["bytes"],
        tokens=facts[0]["tokens"],
    )

"""The ladder: several recipes on the same data, each with the same time or steps.

Every model is trained in a process of its own, so that its memory is its own, into a folder of its own, so that what is
there already is not trained again.
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

from seqlab.compare.comparison import Comparison, Rung
from seqlab.errors import DataError, RunError, UsageError, nearest
from seqlab.metrics.scores import duration
from seqlab.model import RUN, Model, load
from seqlab.recipe import Recipe, load_recipe, override, to_toml
from seqlab.recipes import recipe_names
from seqlab.runs import is_scored
from seqlab.tasks import task_named
from seqlab.tasks.task import LOWER_IS_BETTER

# each may stand in the recurrent recipe of a task, in one direction or, as "bi...", in both
CELLS = ("rnn", "lstm", "gru")
ANSWERED = 200  # inputs that tell how fast a model answers


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
    """Train each recipe with each seed and score it on `test`, or on what all of them held out.

    With `minutes`, each learns for so long; otherwise as its recipe or `settings` say.
    """
    chosen = [find_recipe(task, name) for name in recipes or task_named(task).ladder]
    results: dict[str, list[dict[str, Any]]] = {}
    for name, recipe in {recipe.name: recipe for recipe in chosen}.items():
        results[name] = []
        for seed in range(1, seeds + 1):
            extra = [*settings, f"train.seed={seed}"]
            extra += [] if minutes is None else [f"train.minutes={minutes}"]
            words = [*data, *_options("--valid", valid), *_options("--set", extra)]
            words += ["--threads", str(threads)] if threads else []
            announce(f"{name}, seed {seed}")
            results[name].append(
                _measured(task, recipe, out / f"{name}-{seed}", words, [*data, *valid], test)
            )
    measure, more = _judged(
        task, [part["scores"] for parts in results.values() for part in parts if "scores" in part]
    )
    rungs = tuple(_rung(name, parts, measure, more) for name, parts in results.items())
    return Comparison(
        task, measure, more, rungs, _setup_of(data, [*test] or [*valid], minutes, seeds)
    )


def _options(name: str, values: Sequence[str]) -> list[str]:
    """The same option once for each value, as the command line takes it."""
    return [word for value in values for word in (name, value)]


def _setup_of(data: Sequence[str], scored: Sequence[str], minutes: float | None, seeds: int) -> str:
    """On what, and for how long."""
    trained, on = (" and ".join(Path(file).name for file in files) for files in (data, scored))
    long = (
        "as long as its recipe says"
        if minutes is None
        else f"{duration(60 * minutes)} of training each"
    )
    return f"{trained}, scored on {on or 'what was held out'}; {long}; {seeds} seed{'s' if seeds > 1 else ''}"


def find_recipe(task: str, name: str) -> Recipe:
    """A recipe by its name, by a file, by a cell, or by a part of its name."""
    own = [each for each in recipe_names() if load_recipe(each).task == task]
    if name.endswith(".toml"):
        return load_recipe(name).model_copy(update={"name": Path(name).stem})
    if name in own:
        return load_recipe(name)
    base = task_named(task).recurrent_recipe
    if (
        name.removeprefix("bi") in CELLS
        and base
        and not any(each.startswith(f"{name}-") for each in own)
    ):
        return _with_cell(base, name)
    near = [each for each in own if name in each.split("-")] or [
        each for each in own if each.startswith(name)
    ]
    for names in ([each for each in near if each in task_named(task).ladder], near):
        if len(names) == 1:
            return load_recipe(names[0])
    hint = f"it may be {' or '.join(near)}." if near else nearest(name, own)
    raise UsageError(f"there is no recipe '{name}' for '{task}'", hint=hint)


def _with_cell(base: str, name: str) -> Recipe:
    """A recurrent recipe with another cell: "gru" for tagging is `gru-tagger`."""
    recipe, cell = load_recipe(base), name.removeprefix("bi")
    settings = [f"model.encoder.kind={cell}"]
    if recipe.model.decoder is not None:
        settings.append(
            f"model.decoder.kind={cell}"
        )  # its encoder reads in both directions, as it did
    else:
        settings.append(
            f"model.encoder.bidirectional={'true' if name.startswith('bi') else 'false'}"
        )
    return override(recipe, settings).model_copy(
        update={"name": f"{name}-{base.rpartition('-')[2]}"}
    )


def _measured(
    task: str,
    recipe: Recipe,
    folder: Path,
    words: list[str],
    files: Sequence[str],
    test: Sequence[str],
) -> dict[str, Any]:
    """What one model costs and is worth; trained and measured once, then read from its folder."""
    kept, written = folder.with_name(f"{folder.name}.json"), folder.with_name(f"{recipe.name}.toml")
    request: dict[str, Any] = {
        "recipe": to_toml(recipe),
        "words": words,
        "files": [_state(file) for file in files],
    }
    scored = {"test": list(test), "files": [_state(file) for file in test]}
    old = json.loads(kept.read_text("utf-8")) if kept.is_file() else {}
    same = old.get("asked") == request
    if same and "scores" in old and old.get("scored") == scored:
        return old
    folder.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({"asked": request}), "utf-8")
    written.write_text(request["recipe"], "utf-8")
    if not (same and is_scored(folder)):
        resume = same and (folder / RUN / "last.safetensors").exists()
        start = ["--resume"] if resume else [task, *words, "--recipe", str(written), "--overwrite"]
        command = [sys.executable, "-m", "seqlab", "train", *start, "--out", str(folder), "--quiet"]
        code, stderr = _run(command)
        if code:
            failed = _sentence(stderr)
            if failed.startswith(tuple(files)):  # every recipe would say so
                raise DataError(
                    failed,
                    hint=f"`seqlab data look {task} {' '.join(words[:1])}` reads it as training does.",
                )
            return {"failed": failed}
    model = load(folder)
    scores = (
        model.evaluate(*test).to_json() if test or recipe.data.test else model.metrics["validation"]
    )
    facts = model.info() | {"answers_per_second": _speed(model), "tokens": _tokens(model)}
    facts.pop("path")
    measured = {"asked": request, "scored": scored, "scores": scores, "facts": facts}
    kept.write_text(json.dumps(measured, indent=2), "utf-8")
    return measured


def _run(command: list[str]) -> tuple[int, str]:
    """Run a training and return its exit code and stderr. If this process is interrupted, the training saves and stops.

    It has a session of its own, because a second signal, from the terminal, would end it before it has saved.
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


def _state(file: str) -> list[int]:
    """Its size and the time of its last change: another file of the same name is another question."""
    if not Path(file).exists():
        return []  # the training will say so
    status = Path(file).stat()
    return [status.st_size, status.st_mtime_ns]


def _tokens(model: Model) -> str:
    """What the loss is counted by."""
    part = model.recipe.target if model.bundle.codec.writes else model.recipe.source
    return f"{part.kind} {part.size if part.kind in ('bpe', 'words') else ''}".strip()


def _sentence(stderr: str) -> str:
    messages = [
        line.removeprefix("error: ") for line in stderr.splitlines() if line.startswith("error: ")
    ]
    if not messages:
        raise RunError(
            "a training ended without a word", hint=stderr[-500:] or "run it by itself to see more."
        )
    return messages[-1]


def _speed(model: Model) -> float | None:
    """Answers in a second, asked together, on what was held out; None for models that are not asked."""
    try:
        count, work = model.data().prediction_work(model.task, model.bundle, ANSWERED)
    except UsageError:  # nothing was held out, or it answers nothing by itself
        return None
    if not count:
        return None
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


def _judged(task: str, scores: Sequence[dict[str, Any]]) -> tuple[str, bool]:
    """The first measure of the task that all models have, and whether more of it is better; else their loss."""
    for name in task_named(task).judged_by:
        if scores and all(isinstance(each.get(name), float) for each in scores):
            return name, name not in LOWER_IS_BETTER
    return "loss", False


def _rung(name: str, parts: Sequence[dict[str, Any]], measure: str, more: bool) -> Rung:
    scores, facts = (
        [part[key] for part in parts if "scores" in part] for key in ("scores", "facts")
    )
    if not scores:
        return Rung(name, failed=parts[0]["failed"])
    baselines = [
        (each[measure], name)
        for name, each in scores[0].get("baselines", {}).items()
        if measure in each
    ]
    best = (max if more else min)(baselines, key=itemgetter(0), default=(None, ""))
    speeds = [
        fact["answers_per_second"] for fact in facts if fact["answers_per_second"] is not None
    ]
    return Rung(
        name,
        scores=tuple(each[measure] for each in scores),
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

"""The ladder: several recipes on the same data, each with the same time or steps, in one table.

Every model is trained in a process of its own, so that its memory is its own, into a folder of its own, so that what is
there already is not trained again.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from seqlab.assemble.corpus import held_out, is_stream
from seqlab.bundle import is_bundle
from seqlab.errors import RunError, UsageError, nearest
from seqlab.explain.charts import bars, scatter
from seqlab.explain.view import View
from seqlab.model import RUN, STORES, Model, load
from seqlab.recipe import Recipe, Task, load_recipe, recipe_names

LADDERS: dict[str, tuple[str, ...]] = {
    "lm": ("char-rnn", "char-gru", "char-lstm", "gpt-tiny"),
    "classify": ("lstm-classifier", "bilstm-classifier", "self-attentive", "transformer-classifier"),
    "tag": ("hmm-tagger", "bilstm-tagger", "char-tagger"),
    "translate": ("seq2seq", "bahdanau", "transformer-lstm", "transformer-tiny"),
    "forecast": ("lds-forecast", "gru-forecast", "transformer-forecast"),
    "caption": ("show-and-tell", "show-attend-tell", "caption-transformer"),
    "mask": ("bilstm-mask", "bert-tiny"),
    "bilm": ("elmo",),
}
# what a task is judged by, and whether more of it is better
JUDGED: dict[str, tuple[tuple[str, bool], ...]] = {
    "translate": (("bleu", True),),
    "caption": (("bleu", True),),
    "classify": (("accuracy", True),),
    "tag": (("entity_f1", True), ("accuracy", True)),
    "forecast": (("mse", False),),
}
ANSWERED = 200  # inputs that tell how fast a model answers


@dataclass(frozen=True)
class Rung:
    """One recipe: how good it is over the seeds, and what it costs."""

    recipe: str
    scores: tuple[float, ...] = ()
    floor: float | None = None
    parameters: int = 0
    steps: int = 0
    seconds: float = 0.0  # of training
    answers_per_second: float | None = None
    memory: int = 0  # at most, in training
    bytes: int = 0  # of the bundle
    failed: str = ""

    @property
    def score(self) -> float:
        return fmean(self.scores)

    @property
    def spread(self) -> float:
        """The deviation over seeds."""
        return stdev(self.scores) if len(self.scores) > 1 else 0.0


@dataclass(frozen=True)
class Comparison:
    """All rungs in the order they were asked for, and what follows."""

    task: str
    measure: str
    more_is_better: bool
    rungs: tuple[Rung, ...]

    @property
    def done(self) -> list[Rung]:
        return [rung for rung in self.rungs if rung.scores]

    @property
    def advice(self) -> str:
        """The model to take: the one that costs least among those that none is clearly better than."""
        if not self.done:
            return "no model was trained to its end."
        sign = 1 if self.more_is_better else -1
        best = max(self.done, key=lambda rung: sign * rung.score)
        near = max(best.spread, 0.01 * abs(best.score))
        equals = [rung for rung in self.done if sign * (best.score - rung.score) <= near]
        chosen = min(equals, key=lambda rung: rung.seconds)
        why = f"its {self.measure} of {chosen.score:.4g} is the best"
        if chosen is not best:
            why = (
                f"its {self.measure} of {chosen.score:.4g} is as good as the best ({best.recipe}, {best.score:.4g}), "
                f"and it trains in {chosen.seconds / max(best.seconds, 1e-9):.0%} of the time"
            )
        floor = chosen.floor
        if floor is not None and sign * (chosen.score - floor) <= 0:
            return f"none: {chosen.recipe} is the best, and does not beat its floor of {floor:.4g}. Train longer."
        return f"take {chosen.recipe}: {why}."

    def to_json(self) -> dict[str, Any]:
        rungs = [
            asdict(rung) | ({"score": rung.score, "spread": rung.spread} if rung.scores else {}) for rung in self.rungs
        ]
        return {"task": self.task, "measure": self.measure, "rungs": rungs, "advice": self.advice}

    def view(self) -> View:
        """Quality by recipe, and quality against the time that it took."""
        names, scores = [rung.recipe for rung in self.done], np.array([rung.score for rung in self.done])
        title = f"{self.task}: {self.measure}, {'more' if self.more_is_better else 'less'} is better"
        pictures = []
        if self.done:
            times = np.array([rung.seconds / 60 for rung in self.done])
            pictures.append(bars(scores, names, title=title))
            speeds = np.array([rung.answers_per_second or np.nan for rung in self.done])
            axes = [
                ("what training buys", "minutes of training", times),
                ("what speed costs", "answers a second", speeds),
            ]
            for said, across, x in axes:
                if np.isfinite(x).all():
                    points = np.stack([x, scores], axis=1)
                    pictures.append(scatter(points, names, title=said, titles=(across, self.measure), size=(720, 380)))
        lines = [f"{rung.recipe}: {f'{rung.score:.4g}' if rung.scores else rung.failed}" for rung in self.rungs]
        text = "\n".join(lines)
        return View("compare", self.advice, self.to_json(), tuple(pictures), lambda width, colour: text)


def compare(
    task: Task,
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
    told: Callable[[str], None] = lambda text: None,
) -> Comparison:
    """Train each recipe with each seed and score it on `test`, or on what all of them held out.

    With `minutes`, each learns for so long; otherwise as its recipe or `settings` say.
    """
    chosen = [_found(task, name) for name in recipes or LADDERS[task]]
    found: dict[str, list[dict[str, Any]]] = {}
    for recipe in chosen:
        for seed in range(1, seeds + 1):
            folder, extra = out / f"{recipe.name}-{seed}", [*settings, f"train.seed={seed}"]
            if minutes is not None and not (recipe.model.hmm or recipe.model.lds):
                extra.append(f"train.minutes={minutes}")
            words = [*data, *(word for file in valid for word in ("--valid", file))]
            words += [word for each in extra for word in ("--set", each)]
            words += ["--threads", str(threads)] if threads else []
            told(f"{recipe.name}, seed {seed}")
            found.setdefault(recipe.name, []).append(_measured(task, recipe.name, folder, words, test))
    measure, more = _judged(task, [each["scores"] for parts in found.values() for each in parts if "scores" in each])
    return Comparison(task, measure, more, tuple(_rung(name, parts, measure, more) for name, parts in found.items()))


def _found(task: Task, name: str) -> Recipe:
    """A recipe by its name, by a file, or by the part of a name that only one recipe of the task has."""
    own = [each for each in recipe_names() if load_recipe(each).task == task]
    if name not in own and not name.endswith(".toml"):
        near = [each for each in own if name in each.split("-")] or [each for each in own if each.startswith(name)]
        if len(near) != 1:
            hint = f"it may be {' or '.join(near)}." if near else nearest(name, own)
            raise UsageError(f"there is no recipe '{name}' for '{task}'", hint=hint)
        name = near[0]
    return load_recipe(name)


def _measured(task: Task, recipe: str, folder: Path, words: list[str], test: Sequence[str]) -> dict[str, Any]:
    """What one model costs and is worth; trained and measured once, then read from its folder."""
    kept, asked = folder.with_name(f"{folder.name}.json"), {"words": words, "test": list(test)}
    old = json.loads(kept.read_text("utf-8")) if kept.is_file() else {}
    same = old.get("asked") == asked
    if same and "scores" in old:
        return old
    folder.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({"asked": asked}), "utf-8")
    if not (same and is_bundle(folder)):
        resume = same and (folder / RUN / "last.safetensors").exists()
        start = ["--resume"] if resume else [task, *words, "--recipe", recipe, "--overwrite"]
        command = [sys.executable, "-m", "seqlab", "train", *start, "--out", str(folder), "--quiet"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            return {"failed": _sentence(done.stderr)}
    model = load(folder)
    report = model.evaluate(*test) if test else None
    scores = model.metrics["validation"] if report is None else report.to_json()
    facts = model.info() | {"answers_per_second": _speed(model)}
    measured = {"asked": asked, "scores": scores, "facts": {k: v for k, v in facts.items() if k != "path"}}
    kept.write_text(json.dumps(measured, indent=2), "utf-8")
    return measured


def _sentence(stderr: str) -> str:
    told = [line.removeprefix("error: ") for line in stderr.splitlines() if line.startswith("error: ")]
    if not told:
        raise RunError("a training ended without a word", hint=stderr[-500:] or "run it by itself to see more.")
    return told[-1]


def _speed(model: Model) -> float | None:
    """Answers in a second, on what was held out; a model of one endless text or of a series is not asked."""
    stores = model.path / RUN / STORES
    if is_stream(model.recipe) or model.recipe.task in ("forecast", "bilm") or not stores.is_dir():
        return None
    sources = [example.source or example.target for example in islice(held_out(stores), ANSWERED)]
    model.predict(sources[:2])
    began = time.perf_counter()
    model.predict(sources)
    return len(sources) / (time.perf_counter() - began)


def _judged(task: str, scores: Sequence[dict[str, Any]]) -> tuple[str, bool]:
    """The first measure of the task that all models have; their loss where there is none."""
    for name, more in JUDGED.get(task, ()):
        if scores and all(isinstance(each.get(name), float) for each in scores):
            return name, more
    return "loss", False


def _rung(name: str, parts: Sequence[dict[str, Any]], measure: str, more: bool) -> Rung:
    whole = [part for part in parts if "scores" in part]
    if not whole:
        return Rung(name, failed=parts[0]["failed"])
    facts = [part["facts"] for part in whole]
    floors = [floor[measure] for floor in whole[0]["scores"].get("floors", {}).values() if measure in floor]
    speeds = [fact["answers_per_second"] for fact in facts if fact["answers_per_second"] is not None]
    return Rung(
        name,
        scores=tuple(part["scores"][measure] for part in whole),
        floor=(max(floors) if more else min(floors)) if floors else None,
        parameters=facts[0]["parameters"],
        steps=facts[0]["metrics"]["steps"],
        seconds=fmean(fact["metrics"]["seconds"] for fact in facts),
        answers_per_second=fmean(speeds) if speeds else None,
        memory=max(fact["metrics"]["peak_memory"] for fact in facts),
        bytes=facts[0]["bytes"],
    )

"""The verbs as plain functions: train, load, and what a loaded model can do. The command line calls these alone."""

import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np

from seqlab.assemble.corpus import HELD_OUT, Corpus, open_corpus, prepare, read_examples
from seqlab.assemble.model import build_model
from seqlab.assemble.vocabularies import Vocabularies, labels_of
from seqlab.bundle import Bundle, is_bundle, load_bundle, read_vocabularies, save_bundle
from seqlab.data.lines import STDIN, read_text, spool
from seqlab.data.sources import Example
from seqlab.data.split import source_key
from seqlab.data.store import TokenStore
from seqlab.errors import DataError, RecipeError, RunError, UsageError, shorten
from seqlab.evaluate import Report, evaluate_examples, evaluate_stream
from seqlab.models.interface import Model as Trainable
from seqlab.predict import Prediction, predict, score, stream_text
from seqlab.recipe import DEFAULTS, Decode, Recipe, Task, load_recipe, override, parse_recipe, to_toml
from seqlab.training.checkpoint import write_whole
from seqlab.training.gradient import GradientTraining, peak_memory
from seqlab.training.log import Reporter, Silence
from seqlab.training.objective import mean_loss

DECODED_WHILE_TRAINING = 100  # held-out examples that each validation translates
EVALUATED_AT_THE_END = 1000
RUN, STORES = "run", "data"
SPOOLED = "stdin.txt"  # standard input, copied so that it can be read again


class Model:
    """A trained model: what `load` and `train` give."""

    def __init__(self, bundle: Bundle, path: Path) -> None:
        self.bundle, self.path = bundle, path

    @property
    def recipe(self) -> Recipe:
        return self.bundle.recipe

    @property
    def metrics(self) -> dict[str, Any]:
        """How good it was when it was made."""
        return self.bundle.metrics

    def predict(
        self, inputs: str | Sequence[str], *, seed: int = 0, first_row: int = 0, prefix: str = "", **decode: Any
    ) -> Any:
        """A `Prediction` for one input, or a list of them for many; `decode` overrides the recipe's [decode]."""
        settings = decode_settings(self.recipe.decode, decode)
        many = [inputs] if isinstance(inputs, str) else list(inputs)
        answers: list[Prediction] = predict(
            self.bundle, many, decode=settings, seed=seed, first_row=first_row, prefix=prefix
        )
        return answers[0] if isinstance(inputs, str) else answers

    def stream(self, prompt: str, *, seed: int = 0, **decode: Any) -> Iterator[str]:
        """A language model's continuation of a prompt, piece by piece."""
        if self.recipe.task != "lm":
            raise UsageError(f"a '{self.recipe.task}' model continues no text", hint="only an 'lm' model can stream.")
        return stream_text(self.bundle, prompt, decode=decode_settings(self.recipe.decode, decode), seed=seed)

    def score(self, targets: Sequence[str], sources: Sequence[str] = ()) -> list[float]:
        """The log-probability of each target, given its source where the model reads one."""
        return score(self.bundle, sources, targets)

    def evaluate(self, *data: str | Path, lower: bool = False, **decode: Any) -> Report:
        """Scores beside floors on files with known answers; without files, on what training held out.

        `decode` overrides the recipe's [decode]; `lower` scores translations without regard to case.
        """
        stores = self.path / RUN / STORES
        at_hand = stores if stores.is_dir() else None
        if not data and at_hand is None:
            raise UsageError(
                f"{self.path}: there is no held-out data beside this model", hint="give a file to evaluate on."
            )
        if _is_stream(self.recipe):
            return evaluate_stream(self.bundle, self._stream(list(map(str, data)), stores), at_hand)
        examples = list(read_examples(self.recipe, list(map(str, data)))) if data else list(_held_out(stores))
        settings = decode_settings(self.recipe.decode, decode)
        return evaluate_examples(self.bundle, examples, at_hand, decode=settings, lower=lower)

    def info(self) -> dict[str, Any]:
        """What it is: recipe, sizes, scores."""
        files = [file for file in self.path.iterdir() if file.is_file()]
        return {
            "path": str(self.path),
            "recipe": self.recipe.name,
            "task": self.recipe.task,
            "about": self.recipe.about,
            "parameters": self.bundle.num_parameters,
            "bytes": sum(file.stat().st_size for file in files),
            "vocabulary": _sizes(self.bundle.vocabularies),
            "metrics": self.metrics,
        }

    def _stream(self, data: list[str], stores: Path) -> np.ndarray:
        if not data:
            return TokenStore.open(stores / "validation_stream").flat
        tokenizer = self.bundle.vocabularies.targets
        text = read_text(data)
        pieces = [tokenizer.encode("".join(block)) for block in iter(lambda: list(islice(text, 2000)), [])]
        return np.concatenate([np.asarray(piece, dtype=np.int64) for piece in pieces])


def load(path: str | Path) -> Model:
    """A trained model from its directory, after checking that nothing in it is missing or changed."""
    return Model(load_bundle(path), Path(path))


@dataclass(frozen=True)
class Trained:
    """How a training ended: the model, and whether it was stopped before its end."""

    model: Model
    stopped: bool
    step: int


def train(
    task: Task | None = None,
    data: str | Path | Sequence[str | Path] = (),
    *,
    valid: str | Path | Sequence[str | Path] = (),
    recipe: str | Recipe | None = None,
    settings: Sequence[str] = (),
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    report: Reporter | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Trained:
    """Train a recipe on the user's files into the directory `out`.

    `settings` are `section.key=value` overrides. With `resume`, a stopped run goes on where it stood, and only `out`
    is needed. What `out` already holds is never touched unless `resume` or `overwrite` says so.
    """
    if resume and overwrite:
        raise UsageError("--resume goes on with a run, --overwrite throws it away", hint="choose one of them.")
    if resume:
        folder = _existing_run(out)
        chosen, corpus = _reopen(folder, task, recipe, settings)
    else:
        chosen = _chosen_recipe(task, recipe, settings)
        files = _paths(data)
        if not files:
            raise UsageError("there is nothing to train on", hint="give a file, or - for standard input.")
        folder = Path(out) if out is not None else default_folder(chosen, files)
        corpus = _begin(folder, chosen, files, _paths(valid), overwrite=overwrite)
    return _fit(folder, chosen, corpus, resume=resume, report=report or Silence(), stop=stop)


def look(task: Task, data: str | Path | Sequence[str | Path], *, settings: Sequence[str] = ()) -> dict[str, Any]:
    """What is in a file, read as training would read it: sizes, labels, repetitions, and the first example."""
    recipe = _chosen_recipe(task, None, settings)
    examples, sources, labels = 0, Counter[int](), Counter[str]()
    longest = {"source": (0, ""), "target": (0, "")}
    first = None
    for example in read_examples(recipe, _paths(data)):
        first = first or example
        examples += 1
        sources[source_key(example.source or example.target, seed=0)] += 1
        for side in longest:
            length = len(getattr(example, side))
            longest[side] = max(longest[side], (length, example.where))
        if task in ("classify", "tag"):
            labels.update(labels_of(example))
    if first is None:
        raise DataError(f"{', '.join(_paths(data))}: there is no example in it", hint="give a file that has some.")
    sizes = {f"longest_{side}": f"{n:,} at {where}" for side, (n, where) in longest.items() if n}
    facts: dict[str, Any] = {"examples": examples, "repeated_sources": examples - len(sources), **sizes}
    if labels:
        facts |= {"labels": len(labels), "most_frequent": dict(labels.most_common(10))}
    return facts | {"first": f"{first.where}: {shorten(str(first.source), 200)} -> {shorten(str(first.target), 200)}"}


def default_folder(recipe: Recipe, files: Sequence[str]) -> Path:
    """Where a run goes when nobody says: runs/RECIPE-FILE."""
    name = "stdin" if files[0] == STDIN else Path(files[0]).name.split(".")[0]
    return Path("runs") / f"{recipe.name}-{name}"


def decode_settings(recipe: Decode, overrides: dict[str, Any]) -> Decode:
    """The recipe's [decode] with what a call asks for instead."""
    given = {key: value for key, value in overrides.items() if value is not None}
    sampling = {"temperature", "top_k", "top_p"} & given.keys()
    if "beam" in given and "method" not in given:
        given["method"] = "beam"
    if sampling and "method" not in given:
        given["method"] = "sample"
    try:
        return Decode.model_validate(recipe.model_dump() | given)
    except ValueError as error:
        first = error.errors()[0]  # type: ignore[attr-defined]
        name = ".".join(map(str, first["loc"]))
        raise UsageError(
            f"{name}: {first['msg']} (it is {first['input']!r})", hint="see `seqlab predict --help`."
        ) from None


def _chosen_recipe(task: Task | None, recipe: str | Recipe | None, settings: Sequence[str]) -> Recipe:
    if isinstance(recipe, Recipe):
        chosen = recipe
    elif recipe is not None:
        chosen = load_recipe(recipe)
    elif task in DEFAULTS:
        chosen = load_recipe(DEFAULTS[task])
    else:
        raise UsageError(f"there is no task '{task}'", hint=f"there are: {', '.join(DEFAULTS)}.")
    if task is not None and chosen.task != task:
        raise RecipeError(
            f"recipe '{chosen.name}' is for '{chosen.task}', not for '{task}'",
            hint="`seqlab recipes` lists the recipes of each task.",
        )
    return override(chosen, settings)


def _begin(folder: Path, recipe: Recipe, files: list[str], valid: list[str], *, overwrite: bool) -> Corpus:
    """Prepare the data beside the directory and move it there when it is whole: bad input leaves nothing behind."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder}: this is a file", hint="give a directory with --out.")
    if folder.exists() and any(folder.iterdir()):
        if not ((folder / RUN).is_dir() or is_bundle(folder)):
            raise RunError(f"{folder}: this directory holds other files", hint="give another one with --out.")
        if not overwrite:
            raise RunError(
                f"{folder}: this directory already holds a run",
                hint="--resume goes on with it, --overwrite throws it away, --out takes another. It was not touched.",
            )
    if [*files, *valid].count(STDIN) > 1:
        raise UsageError("standard input can be read only once", hint="put one of the two into a file.")
    target = folder.resolve()
    part = target.with_name(f".{target.name}.part")
    missing = [parent for parent in part.parents if not parent.exists()]
    shutil.rmtree(part, ignore_errors=True)
    stores = part / RUN / STORES
    stores.mkdir(parents=True)
    try:
        again, again_valid = ([spool(path, str(part / RUN)) for path in paths] for paths in (files, valid))
        vocabularies = prepare(recipe, again, again_valid, stores)
        corpus = open_corpus(recipe, vocabularies, stores)  # so that a text too short fails here
        (part / RUN / "recipe.toml").write_text(to_toml(recipe), "utf-8")
        (part / RUN / "tokenizer.json").write_text(json.dumps(vocabularies.to_json(), ensure_ascii=False), "utf-8")
        _make_empty(target)
        (part / RUN).replace(target / RUN)
    except DataError as error:
        spooled = str(part / RUN / SPOOLED)
        raise DataError(str(error).replace(spooled, "stdin"), hint=error.hint.replace(spooled, "stdin")) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
        for parent in missing:
            with suppress(OSError):  # it holds the run
                parent.rmdir()
    del corpus
    return open_corpus(recipe, vocabularies, folder / RUN / STORES)


def _make_empty(folder: Path) -> None:
    """A directory with nothing in it; one that is there stays, for it may be a link, or where somebody stands."""
    folder.mkdir(exist_ok=True)
    for inside in folder.iterdir():
        if inside.is_dir() and not inside.is_symlink():
            shutil.rmtree(inside)
        else:
            inside.unlink()


def _existing_run(out: str | Path | None) -> Path:
    if out is None:
        raise UsageError("--resume needs to know which run", hint="give its directory with --out.")
    if not (Path(out) / RUN / "recipe.toml").is_file():
        raise RunError(f"{out}: there is no run here to resume", hint="train without --resume.")
    return Path(out)


def _reopen(
    folder: Path, task: Task | None, recipe: str | Recipe | None, settings: Sequence[str]
) -> tuple[Recipe, Corpus]:
    where = folder / RUN / "recipe.toml"
    stored = parse_recipe(where.read_text("utf-8"), where=str(where))
    name = recipe.name if isinstance(recipe, Recipe) else recipe
    if (task or stored.task) != stored.task or (name or stored.name) not in (stored.name, str(where)):
        raise RunError(
            f"{folder}: this run is of recipe '{stored.name}' for '{stored.task}'",
            hint="resume it without naming another, or train into another directory with --out.",
        )
    tokenizers = folder / RUN / "tokenizer.json"
    vocabularies = read_vocabularies(tokenizers.read_bytes(), tokenizers)
    chosen = override(stored, settings)
    if chosen.model_copy(update={"train": stored.train, "decode": stored.decode}) != stored:
        raise RunError(
            f"{folder}: a run cannot change its model or data halfway",
            hint="only --set train.* and decode.* can change.",
        )
    return chosen, open_corpus(chosen, vocabularies, folder / RUN / STORES)


def _fit(
    folder: Path, recipe: Recipe, corpus: Corpus, *, resume: bool, report: Reporter, stop: Callable[[], bool]
) -> Trained:
    model = build_model(recipe, corpus.vocabularies)
    bundle = Bundle(recipe, corpus.vocabularies, model, {})
    stores = folder / RUN / STORES
    examples = [] if _is_stream(recipe) else list(islice(_held_out(stores), EVALUATED_AT_THE_END))

    def validate() -> dict[str, float]:
        scores = mean_loss(cast(Trainable, model), corpus.validation(), carries=corpus.carries)
        if recipe.task == "translate":
            scores["exact"] = _decoded_exactly(bundle, examples[:DECODED_WHILE_TRAINING])
        return scores

    training = GradientTraining(
        model, corpus.train, recipe.train, validate=validate, folder=folder / RUN, report=report
    )
    if resume and (folder / RUN / "last.safetensors").exists():
        training.resume()
        if training.progress.finished and training.progress.step >= training.num_steps:
            raise RunError(
                f"{folder}: this run has finished all {training.num_steps} steps",
                hint="give it more with --set train.steps=N, or begin anew with --overwrite.",
            )
        training.progress.finished = False
        write_whole(folder / RUN / "recipe.toml", to_toml(recipe).encode())  # what may change has changed
    outcome = training.fit(stop=stop)
    if _is_stream(recipe):
        final = evaluate_stream(bundle, np.asarray(TokenStore.open(stores / "validation_stream").flat), stores)
    else:
        final = evaluate_examples(bundle, examples, stores)
    metrics = {
        "steps": outcome.progress.step,
        "best_step": outcome.progress.best_step,
        "seconds": round(outcome.progress.seconds, 1),
        "peak_memory": peak_memory(),
        "data": corpus.size,
        "python": sys.version.split()[0],
        "validation": final.to_json(),
    }
    finished = Bundle(recipe, corpus.vocabularies, model, metrics)
    save_bundle(finished, folder)
    return Trained(Model(finished, folder), outcome.stopped, outcome.progress.step)


def _decoded_exactly(bundle: Bundle, examples: list[Example]) -> float:
    quick = bundle.recipe.decode.model_copy(update={"method": "greedy"})
    answers = predict(bundle, [str(e.source) for e in examples], decode=quick)
    normalise = bundle.vocabularies.targets.normaliser
    return sum(a.output == normalise(str(e.target)) for a, e in zip(answers, examples, strict=True)) / len(examples)


def _held_out(stores: Path) -> Iterator[Example]:
    with (stores / HELD_OUT).open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                source, target, where = json.loads(line)
            except ValueError:
                raise DataError(
                    f"{stores / HELD_OUT}:{number}: not a held-out example: {shorten(line)}",
                    hint="the file was changed or cut; give a file to evaluate on, or train again.",
                ) from None
            yield Example(_side(source), _side(target), where)


def _side(stored: str | list[str]) -> str | tuple[str, ...]:
    return stored if isinstance(stored, str) else tuple(stored)


def _is_stream(recipe: Recipe) -> bool:
    return recipe.task == "lm" and recipe.data.unit == "stream"


def _paths(data: str | Path | Sequence[str | Path]) -> list[str]:
    return [str(data)] if isinstance(data, str | Path) else [str(path) for path in data]


def _sizes(vocabularies: Vocabularies) -> dict[str, int]:
    parts = {"source": vocabularies.source, "target": vocabularies.target, "labels": vocabularies.labels}
    return {name: len(part) for name, part in parts.items() if part is not None}

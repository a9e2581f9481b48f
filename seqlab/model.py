"""A trained model, as `load` and `train` give it: what can be done with it."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from seqlab.bundle import Bundle, find_bundle, to_int8
from seqlab.codecs.codec import Json, Row
from seqlab.data.in_memory import as_files, inputs_of, is_table
from seqlab.distributed import ALONE, World
from seqlab.errors import UsageError, nearest
from seqlab.explain.view import View
from seqlab.explain.views import explain
from seqlab.metrics.scores import figure_between
from seqlab.padded import Batch, Padded
from seqlab.recipe import DecodeConfig, Recipe
from seqlab.tasks import load_bundle, predict, task_of
from seqlab.tasks.caption import WordMap, word_maps
from seqlab.tasks.examples import answers_in_order, encode_inputs, limit_rows, max_positions
from seqlab.tasks.task import Data, Report, Scoring, Task
from seqlab.tasks.text_generation import score, stream_text

RUN, STORES = "run", "data"


class Model:
    """A trained model: what `load` and `train` give."""

    def __init__(self, bundle: Bundle, path: Path, world: World = ALONE) -> None:
        self.bundle, self.path, self.world = bundle, path, world

    @property
    def recipe(self) -> Recipe:
        return self.bundle.recipe

    @property
    def metrics(self) -> Json:
        """How good it was when it was made."""
        return self.bundle.metrics

    @property
    def task(self) -> Task:
        return task_of(self.recipe)

    def predict(
        self, inputs: Any, *, seed: int = 0, first_row: int = 0, prefix: str = "", **decode: Any
    ) -> Any:
        """A `Prediction` for one input, or a list of them for many; `decode` overrides the recipe's [decode].

        A forecaster is given a file or an array, or a list of these, and answers with a `Forecast` for each.
        """
        if is_table(inputs) and not self.bundle.codec.source.by_line:
            with as_files(inputs) as ((path,),):
                inputs = self.bundle.codec.source.load(path)
        else:
            inputs = inputs_of(inputs, self.recipe.data.source)
        one = _is_one(inputs)
        answers = predict(
            self.bundle,
            [inputs] if one else list(inputs),
            decode=decode_settings(self.recipe.decode, decode),
            seed=seed,
            first_row=first_row,
            prefix=prefix,
            world=self.world,
        )
        return answers[0] if one else list(answers)

    def embed(self, inputs: Any, *, normalise: bool = False) -> Float32[np.ndarray, "N D"]:
        """A vector for each input: what a classifier's head is given, else the mean of the model's states."""
        many = [inputs] if _is_one(inputs) else list(inputs)
        if self.world.size == 1 or not many:
            return embed(self.bundle, many, normalise=normalise)

        def answer(share: Sequence[Any], begin: int) -> list[list[float]]:
            return embed(self.bundle, share, normalise=normalise, first_row=begin).tolist()

        return np.asarray(self.world.shared(many, answer), dtype=np.float32)

    def stream(self, prompt: str, *, seed: int = 0, **decode: Any) -> Iterator[str]:
        """The continuation of a prompt, or the answer to a source, piece by piece as it is written."""
        settings = decode_settings(self.recipe.decode, decode)
        self.task.decoder_start(
            self.bundle, prompt, settings
        )  # a model that writes no text says so at once
        return (
            piece.text
            for piece in stream_text(self.task, self.bundle, prompt, decode=settings, seed=seed)
        )

    def score(self, targets: Sequence[str], sources: Sequence[str] = ()) -> list[float]:
        """The log-probability of each target, given its source where the model reads one."""
        return score(self.task, self.bundle, sources, targets)

    def word_maps(self, picture: Any, caption: str | None = None) -> list[WordMap]:
        """Each token of a caption, the model's own unless told, with where in the picture the model looked for it."""
        text = self.predict(picture).output if caption is None else caption
        return word_maps(self.bundle, [picture], [text])[0]

    def evaluate(self, *data: Any, lower: bool = False, **decode: Any) -> Report:
        """Scores beside baselines on files or data with known answers; without any, on what training held out.

        `decode` overrides the recipe's [decode]; `lower` scores translations without regard to case.
        """
        train = (
            self.stores if self.stores.is_dir() and self.world.leads else None
        )  # baselines are not needed twice
        settings = decode_settings(self.recipe.decode, decode)
        scoring = Scoring(decode=settings, lower=lower, train=train, world=self.world)
        return self.task.evaluate(self.bundle, self.data(*data), scoring)

    @property
    def stores(self) -> Path:
        """Where the data of its training run is, if it is beside it; a baseline that was kept has a run of its own."""
        own = self.path / self.recipe.name / RUN / STORES
        return own if own.is_dir() else self.path / RUN / STORES

    def data(self, *files: Any) -> Data:
        """The data in files with known answers, or as `train` takes it; without any, what training held out."""
        if not files and not self.stores.is_dir():
            message = f"{self.path}: there is no held-out data beside this model"
            raise UsageError(message, hint="give a file with known answers.")
        with as_files(files[0] if len(files) == 1 else files) as (paths,):
            return self.task.data_kind(self.recipe).data(self.task, self.bundle, paths, self.stores)

    def explain(self, given: Any = None, view: str | None = None, **options: Any) -> View:
        """A look inside while it works on an input: `.show()`, `.save(path)`, `.to_html()` and others; see VIEWS."""
        return explain(self.bundle, given, view, folder=self.path, **options)

    def some_batch(self, *data: str | Path, most: int = 8) -> Batch:
        """A few examples of the given files, or of what training held out, as the model reads them."""
        return self.data(*data).batch(self.bundle, most)

    def __str__(self) -> str:
        """A summary: what it is, where it lies, and how good it was on what was held out."""
        held_out = self.metrics.get("validation", {})
        intervals = held_out.get("interval", {})
        scores = [
            f"{name.replace('_', ' ')} {figure_between(name, value, intervals.get(name))}"
            for name, value in held_out.items()
            if isinstance(value, float)
        ]
        size = f"{self.bundle.num_parameters:,} weights"
        lines = [
            f"{self.recipe.name}, a model for '{self.recipe.task}' with {size}, in {self.path}",
            self.recipe.about,
        ]
        if scores:
            lines.append(f"on {held_out.get('examples', 0):,} held out: {', '.join(scores)}")
        return "\n".join(line for line in lines if line)

    def info(self) -> Json:
        """What it is: recipe, sizes, scores."""
        files = [file for file in self.path.iterdir() if file.is_file()]
        return {
            "path": str(self.path),
            "recipe": self.recipe.name,
            "task": self.recipe.task,
            "about": self.recipe.about,
            "parameters": self.bundle.num_parameters,
            "weights": "int8" if self.bundle.int8 else "float32",
            "bytes": sum(file.stat().st_size for file in files),
            "vocabulary": self.bundle.codec.sizes(),
            "metrics": self.metrics,
        }


def load(path: str | Path, *, int8: bool = False, world: World = ALONE) -> Model:
    """A trained model from its directory, after checking that nothing in it is missing or changed.

    Or one that comes with the package, by its name: `load("dates")`; a directory of that name goes first.
    With `int8` its matrices are rounded to bytes, which is faster and nearly as good. Where several processes are
    `joined` in a world, each loads it, and each asks it the same: it works on its share.
    """
    folder = find_bundle(path)
    bundle = load_bundle(folder)
    return Model(to_int8(bundle) if int8 and not bundle.int8 else bundle, folder, world)


def decode_settings(recipe: DecodeConfig, overrides: Json) -> DecodeConfig:
    """The recipe's [decode] with what a call asks for instead."""
    changes = {key: value for key, value in overrides.items() if value is not None}
    if "beam" in changes:
        changes.setdefault("method", "beam")
    elif {"temperature", "top_k", "top_p"} & changes.keys():
        changes.setdefault("method", "sample")
    try:
        return DecodeConfig.model_validate(recipe.model_dump() | changes)
    except ValueError as error:
        first = error.errors()[0]  # type: ignore[attr-defined]
        name = ".".join(map(str, first["loc"]))
        if name not in DecodeConfig.model_fields:
            raise UsageError(
                f"there is no option '{name}'", hint=nearest(name, DecodeConfig.model_fields)
            ) from None
        raise UsageError(
            f"{name}: {first['msg']} (it is {first['input']!r})",
            hint="see `seqlab predict --help`.",
        ) from None


def _is_one(inputs: Any) -> bool:
    """Whether this is one input rather than many."""
    return not isinstance(inputs, list | tuple | Iterator)


def embed(
    bundle: Bundle, inputs: Sequence[Any], *, normalise: bool = False, first_row: int = 0
) -> Float32[np.ndarray, "N D"]:
    """One vector for each input: what a classifier's head is given, else the mean of the states."""
    model = bundle.model
    if not hasattr(model, "vectors"):
        raise UsageError(
            f"a '{bundle.recipe.task}' model has no vector for a text",
            hint="`seqlab predict` answers.",
        )
    if not inputs:
        return np.zeros((0, 0), dtype=np.float32)
    encode = encode_inputs if bundle.codec.reads else _written

    def answer(source: Padded, places: list[int]) -> Tensor:
        vectors = model.vectors(source)
        return torch.nn.functional.normalize(vectors, dim=-1) if normalise else vectors

    vectors = answers_in_order(encode(bundle, inputs, first_row=first_row), answer)
    return torch.stack(vectors).float().numpy(force=True)


def _written(bundle: Bundle, inputs: Sequence[Any], *, first_row: int) -> list[Row]:
    """Texts as a language model writes them; only learned positions limit their length."""
    rows = cast(
        list[Row], bundle.codec.target_tokenizer.encode_all([str(value) for value in inputs])
    )
    if max_positions(bundle.recipe) < sys.maxsize:
        return limit_rows(bundle.recipe, rows, first_row=first_row, limit="max_target")
    return rows

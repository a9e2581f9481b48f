"""A trained model and its methods: predict, evaluate, explain and others."""

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
from seqlab.distributed import SINGLE_PROCESS, World
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
    """A trained model, as `load` and `train` return it."""

    def __init__(self, bundle: Bundle, path: Path, world: World = SINGLE_PROCESS) -> None:
        self.bundle = bundle
        self.path = path
        self.world = world

    @property
    def recipe(self) -> Recipe:
        return self.bundle.recipe

    @property
    def metrics(self) -> Json:
        """The scores and facts that were stored at the end of the training."""
        return self.bundle.metrics

    @property
    def task(self) -> Task:
        return task_of(self.recipe)

    def predict(
        self, inputs: Any, *, seed: int = 0, first_row: int = 0, prefix: str = "", **decode: Any
    ) -> Any:
        """Return a `Prediction` for one input, or a list for several; `decode` overrides the recipe's [decode].

        The inputs of a forecaster are files or arrays, and it returns a `Forecast` for each.
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
        """Return a vector for each input: the input of a classifier's head, else the mean of the model's states."""
        values = [inputs] if _is_one(inputs) else list(inputs)
        if self.world.size == 1 or not values:
            return embed(self.bundle, values, normalise=normalise)

        def answer(share: Sequence[Any], begin: int) -> list[list[float]]:
            return embed(self.bundle, share, normalise=normalise, first_row=begin).tolist()

        return np.asarray(self.world.map_shares(values, answer), dtype=np.float32)

    def stream(self, prompt: str, *, seed: int = 0, **decode: Any) -> Iterator[str]:
        """Yield the continuation of a prompt, or the answer to a source, piece by piece as it is written."""
        settings = decode_settings(self.recipe.decode, decode)
        # raises an error now, not at the first piece, for a model that writes no text
        self.task.decoder_start(self.bundle, prompt, settings)
        return (
            piece.text
            for piece in stream_text(self.task, self.bundle, prompt, decode=settings, seed=seed)
        )

    def score(self, targets: Sequence[str], sources: Sequence[str] = ()) -> list[float]:
        """Return the log-probability of each target, given its source if the model reads one."""
        return score(self.task, self.bundle, sources, targets)

    def word_maps(self, picture: Any, caption: str | None = None) -> list[WordMap]:
        """Return each token of a caption, by default the model's own, with the attention over the picture."""
        text = self.predict(picture).output if caption is None else caption
        return word_maps(self.bundle, [picture], [text])[0]

    def evaluate(self, *data: Any, lower: bool = False, **decode: Any) -> Report:
        """Score the model and its baselines on files or data with known answers, by default on the held-out part.

        `decode` overrides the recipe's [decode]; `lower` ignores case in the scores of translations.
        """
        # only the leading process computes baselines
        train = self.stores if self.stores.is_dir() and self.world.leads else None
        settings = decode_settings(self.recipe.decode, decode)
        scoring = Scoring(decode=settings, lower=lower, train=train, world=self.world)
        return self.task.evaluate(self.bundle, self.data(*data), scoring)

    @property
    def stores(self) -> Path:
        """The directory with the data of its training run, which may be missing; a baseline has a run of its own."""
        own = self.path / self.recipe.name / RUN / STORES
        return own if own.is_dir() else self.path / RUN / STORES

    def data(self, *files: Any) -> Data:
        """Read data with known answers, in the forms that `train` accepts; by default the held-out part."""
        if not files and not self.stores.is_dir():
            raise UsageError(
                f"{self.path}: this model has no held-out data",
                hint="give a file with known answers.",
            )
        with as_files(files[0] if len(files) == 1 else files) as (paths,):
            return self.task.data_kind(self.recipe).data(self.task, self.bundle, paths, self.stores)

    def explain(self, given: Any = None, view: str | None = None, **options: Any) -> View:
        """Show how the model works on an input, as a view with `.show()`, `.save(path)` and `.to_html()`; see VIEWS."""
        return explain(self.bundle, given, view, folder=self.path, **options)

    def some_batch(self, *data: str | Path, most: int = 8) -> Batch:
        """Return the first examples of files, by default of the held-out part, as a batch for the model."""
        return self.data(*data).batch(self.bundle, most)

    def __str__(self) -> str:
        """Summarise the model: its task, its size, its directory and its scores on the held-out part."""
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
        """Return the recipe, sizes and scores of the model."""
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


def load(path: str | Path, *, int8: bool = False, world: World = SINGLE_PROCESS) -> Model:
    """Load a trained model from its directory, after checking that its files are complete and unchanged.

    `path` may also be the name of a model that comes with the package: `load("dates")`; a directory with this name
    has priority. `int8` rounds its matrices to 8 bits, which is faster and nearly as good. If several processes
    form a `worker_group`, each loads the model and calls it with all inputs; each process then answers a share of them.
    """
    folder = find_bundle(path)
    bundle = load_bundle(folder)
    return Model(to_int8(bundle) if int8 and not bundle.int8 else bundle, folder, world)


def decode_settings(recipe: DecodeConfig, overrides: Json) -> DecodeConfig:
    """Return the recipe's [decode] with the options of a call, which also imply the method."""
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
    """Return a vector for each input: the input of a classifier's head, else the mean of the states."""
    model = bundle.model
    if not hasattr(model, "vectors"):
        raise UsageError(
            f"a '{bundle.recipe.task}' model has no vectors of texts",
            hint="use `seqlab predict` without --embed.",
        )
    if not inputs:
        return np.zeros((0, 0), dtype=np.float32)
    encode = encode_inputs if bundle.codec.reads else _encode_targets

    def answer(source: Padded, numbers: list[int]) -> Tensor:
        vectors = model.vectors(source)
        return torch.nn.functional.normalize(vectors, dim=-1) if normalise else vectors

    vectors = answers_in_order(encode(bundle, inputs, first_row=first_row), answer)
    return torch.stack(vectors).float().numpy(force=True)


def _encode_targets(bundle: Bundle, inputs: Sequence[Any], *, first_row: int) -> list[Row]:
    """Encode texts for a language model; only learned positions limit their length."""
    texts = [str(value) for value in inputs]
    rows = cast(list[Row], bundle.codec.target_tokenizer.encode_all(texts))
    if max_positions(bundle.recipe) < sys.maxsize:
        return limit_rows(bundle.recipe, rows, first_row=first_row, limit="max_target")
    return rows

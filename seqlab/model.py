"""A trained model, as `load` and `train` give it: what can be done with it."""

from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float32

from seqlab.assemble.corpus import held_out, is_stream, read_examples
from seqlab.assemble.vocabularies import Vocabularies
from seqlab.bundle import Bundle, find_bundle, load_bundle, to_int8
from seqlab.captions import WordMap, word_maps
from seqlab.data.lines import read_text
from seqlab.data.sources import Picture
from seqlab.data.store import TokenStore
from seqlab.device import tensor_of
from seqlab.errors import UsageError
from seqlab.evaluate import Report, evaluate_examples, evaluate_stream, evaluate_windows, example_batches
from seqlab.explain.view import View
from seqlab.explain.views import explain
from seqlab.forecasting import Given, forecast
from seqlab.padded import Batch, Padded
from seqlab.predict import predict, score, stream_text
from seqlab.reading import Prediction, Source, embed
from seqlab.recipe import Decode, Recipe
from seqlab.rolling import held_out_windows, windows_of_file
from seqlab.training.world import ALONE, World

RUN, STORES = "run", "data"


class Model:
    """A trained model: what `load` and `train` give."""

    def __init__(self, bundle: Bundle, path: Path, world: World = ALONE) -> None:
        self.bundle, self.path, self.world = bundle, path, world

    @property
    def recipe(self) -> Recipe:
        return self.bundle.recipe

    @property
    def metrics(self) -> dict[str, Any]:
        """How good it was when it was made."""
        return self.bundle.metrics

    def predict(
        self,
        inputs: Source | Given | Sequence[Source | Given],
        *,
        seed: int = 0,
        first_row: int = 0,
        prefix: str = "",
        **decode: Any,
    ) -> Any:
        """A `Prediction` for one input, or a list of them for many; `decode` overrides the recipe's [decode].

        A forecaster is given a file or an array, or a list of these, and answers with a `Forecast` for each.
        """
        if self.recipe.task == "forecast":
            if isinstance(inputs, list | tuple):
                return [forecast(self.bundle, cast(Given, each)) for each in inputs]
            return forecast(self.bundle, cast(Given, inputs))
        settings = decode_settings(self.recipe.decode, decode)
        one = isinstance(inputs, str | np.ndarray | Picture)
        many = [inputs] if one else list(cast(Sequence[Source], inputs))
        answers: list[Prediction] = predict(
            self.bundle,
            cast(list[Source], many),
            decode=settings,
            seed=seed,
            first_row=first_row,
            prefix=prefix,
            world=self.world,
        )
        return answers[0] if one else answers

    def embed(self, inputs: Source | Sequence[Source], *, normalise: bool = False) -> Float32[np.ndarray, "N D"]:
        """A vector for each input: what a classifier's head is given, else the mean of the model's states."""
        many = [inputs] if isinstance(inputs, str | np.ndarray | Picture) else list(inputs)
        if self.world.size == 1 or not many:
            return embed(self.bundle, cast(list[Source], many), normalise=normalise)

        def answer(share: Sequence[Source], begin: int) -> list[str]:
            vectors = embed(self.bundle, share, normalise=normalise, first_row=begin)
            return [b64encode(vector.tobytes()).decode() for vector in vectors]

        said = self.world.shared(cast(list[Source], many), answer)
        return np.stack([np.frombuffer(b64decode(vector), dtype=np.float32) for vector in said])

    def stream(self, prompt: str, *, seed: int = 0, **decode: Any) -> Iterator[str]:
        """A language model's continuation of a prompt, piece by piece."""
        if self.recipe.task != "lm":
            raise UsageError(f"a '{self.recipe.task}' model continues no text", hint="only an 'lm' model can stream.")
        pieces = stream_text(self.bundle, prompt, decode=decode_settings(self.recipe.decode, decode), seed=seed)
        return (piece.text for piece in pieces)

    def score(self, targets: Sequence[str], sources: Sequence[str] = ()) -> list[float]:
        """The log-probability of each target, given its source where the model reads one."""
        return score(self.bundle, sources, targets)

    def word_maps(self, picture: Source, caption: str | None = None) -> list[WordMap]:
        """Each token of a caption, the model's own unless told, with where in the picture the model looked for it."""
        said = self.predict(picture).output if caption is None else caption
        return word_maps(self.bundle, [picture], [said])[0]

    def evaluate(self, *data: str | Path, lower: bool = False, **decode: Any) -> Report:
        """Scores beside floors on files with known answers; without files, on what training held out.

        `decode` overrides the recipe's [decode]; `lower` scores translations without regard to case.
        """
        stores = self.path / RUN / STORES
        at_hand = stores if stores.is_dir() and self.world.leads else None  # floors are not needed twice
        if not data and not stores.is_dir():
            raise UsageError(
                f"{self.path}: there is no held-out data beside this model", hint="give a file with known answers."
            )
        if self.recipe.task == "forecast":
            if len(data) > 1:
                raise UsageError("a forecaster is evaluated on one file at a time", hint="give one.")
            windows = windows_of_file(self.bundle, str(data[0])) if data else held_out_windows(self.bundle, stores)
            return evaluate_windows(self.bundle, windows, at_hand, world=self.world)
        if is_stream(self.recipe):
            return evaluate_stream(self.bundle, self._stream(list(map(str, data)), stores), at_hand, world=self.world)
        examples = list(read_examples(self.recipe, list(map(str, data)))) if data else list(held_out(stores))
        settings = decode_settings(self.recipe.decode, decode)
        return evaluate_examples(self.bundle, examples, at_hand, decode=settings, lower=lower, world=self.world)

    def explain(self, given: Source | None = None, view: str | None = None, **options: Any) -> View:
        """A look inside while it works on an input: `.show()`, `.save(path)`, `.to_html()` and others; see VIEWS."""
        return explain(self.bundle, given, view, folder=self.path, **options)

    def some_batch(self, *data: str | Path, most: int = 8) -> Batch:
        """A few examples of the given files, or of what training held out, as the model reads them."""
        stores = self.path / RUN / STORES
        if not data and not stores.is_dir():
            said = f"{self.path}: there is no held-out data beside this model"
            raise UsageError(said, hint="give a file with known answers.")
        if self.recipe.task == "forecast":
            windows = windows_of_file(self.bundle, str(data[0])) if data else held_out_windows(self.bundle, stores)
            return windows.batch(np.arange(min(most, len(windows))))
        if is_stream(self.recipe):
            tokens = tensor_of(np.asarray(self._stream(list(map(str, data)), stores)[:257], dtype=np.int64))
            rows = tokens[: len(tokens) // most * most].view(most, -1) if len(tokens) >= 2 * most else tokens[None]
            return Batch(torch.arange(len(rows)), target=Padded.from_rows(list(rows)))
        found = read_examples(self.recipe, list(map(str, data))) if data else held_out(stores)
        return next(example_batches(self.bundle, list(islice(found, most))))

    def info(self) -> dict[str, Any]:
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


def load(path: str | Path, *, int8: bool = False, world: World = ALONE) -> Model:
    """A trained model from its directory, after checking that nothing in it is missing or changed.

    Or one that comes with the package, by its name: `load("dates")`; a directory of that name goes first.
    With `int8` its matrices are rounded to bytes, which is faster and nearly as good. Where several processes are
    `joined` in a world, each loads it, and each asks it the same: it works on its share.
    """
    folder = find_bundle(path)
    bundle = load_bundle(folder)
    return Model(to_int8(bundle) if int8 and not bundle.int8 else bundle, folder, world)


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


def _sizes(vocabularies: Vocabularies) -> dict[str, int]:
    parts = {"source": vocabularies.source, "target": vocabularies.target, "labels": vocabularies.labels}
    return {name: len(part) for name, part in parts.items() if part is not None}

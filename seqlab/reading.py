"""What models that read do when they are used: name a label, tag words, fill blanks, give a vector."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np
import torch
from jaxtyping import Float, Float32, Shaped
from torch import Tensor

from seqlab.assemble.pictured import is_pictured
from seqlab.assemble.vocabularies import Row, padded
from seqlab.bundle import Bundle
from seqlab.data.batching import plan_in_order
from seqlab.data.images import picture_values
from seqlab.data.pictures import load_picture
from seqlab.data.sources import Picture, Vectors
from seqlab.data.vectors import load_vectors
from seqlab.equations.pooling import mean_pool
from seqlab.errors import DataError, SeqlabWarning, UsageError
from seqlab.models.classifier import Classifier, Measurer, Tagger
from seqlab.models.elmo import BidirectionalLanguageModel
from seqlab.models.hidden import HMMTagger
from seqlab.models.interface import Memory
from seqlab.models.language_model import LanguageModel
from seqlab.models.masked import MaskedLanguageModel
from seqlab.padded import Padded
from seqlab.recipe import Image, Recipe, Transformer
from seqlab.text import MASK, SPECIALS

BUDGET = 8192  # tokens read together
CANDIDATES = 5  # guesses shown for a blank

Source = str | tuple[str, ...] | Shaped[np.ndarray, "..."] | Picture


@dataclass(frozen=True)
class Prediction:
    """What a model says to one input: the text of its answer, and what else there is to know about it."""

    input: str
    output: str
    details: dict[str, Any] = field(default_factory=dict)


@torch.inference_mode()
def classify(bundle: Bundle, inputs: Sequence[Source], *, first_row: int = 0) -> list[Prediction]:
    """The likeliest label of each input, with the probability of each."""
    model, names = cast(Classifier, bundle.model), bundle.vocabularies.classes.names
    sources = encode_sources(bundle, inputs, first_row=first_row)
    answers: dict[int, Prediction] = {}
    for rows in batches([len(source) for source in sources]):
        logits = model.head(model.features(padded([sources[row] for row in rows])))[:, 0]
        for row, p in zip(rows, logits.double().softmax(-1), strict=True):
            best = int(p.argmax())
            details = {"probability": float(p[best]), "probabilities": dict(zip(names, p.tolist(), strict=True))}
            answers[row] = Prediction(shown(inputs[row]), names[best], details)
    return [answers[row] for row in range(len(inputs))]


@torch.inference_mode()
def tag(bundle: Bundle, sentences: Sequence[tuple[str, ...] | Vectors], *, first_row: int = 0) -> list[list[str]]:
    """A label for each word or frame; beyond the recipe's longest sentence, the most frequent one."""
    model, vocabularies = cast(Tagger | HMMTagger, bundle.model), bundle.vocabularies
    labels = vocabularies.classes
    sources = encode_sources(bundle, sentences, first_row=first_row)
    tags = [[labels.majority] * len(words) for words in sentences]
    for rows in batches([len(source) for source in sources]):
        source = padded([sources[row] for row in rows])
        best = source.with_values(model.decode(source))
        for row, ids in zip(rows, best.rows(), strict=True):
            words = sentences[row]
            starts = vocabularies.word_starts(words) if isinstance(words, tuple) else range(len(words))
            for place, start in enumerate(starts):
                if start < len(ids):
                    tags[row][place] = labels.names[int(ids[start])]
    return tags


@torch.inference_mode()
def measure(
    bundle: Bundle, sentences: Sequence[tuple[str, ...] | Vectors], *, first_row: int = 0
) -> list[Float32[np.ndarray, "_ _"]]:
    """The numbers of each word or frame; beyond the recipe's longest sentence, those of the training part's mean."""
    model, vocabularies = cast(Measurer, bundle.model), bundle.vocabularies
    assert vocabularies.numbers is not None
    sources = encode_sources(bundle, sentences, first_row=first_row)
    found = [np.tile(np.asarray(vocabularies.numbers.mean, dtype=np.float32), (len(words), 1)) for words in sentences]
    for rows in batches([len(source) for source in sources]):
        said = model.decode(padded([sources[row] for row in rows])).numpy(force=True)
        for row, values in zip(rows, said, strict=True):
            words = sentences[row]
            starts = vocabularies.word_starts(words) if isinstance(words, tuple) else range(len(words))
            there = [(place, start) for place, start in enumerate(starts) if start < len(sources[row])]
            for place, start in there:
                found[row][place] = values[start]
    return found


@torch.inference_mode()
def fill(bundle: Bundle, texts: Sequence[str], *, first_row: int = 0) -> list[Prediction]:
    """Each text with its blanks filled by the likeliest tokens, and the next likeliest for each blank."""
    model, tokenizer = cast(MaskedLanguageModel, bundle.model), bundle.vocabularies.sources
    without = [row for row, text in enumerate(texts) if "[MASK]" not in text and text.strip()]
    if without:
        more = f" (and {len(without) - 1} more)" if len(without) > 1 else ""
        said = f"line {first_row + without[0] + 1}: there is no [MASK] to fill{more}; write one where a word is missing"
        warnings.warn(said, SeqlabWarning, stacklevel=2)
    sources = encode_sources(bundle, texts, first_row=first_row)
    answers: dict[int, Prediction] = {}
    for rows in batches([len(source) for source in sources]):
        source = padded([sources[row] for row in rows])
        features = model.features(source)
        for row, ids, states in zip(rows, source.rows(), features, strict=True):
            blanks = (ids == MASK).nonzero()[:, 0]
            logits = model.head(states[blanks]).double()
            logits[:, : len(SPECIALS)] = -torch.inf  # a blank is never filled with a token that is no text
            best = logits.softmax(-1).topk(min(CANDIDATES, logits.shape[-1] - len(SPECIALS)))
            answers[row] = _filled(texts[row], tokenizer.decode, best.indices.tolist(), best.values.tolist())
    return [answers[row] for row in range(len(texts))]


def _filled(
    text: str, spell: Callable[[list[int]], str], tokens: list[list[int]], probabilities: list[list[float]]
) -> Prediction:
    blanks = [
        [{"token": spell([i]).strip(), "probability": p} for i, p in zip(ids, ps, strict=True)]
        for ids, ps in zip(tokens, probabilities, strict=True)
    ]
    written = text
    for guesses in blanks:
        written = written.replace("[MASK]", str(guesses[0]["token"]), 1)
    return Prediction(text, written, {"blanks": blanks})


@torch.inference_mode()
def embed(
    bundle: Bundle, inputs: Sequence[Source], *, normalise: bool = False, first_row: int = 0
) -> Float32[np.ndarray, "N D"]:
    """One vector for each input: what a classifier's head is given, else the mean of the states."""
    if bundle.recipe.task == "forecast":
        raise UsageError("a forecaster has no vector for a text", hint="`predict MODEL SERIES.csv` forecasts.")
    if not inputs:
        return np.zeros((0, 0), dtype=np.float32)
    encode = _written if bundle.recipe.task == "lm" else _read
    sources = encode(bundle, inputs, first_row)
    vectors: dict[int, Tensor] = {}
    for rows in batches([len(source) for source in sources]):
        pooled = _pooled(bundle, padded([sources[row] for row in rows]))
        if normalise:
            pooled = torch.nn.functional.normalize(pooled, dim=-1)
        vectors |= dict(zip(rows, pooled, strict=True))
    return torch.stack([vectors[row] for row in range(len(sources))]).float().numpy(force=True)


def _written(bundle: Bundle, inputs: Sequence[Source], first_row: int) -> list[Row]:
    """What a language model has written, as its tokens; only positions that were learnt limit how many."""
    rows = cast(list[Row], bundle.vocabularies.targets.encode_all([str(source) for source in inputs]))
    decoder = bundle.recipe.model.decoder
    if isinstance(decoder, Transformer) and decoder.positions == "learned":
        return fit_sources(bundle.recipe, rows, first_row=first_row, limit="max_target")
    return rows


def _read(bundle: Bundle, inputs: Sequence[Source], first_row: int) -> list[Row]:
    """What an encoder reads; a line that a tagger is given is cut at its spaces, as when it is tagged."""
    words = bundle.recipe.task == "tag" and bundle.vocabularies.features is None
    given = [tuple(source.split()) if words and isinstance(source, str) else source for source in inputs]
    return encode_sources(bundle, given, first_row=first_row)


def _pooled(bundle: Bundle, source: Padded) -> Float[Tensor, "B D"]:
    model = bundle.model
    if isinstance(model, Classifier):
        return model.features(source)[:, 0]
    if isinstance(model, LanguageModel):
        context, state = model.decoder.start(Memory(len(source)))
        return mean_pool(model.decoder.features(source.values, context, state).features, source.real)
    if isinstance(model, BidirectionalLanguageModel):
        return mean_pool(model.readers.layers(source)[-1], source.real)
    states = cast(Any, model).encoder(source).states
    return mean_pool(states.values, states.real)


def encode_sources(bundle: Bundle, inputs: Sequence[Source], *, first_row: int) -> list[Row]:
    """What the model reads: a path to a file of vectors is read first, and what is too long is cut or refused."""
    if is_pictured(bundle.recipe):
        inputs = [_picture(source, bundle.recipe.image) for source in inputs]
    elif bundle.vocabularies.features is not None:
        inputs = [load_vectors(source) if isinstance(source, str) else source for source in inputs]
    return fit_sources(bundle.recipe, bundle.vocabularies.encode_sources(inputs), first_row=first_row)


def _picture(source: Source, image: Image | None) -> Picture:
    """A picture from a file or from an array of pixels, in the size that the model knows."""
    if isinstance(source, str):
        return Picture(source, load_picture(source, image))
    return source if isinstance(source, Picture) else Picture("", picture_values(np.asarray(source), "it", image))


def fit_sources(
    recipe: Recipe, sources: list[Row], *, first_row: int, limit: Literal["max_source", "max_target"] = "max_source"
) -> list[Row]:
    """Sources no longer than the model was trained for: cut, with a warning, or refused, as the recipe says."""
    most: int = getattr(recipe.data, limit)
    long = [row for row, source in enumerate(sources) if len(source) > most]
    if not long:
        return sources
    line = first_row + long[0] + 1
    said = f"line {line}: {len(sources[long[0]])} tokens, more than the {most} of data.{limit}"
    if recipe.data.too_long == "refuse":
        raise DataError(said, hint=f"shorten the line, or train with a larger data.{limit}.")
    more = f" (and {len(long) - 1} more)" if len(long) > 1 else ""
    warnings.warn(f"{said}; the rest was not read{more}", SeqlabWarning, stacklevel=2)
    return [source[:most] for source in sources]


def unread(bundle: Bundle, given: Source) -> dict[str, int]:
    """How many tokens at the end of a text the model was not shown, for there are too many; where it read all, none."""
    recipe, most = bundle.recipe, bundle.recipe.data.max_source
    if recipe.task not in ("translate", "classify") or bundle.vocabularies.source is None or not isinstance(given, str):
        return {}
    if len(given.encode("utf-8", "surrogatepass")) + 2 <= most:  # a token is a byte at least, and two may frame a text
        return {}
    more = len(bundle.vocabularies.encode_sources([given])[0]) - most
    return {"unread": more} if more > 0 else {}


def batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Rows of like length together, up to a budget."""
    if lengths:
        for rows in plan_in_order(np.asarray(lengths, dtype=np.int64)[:, None], budget=BUDGET):
            yield rows.tolist()


def shown(source: Source) -> str:
    """A source as text, for whoever reads the answer."""
    if isinstance(source, Picture):
        return source.name
    if isinstance(source, np.ndarray) and source.ndim == 3:
        return f"a picture of {source.shape[0]} x {source.shape[1]}"
    if isinstance(source, np.ndarray):
        return f"{len(source)} frames of {source.shape[1]} features"
    return source if isinstance(source, str) else " ".join(source)

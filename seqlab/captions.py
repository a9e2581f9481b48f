"""Captions: where the model looked for each word, how good they are, and whether it looked at all."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from seqlab.assemble.vocabularies import padded
from seqlab.bundle import Bundle
from seqlab.data.sources import Box, Example, Picture
from seqlab.data.store import TokenStore
from seqlab.errors import UsageError
from seqlab.layers.tap import listening
from seqlab.metrics.bootstrap import bleu_bootstrap
from seqlab.metrics.strings import caption_scores
from seqlab.models.seq2seq import Seq2Seq
from seqlab.padded import Padded
from seqlab.predict import predict
from seqlab.reading import Source, batches, encode_sources
from seqlab.recipe import Decode, Transformer
from seqlab.text import SOS
from seqlab.training.world import ALONE, World

ATTENTION = (".cross.weights", "decoder.attention.weights")  # taps of a decoder that looks at its source
SEED = 1  # of the order in which pictures are shuffled, and of the bootstrap
WordMap = tuple[str, Float[Tensor, "h w"]]


@dataclass(frozen=True)
class Captioned:
    """A picture, what the model says of it, and what people said."""

    picture: Picture
    output: str
    references: tuple[str, ...]
    boxes: tuple[Box, ...] = ()


@dataclass(frozen=True)
class CaptionScores:
    scores: dict[str, Any]
    floors: dict[str, dict[str, float]]
    captioned: tuple[Captioned, ...]
    note: str


def evaluate_captions(
    bundle: Bundle,
    examples: Sequence[Example],
    train: TokenStore | None,
    *,
    loss: Callable[[list[Example]], dict[str, float]],
    decode: Decode | None = None,
    lower: bool = False,
    world: World = ALONE,
) -> CaptionScores:
    """Scores beside two floors: the caption that is most frequent in `train`, and the same model with pictures
    shuffled, which shows whether it looks at all: what it says of one picture is then scored as said of another.

    `loss` gives the mean loss of examples. The gap is how many nats per token it loses by the shuffling, and p how
    likely its BLEU is no better than that.
    """
    captioned = _captioned(bundle, examples, decode, world)
    outputs, known = [each.output for each in captioned], [each.references for each in captioned]

    def scored(said: list[str]) -> dict[str, Any]:
        exact = sum(is_one_of(bundle, *pair) for pair in zip(said, known, strict=True)) / len(said)
        return {"exact": exact, **caption_scores(said, known, lower=lower)}

    scores = scored(outputs) | loss(list(examples))
    floors: dict[str, dict[str, float]] = {}
    notes = []
    if train is None:
        notes.append("the most frequent caption needs the training part, which is not beside this model")
    else:
        constant = bundle.vocabularies.targets.decode(_most_frequent(train))
        floors["most frequent caption"] = _figures(scored([constant] * len(known)))
    if len(captioned) < 2:
        notes.append("a single picture cannot be shuffled")
    else:
        other = shuffled(len(captioned))
        said = [outputs[i] for i in other]
        place = {each.picture.name: other[i] for i, each in enumerate(captioned)}
        elsewhere = [replace(e, source=captioned[place[cast(Picture, e.source).name]].picture) for e in examples]
        blind = loss(elsewhere)
        floors["shuffled pictures"] = _figures(scored(said)) | blind
        scores["likelihood_gap"] = blind["loss"] - scores["loss"]
        scores["bootstrap_p"] = bleu_bootstrap(outputs, said, known, seed=SEED, lower=lower)
    if attends(bundle) and any(each.boxes for each in captioned):
        scores["attention_on_object"] = pointing(bundle, captioned)
    return CaptionScores(scores, floors, tuple(captioned), "; ".join(notes))


def references(bundle: Bundle, examples: Sequence[Example]) -> list[tuple[str, ...]]:
    """The target of each example in the form in which the model writes; of a picture, all that is said of it."""
    normalise, known = bundle.vocabularies.targets.normaliser, defaultdict[str | int, list[str]](list)
    names = [e.source.name if isinstance(e.source, Picture) else row for row, e in enumerate(examples)]
    for name, example in zip(names, examples, strict=True):
        known[name].append(normalise(str(example.target)))
    return [tuple(known[name]) for name in names]


def is_one_of(bundle: Bundle, output: str, known: Sequence[str]) -> bool:
    """Whether a caption is, token by token, one of the known ones."""
    encode = bundle.vocabularies.targets.encode
    return encode(output) in [encode(text) for text in known]


def shuffled(num: int) -> list[int]:
    """Another place for each of `num` places: along one circle through all of them, so that none stays."""
    order = np.random.default_rng(SEED).permutation(num)
    other = np.empty(num, dtype=np.int64)
    other[order] = np.roll(order, 1)
    return other.tolist()


def attends(bundle: Bundle) -> bool:
    """Whether the decoder looks at its source."""
    return bundle.recipe.model.attention is not None or isinstance(bundle.recipe.model.decoder, Transformer)


@torch.inference_mode()
def word_maps(bundle: Bundle, pictures: Sequence[Source], outputs: Sequence[str]) -> list[list[WordMap]]:
    """For each picture and what was said of it, each token with where the decoder looked when it wrote that.

    A map has a weight for each place of the grid and sums to one; of many heads it is the mean in the last layer.
    """
    if not attends(bundle):
        raise UsageError("this model does not attend to its source", hint="a map needs a decoder with attention.")
    model, tokenizer = cast(Seq2Seq, bundle.model), bundle.vocabularies.targets
    sources, written = encode_sources(bundle, list(pictures), first_row=0), tokenizer.encode_all(list(outputs))
    found: dict[int, list[WordMap]] = {}
    for rows in batches([len(source) for source in sources]):
        seen: dict[str, list[Tensor]] = {}

        def keep(name: str, value: Tensor, seen: dict[str, list[Tensor]] = seen) -> Tensor:
            if name.endswith(ATTENTION):
                seen.setdefault(name, []).append(value)
            return value

        memory = model.encoder(padded([sources[row] for row in rows]))
        context, state = model.decoder.start(memory)
        with listening(keep):
            model.decoder.read(Padded.from_rows([[SOS, *written[row]] for row in rows]).values, context, state)
        weights = torch.cat(list(seen.values())[-1], dim=-2)
        weights = weights if weights.dim() == 3 else weights.mean(1)
        height = int(weights.shape[-1] ** 0.5)
        grid = memory.grid or ((height, height) if height**2 == weights.shape[-1] else (1, weights.shape[-1]))
        for row, maps in zip(rows, weights.unflatten(-1, grid), strict=True):
            found[row] = list(zip(tokenizer.pieces(written[row]), maps, strict=False))
    return [found[row] for row in range(len(sources))]


def pointing(bundle: Bundle, captioned: Sequence[Captioned]) -> float:
    """Of the words that name a thing whose place is known, the share whose map has its peak on that thing."""
    maps = word_maps(bundle, [each.picture for each in captioned], [each.output for each in captioned])
    hits = [
        _peaks_in(weights, box)
        for each, words in zip(captioned, maps, strict=True)
        for word, weights in words
        for box in each.boxes
        if word.strip() == box[0]
    ]
    return sum(hits) / max(1, len(hits))


def _peaks_in(weights: Float[Tensor, "h w"], box: Box) -> bool:
    """Whether the middle of the place with the largest weight lies in the box."""
    height, width = weights.shape
    row, column = divmod(int(weights.argmax()), width)
    _, left, top, right, bottom = box
    return left <= (column + 0.5) / width <= right and top <= (row + 0.5) / height <= bottom


def _captioned(bundle: Bundle, examples: Sequence[Example], decode: Decode | None, world: World) -> list[Captioned]:
    pairs = zip(examples, references(bundle, examples), strict=True)
    firsts = {cast(Picture, e.source).name: (e, known) for e, known in pairs}
    answers = predict(bundle, [e.source for e, _ in firsts.values()], decode=decode, world=world)
    return [
        Captioned(cast(Picture, e.source), answer.output, known, e.boxes)
        for (e, known), answer in zip(firsts.values(), answers, strict=True)
    ]


def _most_frequent(train: TokenStore) -> list[int]:
    counts = Counter(train[row].tobytes() for row in range(len(train)))
    return np.frombuffer(counts.most_common(1)[0][0], dtype=np.int64).tolist()


def _figures(scores: dict[str, float | str]) -> dict[str, float]:
    return {name: value for name, value in scores.items() if isinstance(value, float)}

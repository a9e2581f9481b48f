"""The task `caption`: describe a picture in a sentence (S8, S9)."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from seqlab.bundle import Bundle
from seqlab.codecs.codec import Files, Json
from seqlab.codecs.picture import PictureSource
from seqlab.codecs.text import TextTarget
from seqlab.data.example import Box, Example
from seqlab.data.picture_files import read_pictures
from seqlab.data.store import TokenStore
from seqlab.errors import UsageError
from seqlab.metrics.scores import difference, share
from seqlab.metrics.text_scores import bleu, caption_scores
from seqlab.models.seq2seq import Seq2Seq
from seqlab.padded import Padded
from seqlab.recipe import Recipe, TransformerConfig
from seqlab.tasks.caption_page import Captioned, caption_page
from seqlab.tasks.examples import (
    Examples,
    answer_inputs,
    answers_in_order,
    encode_inputs,
    example_loss,
    of_examples,
)
from seqlab.tasks.task import ANSWER_VIEWS, Baselines, Report, Scores, Scoring, Task
from seqlab.tasks.text_generation import (
    build_translator,
    exactly_right,
    references,
    start_translation,
    translate,
    translation_subject,
)
from seqlab.text import SOS
from seqlab.trace import Trace

# the taps with the weights of a decoder's attention to its source
ATTENTION_TAPS = (".cross.weights", "decoder.attention.weights")
# the seed of the order in which pictures are shuffled
SEED = 1
WordMap = tuple[str, Float[Tensor, "h w"]]


def _check(recipe: Recipe) -> None:
    if recipe.source.kind != "vectors":
        raise ValueError(
            "a 'caption' model reads pictures or features: source.kind must be 'vectors'"
        )


def _read(recipe: Recipe, files: Files) -> Iterator[Example]:
    data = recipe.data
    return read_pictures(files, recipe.image, labels=False, source=data.source, target=data.target)


def _evaluate(bundle: Bundle, data: Examples, scoring: Scoring) -> Report:
    """Score captions next to two baselines: the most frequent caption of training, and captions of shuffled pictures.

    The second baseline shows whether the model uses its picture. `likelihood_gap` is the loss that shuffling adds, in
    nats per token; `bootstrap_p` is the probability that the model's BLEU is no better than with shuffled pictures.
    """
    examples, lower = data.all, scoring.lower
    captioned = _captioned(bundle, examples, scoring)
    outputs = [each.output for each in captioned]
    expected = [each.references for each in captioned]

    def exact_matches(texts: list[str]) -> list[bool]:
        return [is_one_of(bundle, *pair) for pair in zip(texts, expected, strict=True)]

    def text_scores(texts: list[str]) -> Json:
        return {
            "exact": sum(exact_matches(texts)) / len(texts),
            **caption_scores(texts, expected, lower=lower),
        }

    scores = text_scores(outputs) | example_loss(bundle, examples, scoring.world)
    own_bleu = bleu(outputs, expected, lower=lower)
    baselines: Baselines = {}
    notes = []
    train = scoring.store("target")
    if train is None:
        notes.append(
            "the most frequent caption needs the training part, which is not beside this model"
        )
    else:
        constant = bundle.codec.target_tokenizer.decode(_most_frequent(train))
        baselines["most frequent caption"] = _floats(text_scores([constant] * len(expected)))
    if len(captioned) < 2:
        notes.append("a single picture cannot be shuffled")
    else:
        order = shuffled(len(captioned))
        texts = [outputs[index] for index in order]
        loss = _loss_of_shuffled(bundle, examples, captioned, order, scoring)
        baselines["shuffled pictures"] = _floats(text_scores(texts)) | loss
        scores["likelihood_gap"] = loss["loss"] - scores["loss"]
        scores["bootstrap_p"] = difference(own_bleu, bleu(texts, expected, lower=lower)).p
    if attends(bundle) and any(each.boxes for each in captioned):
        scores["attention_on_object"] = pointing(bundle, captioned)
    image = bundle.recipe.image
    page = None if image is None else partial(caption_page, captioned, scores, baselines, image)
    # captions of at most three words have no BLEU
    has_bleu = caption_scores([texts[0] for texts in expected], expected)["bleu"]
    return Report(
        "caption",
        len(captioned),
        scores,
        baselines,
        _wrong_captions(bundle, captioned),
        "; ".join(notes),
        page=page,
        by_example=own_bleu if has_bleu else share("exact", exact_matches(outputs)),
    )


def _captioned(bundle: Bundle, examples: list[Example], scoring: Scoring) -> list[Captioned]:
    """Caption each picture once, and return it with all its references."""
    pairs = zip(examples, references(bundle, examples), strict=True)
    by_picture = {example.source.name: (example, texts) for example, texts in pairs}.values()
    answers = answer_inputs(
        translate,
        bundle,
        [example.source for example, _ in by_picture],
        decode=scoring.decode,
        world=scoring.world,
    )
    return [
        Captioned(example.source, answer.output, texts, example.boxes)
        for (example, texts), answer in zip(by_picture, answers, strict=True)
    ]


def _loss_of_shuffled(
    bundle: Bundle,
    examples: list[Example],
    captioned: list[Captioned],
    order: list[int],
    scoring: Scoring,
) -> Scores:
    """Return the loss of the known captions, each with another picture."""
    pictures = {
        each.picture.name: captioned[index].picture
        for each, index in zip(captioned, order, strict=True)
    }
    exchanged = [replace(e, source=pictures[e.source.name]) for e in examples]
    return example_loss(bundle, exchanged, scoring.world)


def _wrong_captions(bundle: Bundle, captioned: list[Captioned]) -> tuple[dict[str, str], ...]:
    """Return the first ten captions that equal none of their references."""
    wrong = (
        {"input": each.picture.name, "output": each.output, "expected": each.references[0]}
        for each in captioned
        if not is_one_of(bundle, each.output, each.references)
    )
    return tuple(islice(wrong, 10))


def is_one_of(bundle: Bundle, output: str, texts: Sequence[str]) -> bool:
    """Whether a caption equals one of these texts, token by token."""
    encode = bundle.codec.target_tokenizer.encode
    return encode(output) in [encode(text) for text in texts]


def shuffled(num: int) -> list[int]:
    """Return a random permutation of `num` numbers without fixed points: one cycle through all of them."""
    order = np.random.default_rng(SEED).permutation(num)
    permutation = np.empty(num, dtype=np.int64)
    permutation[order] = np.roll(order, 1)
    return permutation.tolist()


def attends(bundle: Bundle) -> bool:
    """Whether the decoder attends to its source."""
    return bundle.recipe.model.attention is not None or isinstance(
        bundle.recipe.model.decoder, TransformerConfig
    )


def word_maps(
    bundle: Bundle, pictures: Sequence[Any], outputs: Sequence[str]
) -> list[list[WordMap]]:
    """Return, for each picture and its caption, each token with the attention over the picture when it was written.

    A map has a weight for each location of the grid and sums to one. With several heads, it is their mean in the
    last layer.
    """
    if not attends(bundle):
        raise UsageError(
            "this model does not attend to its source", hint="a map needs a decoder with attention."
        )
    model: Seq2Seq = bundle.model
    tokenizer = bundle.codec.target_tokenizer
    written = tokenizer.encode_all(list(outputs))

    def answer(source: Padded, rows: list[int]) -> Iterator[list[WordMap]]:
        memory = model.encoder(source)
        context, state = model.decoder.start(memory)
        tokens = Padded.from_rows([[SOS, *written[row]] for row in rows]).values
        with Trace().recording() as trace:
            model.decoder.read(tokens, context, state)
        recorded = [steps for name, steps in trace.parts.items() if name.endswith(ATTENTION_TAPS)]
        weights = torch.cat(recorded[-1], dim=-2)
        if weights.dim() > 3:
            weights = weights.mean(1)
        grid = memory.grid or _square_grid(weights.shape[-1])
        for row, maps in zip(rows, weights.unflatten(-1, grid), strict=True):
            yield list(zip(tokenizer.pieces(written[row]), maps, strict=False))

    return answers_in_order(encode_inputs(bundle, pictures), answer)


def _square_grid(num_locations: int) -> tuple[int, int]:
    """Return the sides of a square grid with this many locations, or of one row if there is none."""
    side = int(num_locations**0.5)
    return (side, side) if side**2 == num_locations else (1, num_locations)


def pointing(bundle: Bundle, captioned: Sequence[Captioned]) -> float:
    """Return the share of words for a known object whose attention is largest inside the object's box."""
    pictures = [each.picture for each in captioned]
    maps = word_maps(bundle, pictures, [each.output for each in captioned])
    hits = []
    for each, words in zip(captioned, maps, strict=True):
        for word, weights in words:
            hits += [_peaks_in(weights, box) for box in each.boxes if word.strip() == box[0]]
    return sum(hits) / max(1, len(hits))


def _peaks_in(weights: Float[Tensor, "h w"], box: Box) -> bool:
    """Whether the centre of the location with the largest weight is inside the box."""
    height, width = weights.shape
    row, column = divmod(int(weights.argmax()), width)
    _, left, top, right, bottom = box
    return left <= (column + 0.5) / width <= right and top <= (row + 0.5) / height <= bottom


def _most_frequent(train: TokenStore) -> list[int]:
    """Return the most frequent caption of the training part."""
    counts = Counter(train[row].tobytes() for row in range(len(train)))
    return np.frombuffer(counts.most_common(1)[0][0], dtype=np.int64).tolist()


def _floats(scores: dict[str, float | str]) -> Scores:
    return {name: value for name, value in scores.items() if isinstance(value, float)}


# The source is a picture, or features of it that another network computed.
CAPTION = Task(
    name="caption",
    ladder=("show-and-tell", "show-attend-tell", "caption-transformer"),
    judged_by=("bleu", "chrf"),
    data_kind=of_examples,
    reads=lambda recipe: PictureSource,
    writes=lambda recipe: TextTarget,
    read=_read,
    build=build_translator,
    predict=translate,
    evaluate=_evaluate,
    subject=translation_subject,
    special_settings=("vectors", "image"),
    parts=("encoder", "decoder"),
    check=_check,
    validate=exactly_right,
    decoder_start=start_translation,
    views=lambda bundle: (
        ("maps", *ANSWER_VIEWS, "beam") if attends(bundle) else (*ANSWER_VIEWS, "beam")
    ),
    predict_arguments=" PICTURE",
)

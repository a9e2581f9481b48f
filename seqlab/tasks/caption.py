"""caption: a picture to a sequence (S8, S9)."""

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

ATTENTION = (
    ".cross.weights",
    "decoder.attention.weights",
)  # taps of a decoder that looks at its source
SEED = 1  # of the order in which pictures are shuffled
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
    """Scores beside two baselines: the most frequent caption of training, and the same model on shuffled pictures.

    The second shows whether the model looks at its picture at all. `likelihood_gap` is how many nats per token it
    loses by the shuffling, `bootstrap_p` how likely its BLEU is no better than that.
    """
    examples, lower = data.all, scoring.lower
    captioned = _captioned(bundle, examples, scoring)
    outputs, expected = [each.output for each in captioned], [each.references for each in captioned]

    def right(texts: list[str]) -> list[bool]:
        return [is_one_of(bundle, *pair) for pair in zip(texts, expected, strict=True)]

    def scored(texts: list[str]) -> Json:
        return {
            "exact": sum(right(texts)) / len(texts),
            **caption_scores(texts, expected, lower=lower),
        }

    scores = scored(outputs) | example_loss(bundle, examples, scoring.world)
    own = bleu(outputs, expected, lower=lower)
    baselines: Baselines = {}
    notes = []
    train = scoring.store("target")
    if train is None:
        notes.append(
            "the most frequent caption needs the training part, which is not beside this model"
        )
    else:
        constant = bundle.codec.target_tokenizer.decode(_most_frequent(train))
        baselines["most frequent caption"] = _figures(scored([constant] * len(expected)))
    if len(captioned) < 2:
        notes.append("a single picture cannot be shuffled")
    else:
        other = shuffled(len(captioned))
        texts = [outputs[i] for i in other]
        pictures = {
            each.picture.name: captioned[i].picture
            for each, i in zip(captioned, other, strict=True)
        }
        elsewhere = [replace(e, source=pictures[e.source.name]) for e in examples]
        blind = example_loss(bundle, elsewhere, scoring.world)
        baselines["shuffled pictures"] = _figures(scored(texts)) | blind
        scores["likelihood_gap"] = blind["loss"] - scores["loss"]
        scores["bootstrap_p"] = difference(own, bleu(texts, expected, lower=lower)).p
    if attends(bundle) and any(each.boxes for each in captioned):
        scores["attention_on_object"] = pointing(bundle, captioned)
    wrong = (
        {"input": each.picture.name, "output": each.output, "expected": each.references[0]}
        for each in captioned
        if not is_one_of(bundle, each.output, each.references)
    )
    image = bundle.recipe.image
    page = None if image is None else partial(caption_page, captioned, scores, baselines, image)
    some, note = tuple(islice(wrong, 10)), "; ".join(notes)
    long_enough = caption_scores([texts[0] for texts in expected], expected)[
        "bleu"
    ]  # three words have no BLEU
    by_example = own if long_enough else share("exact", right(outputs))
    return Report(
        "caption", len(captioned), scores, baselines, some, note, page=page, by_example=by_example
    )


def _captioned(bundle: Bundle, examples: list[Example], scoring: Scoring) -> list[Captioned]:
    """Each picture once, with the model's caption and all references."""
    pairs = zip(examples, references(bundle, examples), strict=True)
    last = {e.source.name: (e, texts) for e, texts in pairs}.values()
    answers = answer_inputs(
        translate, bundle, [e.source for e, _ in last], decode=scoring.decode, world=scoring.world
    )
    return [
        Captioned(e.source, answer.output, texts, e.boxes)
        for (e, texts), answer in zip(last, answers, strict=True)
    ]


def is_one_of(bundle: Bundle, output: str, texts: Sequence[str]) -> bool:
    """Whether a caption is, token by token, one of these texts."""
    encode = bundle.codec.target_tokenizer.encode
    return encode(output) in [encode(text) for text in texts]


def shuffled(num: int) -> list[int]:
    """Another place for each of `num` places: along one circle through all of them, so that none stays."""
    order = np.random.default_rng(SEED).permutation(num)
    other = np.empty(num, dtype=np.int64)
    other[order] = np.roll(order, 1)
    return other.tolist()


def attends(bundle: Bundle) -> bool:
    """Whether the decoder looks at its source."""
    return bundle.recipe.model.attention is not None or isinstance(
        bundle.recipe.model.decoder, TransformerConfig
    )


def word_maps(
    bundle: Bundle, pictures: Sequence[Any], outputs: Sequence[str]
) -> list[list[WordMap]]:
    """For each picture and what was said of it, each token with where the decoder looked when it wrote that.

    A map has a weight for each place of the grid and sums to one; of many heads it is the mean in the last layer.
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
        with Trace().recording() as trace:
            model.decoder.read(
                Padded.from_rows([[SOS, *written[row]] for row in rows]).values, context, state
            )
        weights = torch.cat(
            [steps for name, steps in trace.parts.items() if name.endswith(ATTENTION)][-1], dim=-2
        )
        weights = weights if weights.dim() == 3 else weights.mean(1)
        height = int(weights.shape[-1] ** 0.5)
        grid = memory.grid or (
            (height, height) if height**2 == weights.shape[-1] else (1, weights.shape[-1])
        )
        for row, maps in zip(rows, weights.unflatten(-1, grid), strict=True):
            yield list(zip(tokenizer.pieces(written[row]), maps, strict=False))

    return answers_in_order(encode_inputs(bundle, pictures), answer)


def pointing(bundle: Bundle, captioned: Sequence[Captioned]) -> float:
    """Of the words that name a thing whose place is known, the share whose map has its peak on that thing."""
    maps = word_maps(
        bundle, [each.picture for each in captioned], [each.output for each in captioned]
    )
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


def _most_frequent(train: TokenStore) -> list[int]:
    counts = Counter(train[row].tobytes() for row in range(len(train)))
    return np.frombuffer(counts.most_common(1)[0][0], dtype=np.int64).tolist()


def _figures(scores: dict[str, float | str]) -> Scores:
    return {name: value for name, value in scores.items() if isinstance(value, float)}


# The source is a picture, or the features that another network computed of it.
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

"""speak: a sequence to real vectors, unaligned (S30). A text becomes frames, and the model says where they end."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
from jaxtyping import Float
from torch import nn

from seqlab.bundle import Bundle
from seqlab.codecs.codec import Codec, Files
from seqlab.codecs.text import TextSource
from seqlab.codecs.vectors import VectorTarget, check_width
from seqlab.data.example import Example
from seqlab.data.store import TokenStore
from seqlab.data.vector_files import read_vectors
from seqlab.layers.stack import CausalStack
from seqlab.metrics.alignment import aligned_distance
from seqlab.models.build import build_encoder
from seqlab.models.recurrent import SourceAttention
from seqlab.models.speaker import Speaker
from seqlab.padded import Padded
from seqlab.recipe import AttentionConfig, Recipe, StackConfig
from seqlab.tasks.examples import (
    Examples,
    answer_inputs,
    answers_in_order,
    encode_inputs,
    example_loss,
    of_examples,
)
from seqlab.tasks.task import Job, Prediction, Report, Scores, Scoring, Task, no_subject

Frames = Float[np.ndarray, "_ _"]


def _check(recipe: Recipe) -> None:
    if not isinstance(recipe.model.decoder, StackConfig) or recipe.model.attention is None:
        raise ValueError(
            "a 'speak' model has a recurrent [model.decoder], and [model.attention] to its source"
        )


def _read(recipe: Recipe, files: Files) -> Iterator[Example]:
    return (
        Example(e.target, e.source, e.where) for e in read_vectors(files, target=recipe.data.target)
    )


def _build(recipe: Recipe, codec: Codec) -> nn.Module:
    settings, stack, scale = (
        recipe.model,
        cast(StackConfig, recipe.model.decoder),
        cast(VectorTarget, codec.target).scale,
    )
    encoder = build_encoder(recipe, codec.source.entry)
    score, inner = (
        cast(AttentionConfig, settings.attention).score,
        settings.embedding + encoder.output_size,
    )
    return Speaker(
        encoder,
        CausalStack(inner, stack, dropout=settings.dropout, name="decoder"),
        SourceAttention(score, stack.size, encoder.output_size, name="decoder.attention"),
        entrance=settings.embedding,
        scale=scale,
        dropout=settings.entrance_dropout,
    )


def _predict(job: Job) -> list[Prediction]:
    """The frames of each text, in the unit of the data; as text, how many they are."""
    model: Speaker = job.bundle.model
    limit = job.bundle.recipe.data.max_target

    def answer(rows: Padded, places: list[int]) -> Iterator[Prediction]:
        frames, ended = model.write(rows, most=limit)
        for place, values, end in zip(places, frames.rows(), ended.tolist(), strict=True):
            details = {"frames": values.tolist(), "ended": end}
            yield Prediction(
                str(job.inputs[place]), f"{len(values)} frames of {model.width} features", details
            )

    return answers_in_order(encode_inputs(job.bundle, job.inputs, first_row=job.first_row), answer)


def _evaluate(bundle: Bundle, data: Examples, scoring: Scoring) -> Report:
    """How far the frames are from the known ones, aligned, beside the mean frame of each symbol."""
    examples, target = data.all, cast(VectorTarget, bundle.codec.target)
    answers = answer_inputs(_predict, bundle, data.sources, world=scoring.world)
    written = [np.asarray(answer.details["frames"]) for answer in answers]
    scores = _scores(target, written, examples) | example_loss(bundle, examples, scoring.world)
    scores["ended"] = sum(answer.details["ended"] for answer in answers) / len(answers)
    texts, frames = scoring.store("source"), scoring.store("target")
    if texts is None or frames is None:
        note = (
            "the mean frame of each symbol needs the training part, which is not beside this model"
        )
        return Report("speak", len(examples), scores, {}, baseline_note=note)
    means = MeanFrames(texts, frames)
    rows = bundle.codec.source.encode(data.sources)
    baseline = _scores(target, [means(list(row)) for row in rows], examples)
    return Report("speak", len(examples), scores, {"mean frame of each symbol": baseline})


class MeanFrames:
    """The baseline: each symbol is its mean frame in training, for as long as a symbol lasts on average.

    Which frames belong to which symbol is not known, so the frames of a text are shared evenly by its symbols.
    """

    def __init__(self, texts: TokenStore, frames: TokenStore) -> None:
        parts = defaultdict[int, list[Frames]](list)
        for row in range(len(texts)):
            symbols, values = texts[row].tolist(), frames[row]
            for symbol, part in zip(
                symbols, np.array_split(values, max(1, len(symbols))), strict=False
            ):
                parts[symbol].append(part)
        self.means = {symbol: np.concatenate(values).mean(0) for symbol, values in parts.items()}
        self.mean = np.asarray(frames.flat).mean(0)
        self.length = frames.num_tokens / max(1, texts.num_tokens)

    def __call__(self, symbols: Sequence[int]) -> Frames:
        if not symbols:
            return self.mean[None]
        count = max(1, round(self.length * len(symbols)))
        frames: list[Frames] = [
            self.means.get(symbols[k * len(symbols) // count], self.mean) for k in range(count)
        ]
        return np.stack(frames)


def _scores(
    target: VectorTarget, written: Sequence[np.ndarray], examples: Sequence[Example]
) -> Scores:
    """`error`: the mean distance of aligned frames, in deviations; `length_error`: how much too long or too short."""
    mean, deviation = (np.asarray(side) for side in (target.scale.mean, target.scale.deviation))
    pairs = [
        (frames, check_width(target.scale, e.target))
        for frames, e in zip(written, examples, strict=True)
    ]
    errors = [
        aligned_distance((one - mean) / deviation, (other - mean) / deviation)
        for one, other in pairs
    ]
    lengths = [abs(len(one) - len(other)) / len(other) for one, other in pairs]
    return {"error": float(np.mean(errors)), "length_error": float(np.mean(lengths))}


# The file is a table of `.npy` files and texts, or an `.npz`, as for other frames; here the text is the source.
SPEAK = Task(
    name="speak",
    ladder=("speaker",),
    judged_by=("error",),
    data_kind=of_examples,
    reads=lambda recipe: TextSource,
    writes=lambda recipe: VectorTarget,
    read=_read,
    build=_build,
    predict=_predict,
    evaluate=_evaluate,
    subject=no_subject("`predict` gives its frames."),
    parts=("encoder", "decoder"),
    check=_check,
    predict_arguments=' "a text" --json',
)

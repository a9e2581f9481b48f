"""The task `speak`: a text to a sequence of real vectors (frames), whose end the model predicts (S30)."""

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
            "a 'speak' model needs a recurrent [model.decoder], and [model.attention] to its source"
        )


def _read(recipe: Recipe, files: Files) -> Iterator[Example]:
    return (
        Example(e.target, e.source, e.where) for e in read_vectors(files, target=recipe.data.target)
    )


def _build(recipe: Recipe, codec: Codec) -> nn.Module:
    settings = recipe.model
    stack = cast(StackConfig, settings.decoder)
    score = cast(AttentionConfig, settings.attention).score
    encoder = build_encoder(recipe, codec.source.entry)
    inputs = settings.embedding + encoder.output_size
    return Speaker(
        encoder,
        CausalStack(inputs, stack, dropout=settings.dropout, name="decoder"),
        SourceAttention(score, stack.size, encoder.output_size, name="decoder.attention"),
        entrance=settings.embedding,
        scale=cast(VectorTarget, codec.target).scale,
        dropout=settings.entrance_dropout,
    )


def _predict(job: Job) -> list[Prediction]:
    """Predict the frames of each text, in the units of the data; the output text only counts them."""
    model: Speaker = job.bundle.model
    limit = job.bundle.recipe.data.max_target

    def answer(rows: Padded, numbers: list[int]) -> Iterator[Prediction]:
        frames, ended = model.write(rows, most=limit)
        for number, values, end in zip(numbers, frames.rows(), ended.tolist(), strict=True):
            details = {"frames": values.tolist(), "ended": end}
            output = f"{len(values)} frames of {model.width} features"
            yield Prediction(str(job.inputs[number]), output, details)

    return answers_in_order(encode_inputs(job.bundle, job.inputs, first_row=job.first_row), answer)


def _evaluate(bundle: Bundle, data: Examples, scoring: Scoring) -> Report:
    """Score the distance of aligned frames to the known ones, next to the mean frame of each symbol."""
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
    """The baseline: each symbol becomes its mean frame of training, repeated for the mean length of a symbol.

    Which frames belong to which symbol is not known, so the frames of a text are divided evenly among its symbols.
    """

    def __init__(self, texts: TokenStore, frames: TokenStore) -> None:
        parts = defaultdict[int, list[Frames]](list)
        for row in range(len(texts)):
            symbols = texts[row].tolist()
            divided = np.array_split(frames[row], max(1, len(symbols)))
            for symbol, part in zip(symbols, divided, strict=False):
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
    """Return the mean distance of aligned frames in standard deviations, and the mean relative error of the length."""
    mean = np.asarray(target.scale.mean)
    deviation = np.asarray(target.scale.deviation)
    errors, length_errors = [], []
    for frames, example in zip(written, examples, strict=True):
        gold = check_width(target.scale, example.target)
        errors.append(aligned_distance((frames - mean) / deviation, (gold - mean) / deviation))
        length_errors.append(abs(len(frames) - len(gold)) / len(gold))
    return {"error": float(np.mean(errors)), "length_error": float(np.mean(length_errors))}


# The file is a table of `.npy` files and texts, or an `.npz`, as for other frames; the text is the source.
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

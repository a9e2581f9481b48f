"""speak: a sequence to real vectors, unaligned (S30). A text becomes frames, and the model says where they end."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
from jaxtyping import Float
from torch import nn

from seqlab.bundle import Bundle
from seqlab.codecs.codec import Codec, SourceType, TargetType, padded
from seqlab.codecs.text import TextSource
from seqlab.codecs.vectors import VectorTarget
from seqlab.corpus.examples import Corpus
from seqlab.data.sources import Example
from seqlab.data.store import TokenStore
from seqlab.data.vectors import read_vectors
from seqlab.errors import UsageError
from seqlab.layers.stack import CausalStack
from seqlab.metrics.alignment import aligned_distance
from seqlab.models.build import build_encoder
from seqlab.models.recurrent import SourceAttention
from seqlab.models.speaker import Speaker
from seqlab.recipe import Decode, Recipe, Stack
from seqlab.subject import Question, Subject
from seqlab.tasks import checks
from seqlab.tasks.examples import (
    EXAMPLES,
    ask,
    batches,
    encode_inputs,
    example_loss,
    gradient_learner,
    open_store,
    writes_no_text,
)
from seqlab.tasks.task import DataKind, Job, Opening, Prediction, Report, Scoring
from seqlab.training.run import Learner
from seqlab.world import World

Frames = Float[np.ndarray, "_ _"]


class Speak:
    """The file is a table of `.npy` files and texts, or an `.npz`, as for other frames; here the text is the source."""

    name = "speak"
    tuned = ""
    ladder = ("speaker",)
    recurrent = ""
    judged_by = ("error",)
    ask = ' "a text" --json'

    def check(self, recipe: Recipe) -> None:
        checks.check_settings(recipe)
        checks.check_parts(recipe, encoder=True, decoder=True)
        if not isinstance(recipe.model.decoder, Stack) or recipe.model.attention is None:
            raise ValueError("a 'speak' model has a recurrent [model.decoder], and [model.attention] to its source")

    def data_kind(self, recipe: Recipe) -> DataKind:
        return EXAMPLES

    def reads(self, recipe: Recipe) -> SourceType:
        return TextSource

    def writes(self, recipe: Recipe) -> TargetType:
        return VectorTarget

    def read(self, recipe: Recipe, files: Sequence[str]) -> Iterator[Example]:
        return (Example(e.target, e.source, e.where) for e in read_vectors(files, target=recipe.data.target))

    def build(self, recipe: Recipe, codec: Codec) -> nn.Module:
        settings, stack, scale = recipe.model, cast(Stack, recipe.model.decoder), cast(VectorTarget, codec.target).scale
        score = "additive" if settings.attention is None else settings.attention.score
        encoder = build_encoder(recipe, codec.source.entry)
        inner = settings.embedding + encoder.output_size
        return Speaker(
            encoder,
            CausalStack(inner, stack, dropout=settings.dropout, name="decoder"),
            SourceAttention(score, stack.size, encoder.output_size, name="decoder.attention"),
            entrance=settings.embedding,
            mean=scale.mean,
            deviation=scale.deviation,
            dropout=settings.entering,
        )

    def learner(self, recipe: Recipe, network: nn.Module, corpus: Corpus, world: World) -> Learner:
        return gradient_learner(recipe, network, corpus, world)

    def validate(self, bundle: Bundle, data: Any) -> dict[str, float]:
        return {}

    def predict(self, job: Job) -> list[Prediction]:
        """The frames of each text, in the unit of the data; as text, how many they are."""
        model, limit = cast(Speaker, job.bundle.model), job.bundle.recipe.data.max_target
        rows = encode_inputs(job.bundle, job.inputs, first_row=job.first_row)
        answers: dict[int, Prediction] = {}
        for together in batches([len(row) for row in rows]):
            frames, ended = model.write(padded([rows[place] for place in together]), most=limit)
            for place, values, end in zip(together, frames.rows(), ended.tolist(), strict=True):
                details = {"frames": values.tolist(), "ended": end}
                output = f"{len(values)} frames of {model.width} features"
                answers[place] = Prediction(str(job.inputs[place]), output, details)
        return [answers[place] for place in range(len(rows))]

    def evaluate(self, bundle: Bundle, data: Any, scoring: Scoring) -> Report:
        """How far the frames are from the known ones, aligned, beside the mean frame of each symbol."""
        examples, target = data.all, cast(VectorTarget, bundle.codec.target)
        answers = ask(self, bundle, [e.source for e in examples], world=scoring.world)
        written = [np.asarray(answer.details["frames"]) for answer in answers]
        scores = _scores(target, written, examples) | example_loss(bundle, examples, scoring.world)
        scores["ended"] = sum(answer.details["ended"] for answer in answers) / len(answers)
        texts, frames = (open_store(scoring.train, f"train_{side}") for side in ("source", "target"))
        if texts is None or frames is None:
            note = "the mean frame of each symbol needs the training part, which is not beside this model"
            return Report(self.name, len(examples), scores, {}, floor_note=note)
        means = MeanFrames(texts, frames)
        rows = bundle.codec.source.encode([e.source for e in examples])
        floor = _scores(target, [means(cast(Any, row)) for row in rows], examples)
        return Report(self.name, len(examples), scores, {"mean frame of each symbol": floor})

    def opening(self, bundle: Bundle, value: Any, decode: Decode) -> Opening:
        raise writes_no_text(self)

    def subject(self, question: Question) -> Subject:
        raise UsageError(
            "a 'speak' model gives no answer in tokens or labels to look into", hint="`predict` gives its frames."
        )

    def views(self, bundle: Bundle) -> tuple[str, ...]:
        return ()


class MeanFrames:
    """The baseline: each symbol is its mean frame in training, for as long as a symbol lasts on average.

    Which frames belong to which symbol is not known, so the frames of a text are shared evenly by its symbols.
    """

    def __init__(self, texts: TokenStore, frames: TokenStore) -> None:
        parts = defaultdict[int, list[Frames]](list)
        for row in range(len(texts)):
            symbols, values = texts[row].tolist(), frames[row]
            for symbol, part in zip(symbols, np.array_split(values, max(1, len(symbols))), strict=False):
                parts[symbol].append(part)
        self.means = {symbol: np.concatenate(values).mean(0) for symbol, values in parts.items()}
        self.mean = np.asarray(frames.flat).mean(0)
        self.length = frames.num_tokens / max(1, texts.num_tokens)

    def __call__(self, symbols: Sequence[int]) -> Frames:
        if not symbols:
            return self.mean[None]
        count = max(1, round(self.length * len(symbols)))
        frames: list[Frames] = [self.means.get(symbols[k * len(symbols) // count], self.mean) for k in range(count)]
        return np.stack(frames)


def _scores(target: VectorTarget, written: Sequence[np.ndarray], examples: Sequence[Example]) -> dict[str, float]:
    """`error`: the mean distance of aligned frames, in deviations; `length_error`: how much too long or too short."""
    mean, deviation = (np.asarray(side) for side in (target.scale.mean, target.scale.deviation))
    pairs = [(frames, target.scale.check_width(e.target)) for frames, e in zip(written, examples, strict=True)]
    errors = [aligned_distance((one - mean) / deviation, (other - mean) / deviation) for one, other in pairs]
    lengths = [abs(len(one) - len(other)) / len(other) for one, other in pairs]
    return {"error": float(np.mean(errors)), "length_error": float(np.mean(lengths))}

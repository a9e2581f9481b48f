"""One input of a model and the answer it gave, ready to be read again: recorded, differentiated, changed.

Every view begins here. What a search wrote is read once more at all positions (`read` equals repeated `step`), so a
trace does not depend on how the answer was found.
"""

from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor

from seqlab.bundle import Bundle
from seqlab.errors import UsageError
from seqlab.models.interface import Decoder, Memory
from seqlab.padded import Padded
from seqlab.recipe import DecodeConfig
from seqlab.trace import Trace


@dataclass(frozen=True)
class Question:
    """What is to be looked into: an input, and the answer to it, or how that is searched for."""

    bundle: Bundle
    input: Any
    output: str | None
    decode: DecodeConfig
    hypothesis: int  # which one of those that a search finds, the best is 1


@dataclass(frozen=True)
class Subject:
    """What the encoder reads and what the decoder reads, the names of both, and what was answered at each position."""

    bundle: Bundle
    input: Any
    reads: Padded | None
    writes: tuple[int, ...]  # the decoder's tokens, with whatever opens a text
    source: tuple[str, ...]
    written: tuple[str, ...]  # the names of `writes`
    answers: tuple[int, ...]  # the class at each position: the next token, or the label
    answer_names: tuple[str, ...]

    @property
    def sides(self) -> dict[str, tuple[str, ...]]:
        """The names of what was read, written and answered."""
        return {"source": self.source, "written": self.written, "answered": self.answer_names}

    def logits(self) -> Float[Tensor, "T V"]:
        """What the model says at each position."""
        return self.copies(1)[0]

    def copies(self, rows: int) -> Float[Tensor, "B T V"]:
        """The same, so many times over: for a listener who changes each copy in another way."""
        if not self.writes:
            model = self.bundle.model
            return model.head(model.features(self._reads(rows)))
        context, state = self.decoder.start(self.memory(rows))
        return self.decoder.read(torch.tensor([self.writes] * rows), context, state)[0]

    def log_probabilities(self) -> Float[Tensor, " T"]:
        """Of each answer."""
        return (
            self.logits()
            .double()
            .log_softmax(-1)[torch.arange(len(self.answers)), list(self.answers)]
        )

    @property
    def decoder(self) -> Decoder:
        return cast(Decoder, self.bundle.model.decoder)

    def memory(self, rows: int = 1) -> Memory:
        """What the decoder has of the source."""
        return Memory(rows) if self.reads is None else self.bundle.model.encoder(self._reads(rows))

    def _reads(self, rows: int) -> Padded:
        return cast(Padded, self.reads).rows_at(torch.zeros(rows, dtype=torch.long))

    def answering(self, answers: tuple[int, ...], names: tuple[str, ...]) -> "Subject":
        """The same with these answers."""
        return replace(self, answers=answers, answer_names=names)

    @torch.inference_mode()
    def trace(self) -> Trace:
        """Everything inside, while the model reads its input and its own answer."""
        trace = Trace(self.sides)
        with trace.recording():
            self.logits()
        return trace

    def place(self, position: int | None) -> int:
        """A position whose answer is to be explained; without one, the last."""
        if position is None:
            return len(self.answers) - 1
        if not 1 <= position <= len(self.answers):
            there = ", ".join(f"{i + 1} {name}" for i, name in enumerate(self.answer_names[:12]))
            raise UsageError(
                f"there is no position {position} in the answer", hint=f"there are: {there}."
            )
        return position - 1

"""One input of a model with its answer, which views read again: to record, to differentiate, or to change something.

The output of a search is read again at all positions at once (`read` equals repeated `step`), so that a trace does not
depend on the search.
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
    """The input to explain, and its answer, or the settings of the search for one."""

    bundle: Bundle
    input: Any
    output: str | None
    decode: DecodeConfig
    hypothesis: int  # the rank of the answer among the results of the search, from 1


@dataclass(frozen=True)
class Subject:
    """The inputs of encoder and decoder, the names of their tokens, and the answer at each position."""

    bundle: Bundle
    input: Any
    reads: Padded | None
    writes: tuple[int, ...]  # the tokens that the decoder reads, from the start token on
    source: tuple[str, ...]
    written: tuple[str, ...]  # the names of `writes`
    answers: tuple[int, ...]  # the class at each position: the next token, or the label
    answer_names: tuple[str, ...]

    @property
    def sides(self) -> dict[str, tuple[str, ...]]:
        """Return the names of the tokens of the source, of the decoder's input, and of the answers."""
        return {"source": self.source, "written": self.written, "answered": self.answer_names}

    def logits(self) -> Float[Tensor, "T V"]:
        """Return the logits at each position."""
        return self.copies(1)[0]

    def copies(self, rows: int) -> Float[Tensor, "B T V"]:
        """Return the logits of `rows` copies, for a listener that changes each copy in another way."""
        if not self.writes:
            model = self.bundle.model
            return model.head(model.features(self._reads(rows)))
        context, state = self.decoder.start(self.memory(rows))
        return self.decoder.read(torch.tensor([self.writes] * rows), context, state)[0]

    def log_probabilities(self) -> Float[Tensor, " T"]:
        """Return the log-probability of each answer."""
        log_p = self.logits().double().log_softmax(-1)
        return log_p[torch.arange(len(self.answers)), list(self.answers)]

    @property
    def decoder(self) -> Decoder:
        return cast(Decoder, self.bundle.model.decoder)

    def memory(self, rows: int = 1) -> Memory:
        """Return the encoded source."""
        return Memory(rows) if self.reads is None else self.bundle.model.encoder(self._reads(rows))

    def _reads(self, rows: int) -> Padded:
        return cast(Padded, self.reads).rows_at(torch.zeros(rows, dtype=torch.long))

    def answering(self, answers: tuple[int, ...], names: tuple[str, ...]) -> "Subject":
        """Return the subject with other answers."""
        return replace(self, answers=answers, answer_names=names)

    @torch.inference_mode()
    def trace(self) -> Trace:
        """Return the values at all taps while the model reads its input and its answer."""
        trace = Trace(self.sides)
        with trace.recording():
            self.logits()
        return trace

    def place(self, position: int | None) -> int:
        """Return the index of a position, which counts from 1; the default is the last."""
        if position is None:
            return len(self.answers) - 1
        if not 1 <= position <= len(self.answers):
            known = ", ".join(f"{i + 1} {name}" for i, name in enumerate(self.answer_names[:12]))
            raise UsageError(
                f"there is no position {position} in the answer", hint=f"positions are: {known}."
            )
        return position - 1

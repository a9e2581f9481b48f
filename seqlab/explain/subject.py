"""One input of a model and the answer it gave, ready to be read again: listened to, differentiated, changed.

Every view begins here. What a search found is read once more at all positions (`read` equals repeated `step`), so a
trace does not depend on how the answer was found.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from seqlab.assemble.vocabularies import Row, padded
from seqlab.bundle import Bundle
from seqlab.errors import UsageError
from seqlab.explain.trace import Trace
from seqlab.models.interface import Decoder, Memory
from seqlab.padded import Padded
from seqlab.predict import opening, search
from seqlab.reading import Source, encode_sources
from seqlab.recipe import Decode
from seqlab.text import EOS, MASK, SOS


@dataclass(frozen=True)
class Subject:
    """What the encoder reads and what the decoder reads, the names of both, and what was answered at each position."""

    bundle: Bundle
    given: Source
    reads: Padded | None
    writes: tuple[int, ...]  # the decoder's tokens, with whatever opens a text
    source: tuple[str, ...]
    written: tuple[str, ...]  # the names of `writes`
    answers: tuple[int, ...]  # the class at each position: the next token, or the label
    answered: tuple[str, ...]

    def logits(self) -> Float[Tensor, "T V"]:
        """What the model says at each position."""
        return self.copies(1)[0]

    def copies(self, rows: int) -> Float[Tensor, "B T V"]:
        """The same, so many times over: for a listener who changes each copy in another way."""
        if not self.writes:
            model = cast(Any, self.bundle.model)
            return model.head(model.features(self._reads(rows)))
        context, state = self.decoder.start(self.memory(rows))
        return self.decoder.read(torch.tensor([self.writes] * rows), context, state)[0]

    def log_probabilities(self) -> Float[Tensor, " T"]:
        """Of each answer."""
        return self.logits().double().log_softmax(-1)[torch.arange(len(self.answers)), list(self.answers)]

    @property
    def decoder(self) -> Decoder:
        return cast(Decoder, cast(Any, self.bundle.model).decoder)

    def memory(self, rows: int = 1) -> Memory:
        """What the decoder has of the source."""
        return Memory(rows) if self.reads is None else cast(Any, self.bundle.model).encoder(self._reads(rows))

    def _reads(self, rows: int) -> Padded:
        return cast(Padded, self.reads).rows_at(torch.zeros(rows, dtype=torch.long))

    @torch.inference_mode()
    def trace(self) -> Trace:
        """Everything inside, while the model reads its input and its own answer."""
        trace = Trace(list(self.source), list(self.written), list(self.answered))
        with trace.recording():
            self.logits()
        return trace

    def place(self, position: int | None) -> int:
        """A position whose answer is to be explained; without one, the last."""
        if position is None:
            return len(self.answers) - 1
        if not 1 <= position <= len(self.answers):
            there = ", ".join(f"{i + 1} {name}" for i, name in enumerate(self.answered[:12]))
            raise UsageError(f"there is no position {position} in the answer", hint=f"there are: {there}.")
        return position - 1


def subject(
    bundle: Bundle, given: Source, *, output: str | None = None, decode: Decode | None = None, hypothesis: int = 1
) -> Subject:
    """The model before one input. A translation is searched for as the recipe or `decode` says, or is `output`."""
    task = bundle.recipe.task
    if task not in _TASKS:
        other = "the view 'band' shows its forecast." if task == "forecast" else "`predict --embed` gives its vectors."
        raise UsageError(f"a '{task}' model gives no answer in tokens or labels to look into", hint=other)
    return _TASKS[task](_Question(bundle, given, output, decode or bundle.recipe.decode, hypothesis))


@dataclass(frozen=True)
class _Question:
    bundle: Bundle
    given: Source
    output: str | None
    decode: Decode
    hypothesis: int

    def source(self) -> tuple[Padded, tuple[str, ...]]:
        """What the encoder reads, and a name for each position of it."""
        given = self.given
        if self.bundle.recipe.task == "tag" and isinstance(given, str) and self.bundle.vocabularies.features is None:
            given = tuple(given.split())
        row = encode_sources(self.bundle, [given], first_row=0)[0]
        if not len(row):
            raise UsageError("there is nothing in the input to look at", hint="give a text that is not empty.")
        return padded([row]), _names(self.bundle, given, row)


def _continued(question: _Question) -> Subject:
    """A language model that has read a text: at each position the token that came, at the last the likeliest next."""
    bundle = question.bundle
    text = f"{question.given}{question.output or ''}"
    row = opening(bundle, [text])[0]
    now = Subject(bundle, question.given, None, tuple(row), (), _pieces(bundle, row), (*row[1:], 0), ())
    with torch.inference_mode():
        best = int(now.logits()[-1].argmax())
    answers = (*row[1:], best)
    return _answering(now, answers, _pieces(bundle, answers))


def _translated(question: _Question) -> Subject:
    bundle = question.bundle
    reads, names = question.source()
    if question.output is None:
        found = search(bundle, question.given, question.decode)
        if not 1 <= question.hypothesis <= len(found):
            raise UsageError(
                f"there is no hypothesis {question.hypothesis}", hint=f"the search found {len(found)}; 1 is the best."
            )
        tokens = list(found[question.hypothesis - 1].tokens)
    else:
        tokens = bundle.vocabularies.targets.encode(question.output)
    writes, answers = (SOS, *tokens), (*tokens, EOS)
    return Subject(
        bundle, question.given, reads, writes, names, _pieces(bundle, writes), answers, _pieces(bundle, answers)
    )


def _labelled(question: _Question) -> Subject:
    """A classifier or a tagger: the likeliest label, once or at each position."""
    bundle = question.bundle
    if bundle.vocabularies.labels is None:
        raise UsageError("this model measures numbers: it has no labels to look into", hint="`predict` gives them.")
    reads, names = question.source()
    now = Subject(bundle, question.given, reads, (), names, (), (), ())
    with torch.inference_mode():
        best = tuple(now.logits().argmax(-1).tolist())
    labels = bundle.vocabularies.classes.names
    return _answering(now, best, tuple(labels[i] for i in best))


def _filled(question: _Question) -> Subject:
    """A masked model: the likeliest token for each blank, and what stands there elsewhere."""
    bundle = question.bundle
    reads, names = question.source()
    now = Subject(bundle, question.given, reads, (), names, (), (), ())
    with torch.inference_mode():
        best = now.logits().argmax(-1)
    ids = torch.where(reads.values[0] == MASK, best, reads.values[0]).tolist()
    return _answering(now, tuple(ids), tuple(bundle.vocabularies.sources.pieces(ids)))


_TASKS: dict[str, Callable[[_Question], Subject]] = {
    "lm": _continued,
    "translate": _translated,
    "caption": _translated,
    "classify": _labelled,
    "tag": _labelled,
    "mask": _filled,
}


def _answering(now: Subject, answers: tuple[int, ...], names: tuple[str, ...]) -> Subject:
    return Subject(now.bundle, now.given, now.reads, now.writes, now.source, now.written, answers, names)


def _pieces(bundle: Bundle, ids: Sequence[int]) -> tuple[str, ...]:
    return tuple(bundle.vocabularies.targets.pieces(ids))


def _names(bundle: Bundle, given: Source, row: Row) -> tuple[str, ...]:
    """Tokens by their spelling, words as the user wrote them, measured frames by their number."""
    if bundle.vocabularies.features is not None:  # a frame, or what an encoder makes of a picture: a place of its grid
        with torch.inference_mode():
            states = cast(Any, bundle.model).encoder(padded([row])).states
        return tuple(str(place + 1) for place in range(states.values.shape[1]))
    if isinstance(row, np.ndarray) and row.ndim == 2:
        return tuple(cast(tuple[str, ...], given)[: len(row)])
    return tuple(bundle.vocabularies.sources.pieces(list(row)))

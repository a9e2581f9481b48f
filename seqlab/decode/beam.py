"""Beam search over any decoder: many sources at once, K hypotheses each."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqlab.decode.generate import Limits
from seqlab.equations.decoding import length_normalised
from seqlab.errors import UsageError
from seqlab.kernels.search import extend_beams, log_total
from seqlab.models.interface import Decoder, Memory
from seqlab.models.seq2seq import for_search, reorder
from seqlab.padded import Padded
from seqlab.types import BestIds, BestScores, RowIds

BeamScores = Float[Tensor, "B K"]


@dataclass(frozen=True)
class Beam:
    """How wide to search and how to rank the results."""

    width: int = 5
    length_penalty: float = 1.0  # E61's α; 0 ranks by the sum, as the slides do
    no_repeat: int | None = None  # no n-gram of this length occurs twice
    min_length: int = 0  # tokens before the end token may come

    def __post_init__(self) -> None:
        if self.width < 1:
            raise UsageError(
                f"a beam keeps at least 1 hypothesis, not {self.width}",
                hint="5 is a good first try.",
            )
        if not (math.isfinite(self.length_penalty) and self.length_penalty >= 0):
            raise UsageError(
                f"a length penalty is 0 or above, not {self.length_penalty}", hint="1.0 is usual."
            )
        if self.no_repeat is not None and self.no_repeat < 1:
            raise UsageError(
                f"an n-gram has at least 1 token, not {self.no_repeat}", hint="3 is usual."
            )


@dataclass(frozen=True)
class Hypothesis:
    """One output, without its prefix; where it ended, the last log-probability is the end token's."""

    tokens: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    score: float  # by which it is ranked
    ended: bool

    @property
    def log_probability(self) -> float:
        """E57: log p of the tokens, and of the end where there is one."""
        return math.fsum(self.log_probabilities)


class Candidates(NamedTuple):
    """The 2K best extensions of each live beam in one step, kept or not: what the search tree is made of."""

    scores: BestScores
    parents: BestIds  # places in the beam before
    tokens: BestIds
    log_p: BestScores  # of these tokens
    ends: Tensor

    def live(self, width: int) -> Int[Tensor, "B K"]:
        """The places of those that go on: the best that did not end, then the best that did."""
        return self.ends.long().argsort(dim=1, stable=True)[:, :width]


@dataclass(frozen=True)
class BeamResult:
    """The hypotheses of each source, best first, and every step of the search."""

    best: list[list[Hypothesis]]
    steps: list[Candidates]


@torch.inference_mode()
def beam_search(
    decoder: Decoder,
    memory: Memory,
    prefix: Padded,
    beam: Beam,
    limits: Limits,
    *,
    record: bool = False,
) -> BeamResult:
    """Continue each source's prefix by the K likeliest hypotheses until K have ended or the limit is reached.

    There is always a result: where nothing ended, the hypotheses of the moment are it. With `record`, every
    candidate of every step is kept for whoever wants to see the tree.
    """
    search = _Search(decoder, memory, prefix, beam, limits)
    steps = list[Candidates]()
    while len(search.sources):
        candidates = search.step()
        if record:
            steps.append(candidates)
    return BeamResult(
        [sorted(row, key=lambda h: -h.score)[: beam.width] for row in search.results], steps
    )


class _Search:
    """The live beams of all sources that are not done, in step with the decoder's state."""

    def __init__(
        self, decoder: Decoder, memory: Memory, prefix: Padded, beam: Beam, limits: Limits
    ) -> None:
        self.decoder, self.prefix, self.beam, self.limits = (
            for_search(decoder),
            prefix,
            beam,
            limits,
        )
        self.results: list[list[Hypothesis]] = [[] for _ in range(len(prefix))]
        self.sources = list(range(len(prefix)))  # that are not done
        self.lengths: list[int] = prefix.lengths.tolist()
        if not len(prefix):
            return
        self.context, self.state = self.decoder.start(memory)
        # the position of the token that is read next
        self.shared = self.position = min(self.lengths) - 1
        if self.shared:
            _, self.state = self.decoder.read(
                prefix.values[:, : self.shared], self.context, self.state
            )
        self.token = prefix.values[:, self.shared : self.shared + 1]
        self.scores = torch.zeros(len(prefix), 1, dtype=torch.float64)
        self.history = torch.zeros(
            len(prefix), 1, 0, dtype=torch.long
        )  # tokens of each live hypothesis
        self.log_p = torch.zeros(len(prefix), 1, 0, dtype=torch.float64)

    def step(self) -> Candidates:
        """One token further: extend, rank, put aside what ended, drop the sources that are done."""
        beams = self.token.shape
        logits, self.state = self.decoder.step(self.token.flatten(), self.context, self.state)
        totals, never = None, self.limits.never
        self.position += 1
        # new tokens so far; below 0, one is forced
        since = [self.position - self.lengths[source] for source in self.sources]
        forced = self.position < self.prefix.values.shape[1]
        if self.beam.min_length or self.beam.no_repeat or forced:
            totals = log_total(logits)
            logits = self._restricted(
                logits.unflatten(0, beams).clone(), totals.unflatten(0, beams), torch.tensor(since)
            ).flatten(0, 1)
            never = () if forced else never
        extended = extend_beams(
            logits,
            totals,
            self.scores,
            self.history,
            self.log_p,
            width=self.beam.width,
            never=never,
            end=self.limits.end,
            may_end=torch.tensor([new >= 0 for new in since]),
        )
        candidates = Candidates(*extended[:5])
        scores, parents, _, chosen, ends = candidates
        if ends.any():
            for b, place in (ends & (scores > -math.inf))[:, : self.beam.width].nonzero().tolist():
                self._add(b, int(parents[b, place]), scores[b, place], float(chosen[b, place]))
        self.history, self.log_p = extended.history, extended.log_history
        self._advance(extended.live_scores, extended.live_tokens, extended.live_rows, since)
        return candidates

    def _restricted(
        self, logits: Float[Tensor, "B K V"], total: BeamScores, since: RowIds
    ) -> Float[Tensor, "B K V"]:
        """Without what may not come yet: an early end, a repeated n-gram; or all but a forced token."""
        if self.limits.end is not None:
            logits[since < self.beam.min_length, :, self.limits.end] = -math.inf
        if self.beam.no_repeat is not None:
            for b, k, token in self._repeats(self.beam.no_repeat):
                logits[b, k, token] = -math.inf
        if self.position < self.prefix.values.shape[1]:  # a prefix may hold what is never chosen
            logits[:, :, list(self.limits.never)] = -math.inf
            forced = self.prefix.values[self.sources, self.position]
            logits[since < 0] = -math.inf
            logits[since < 0, :, forced[since < 0]] = total[since < 0]
        return logits

    def _repeats(self, n: int) -> Iterator[tuple[int, int, int]]:
        """The tokens that would complete an n-gram that a hypothesis has already."""
        for b, rows in enumerate(self.history.tolist()):
            for k, row in enumerate(rows):
                last = row[len(row) - n + 1 :]
                for start in range(len(row) - n + 1):
                    if row[start : start + n - 1] == last:
                        yield b, k, row[start + n - 1]

    def _add(self, b: int, k: int, score: Tensor, *end: float) -> None:
        """A result, without its prefix; where it ended, with the log-probability of its end."""
        source = self.sources[b]
        num_forced = self.lengths[source] - self.shared - 1
        tokens, log_p = (
            tuple(part[b, k, num_forced:].tolist()) for part in (self.history, self.log_p)
        )
        normal = float(length_normalised(score, len(log_p) + len(end), self.beam.length_penalty))
        self.results[source].append(Hypothesis(tokens, (*log_p, *end), normal, bool(end)))

    def _advance(
        self, scores: BeamScores, tokens: BestIds, rows: BestIds, since: list[int]
    ) -> None:
        """The K best that did not end go on; sources that are done go."""
        going = self._going(scores, since)
        if not all(going):
            self._cut_off(going, scores)
            kept = torch.tensor([b for b, goes in enumerate(going) if goes], dtype=torch.long)
            rows, tokens, scores = reorder((rows, tokens, scores), kept)
            self.history, self.log_p = reorder((self.history, self.log_p), kept)
            self.context = reorder(self.context, kept)
            self.sources = [self.sources[b] for b in kept.tolist()]
        self.state = reorder(self.state, rows.flatten())
        self.token, self.scores = tokens, scores

    def _going(self, scores: BeamScores, since: list[int]) -> list[bool]:
        """A source goes on while it has room, a live hypothesis, and less than K results."""
        alive = (scores[:, 0] > -math.inf).tolist()
        return [
            new + 1 < self.limits.most and lives and len(self.results[source]) < self.beam.width
            for source, new, lives in zip(self.sources, since, alive, strict=True)
        ]

    def _cut_off(self, going: list[bool], scores: BeamScores) -> None:
        """What is still unfinished at the limit: a result only where there are not enough that ended."""
        for b, goes in enumerate(going):
            if goes:
                continue
            for k in (scores[b] > -math.inf).nonzero()[:, 0].tolist():
                if len(self.results[self.sources[b]]) < self.beam.width:
                    self._add(b, k, scores[b, k])

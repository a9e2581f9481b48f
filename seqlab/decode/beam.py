"""Beam search over any decoder: many sources at once, K hypotheses each."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seqlab.decode.generate import Limits
from seqlab.equations.decoding import beam_step, length_normalised
from seqlab.errors import UsageError
from seqlab.kernels.native import largest, log_total
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
        self.sources = torch.arange(len(prefix))  # that are not done
        if not len(prefix):
            return
        self.context, self.state = self.decoder.start(memory)
        self.shared = self.position = (
            int(prefix.lengths.min()) - 1
        )  # the position of the token that is read next
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
        total = log_total(logits)
        self.position += 1
        since = (
            self.position - self.prefix.lengths[self.sources]
        )  # new tokens so far; below 0, one is forced
        forced = self.position < self.prefix.values.shape[1]
        if self.beam.min_length or self.beam.no_repeat or forced:
            logits = self._restricted(
                logits.unflatten(0, beams).clone(), total.unflatten(0, beams), since
            )
            logits = logits.flatten(0, 1)
        best, best_tokens = largest(
            logits, 2 * self.beam.width, () if forced else self.limits.never
        )
        log_p = (best - total[:, None]).unflatten(0, beams)
        scores, parents, places = beam_step(self.scores, log_p, 2 * self.beam.width)
        where = parents * log_p.shape[-1] + places
        tokens, chosen = (
            best_tokens.view(beams[0], -1).gather(1, where),
            log_p.flatten(1).gather(1, where).double(),
        )
        ends = (
            torch.zeros_like(tokens, dtype=torch.bool)
            if self.limits.end is None
            else tokens == self.limits.end
        )
        candidates = Candidates(scores, parents, tokens, chosen, ends & (since >= 0)[:, None])
        for b, place in (
            (candidates.ends & (scores > -math.inf))[:, : self.beam.width].nonzero().tolist()
        ):
            self._add(b, int(parents[b, place]), scores[b, place], float(chosen[b, place]))
        self._advance(candidates, since)
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
        num_forced = int(self.prefix.lengths[source]) - self.shared - 1
        tokens, log_p = (
            tuple(part[b, k, num_forced:].tolist()) for part in (self.history, self.log_p)
        )
        normal = float(length_normalised(score, len(log_p) + len(end), self.beam.length_penalty))
        self.results[source].append(Hypothesis(tokens, (*log_p, *end), normal, bool(end)))

    def _advance(self, candidates: Candidates, since: RowIds) -> None:
        """The K best that did not end go on; sources that are done go."""
        rows, width = self.token.shape
        live = candidates.live(self.beam.width)
        scores, parents, tokens, chosen, ends = (part.gather(1, live) for part in candidates)
        scores = scores.masked_fill(ends, -math.inf)
        self.history = torch.cat([_follow(self.history, parents), tokens[..., None]], dim=2)
        self.log_p = torch.cat([_follow(self.log_p, parents), chosen[..., None]], dim=2)
        going = self._going(scores, since)
        places = parents + torch.arange(0, rows * width, width)[:, None]
        if not going.all():
            self._cut_off(~going, scores)
            kept = going.nonzero()[:, 0]
            places, tokens, scores, self.sources = reorder(
                (places, tokens, scores, self.sources), kept
            )
            self.history, self.log_p = reorder((self.history, self.log_p), kept)
            self.context = reorder(self.context, kept)
        self.state = reorder(self.state, places.flatten())
        self.token, self.scores = tokens, scores

    def _going(self, scores: BeamScores, since: RowIds) -> Bool[Tensor, " B"]:
        """A source goes on while it has room, a live hypothesis, and less than K results."""
        few = torch.tensor([len(self.results[source]) < self.beam.width for source in self.sources])
        return (since + 1 < self.limits.most) & (scores[:, 0] > -math.inf) & few

    def _cut_off(self, done: Tensor, scores: BeamScores) -> None:
        """What is still unfinished at the limit: a result only where there are not enough that ended."""
        for b in done.nonzero()[:, 0].tolist():
            for k in (scores[b] > -math.inf).nonzero()[:, 0].tolist():
                if len(self.results[self.sources[b]]) < self.beam.width:
                    self._add(b, k, scores[b, k])


def _follow(kept: Tensor, parents: Int[Tensor, "B K"]) -> Tensor:
    return kept.gather(1, parents[..., None].expand(-1, -1, kept.shape[2]))

"""Beam search over any decoder: many sources at once, K hypotheses each."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqlab.decode.generate import Limits
from seqlab.equations.decoding import beam_step, length_normalised
from seqlab.errors import UsageError
from seqlab.models.interface import Decoder, Memory, for_search, reorder
from seqlab.padded import Padded
from seqlab.types import State


@dataclass(frozen=True)
class Beam:
    """How wide to search and how to rank what is found."""

    width: int = 5
    length_penalty: float = 1.0  # E61's α; 0 ranks by the sum, as the slides do
    no_repeat: int | None = None  # no n-gram of this length occurs twice
    min_length: int = 0  # tokens before the end token may come

    def __post_init__(self) -> None:
        if self.width < 1:
            raise UsageError(f"a beam keeps at least 1 hypothesis, not {self.width}", hint="5 is a good first try.")
        if not (math.isfinite(self.length_penalty) and self.length_penalty >= 0):
            raise UsageError(f"a length penalty is 0 or above, not {self.length_penalty}", hint="1.0 is usual.")
        if self.no_repeat is not None and self.no_repeat < 1:
            raise UsageError(f"an n-gram has at least 1 token, not {self.no_repeat}", hint="3 is usual.")


@dataclass(frozen=True)
class Hypothesis:
    """One output that was found, without its prefix; where it ended, the last log-probability is the end token's."""

    tokens: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    score: float  # by which it is ranked
    ended: bool

    @property
    def log_probability(self) -> float:
        """E57: log p of the tokens, and of the end where there is one."""
        return math.fsum(self.log_probabilities)


@dataclass(frozen=True)
class BeamStep:
    """All candidates of one step of one source, kept or not: what the search tree is made of."""

    source: int
    parents: tuple[int, ...]  # places in the beam before
    tokens: tuple[int, ...]
    scores: tuple[float, ...]
    places: tuple[int | None, ...]  # in the beam after; None for what ended or was pruned


@dataclass(frozen=True)
class Found:
    """The hypotheses of each source, best first, and every step of the search."""

    best: list[list[Hypothesis]]
    steps: list[BeamStep]


@torch.inference_mode()
def beam_search(
    decoder: Decoder, memory: Memory, prefix: Padded, beam: Beam, limits: Limits, *, record: bool = False
) -> Found:
    """Continue each source's prefix by the K likeliest hypotheses until K have ended or the limit is reached.

    There is always a result: where nothing ended, the hypotheses of the moment are it. With `record`, every
    candidate of every step is kept for whoever wants to see the tree.
    """
    search = _Search(decoder, memory, prefix, beam, limits)
    steps: list[BeamStep] = []
    while search.sources:
        candidates = search.step()
        if record:
            steps.extend(candidates.recorded())
    return Found([sorted(found, key=lambda h: -h.score)[: beam.width] for found in search.found], steps)


class _Search:
    """The live beams of all sources that are not done, in step with the decoder's state."""

    def __init__(self, decoder: Decoder, memory: Memory, prefix: Padded, beam: Beam, limits: Limits) -> None:
        self.decoder, self.prefix, self.beam, self.limits = for_search(decoder), prefix, beam, limits
        self.found: list[list[Hypothesis]] = [[] for _ in range(len(prefix))]
        self.sources = list(range(len(prefix)))
        if not self.sources:
            return
        self.context, state = self.decoder.start(memory)
        shared = int(prefix.lengths.min()) - 1
        if shared:
            _, state = self.decoder.read(prefix.values[:, :shared], self.context, state)
        self.position = shared  # of the token that is read next
        self.state: State = state
        self.token = prefix.values[:, shared : shared + 1]
        self.scores = torch.zeros(len(prefix), 1, dtype=torch.float64)
        self.history = torch.zeros(len(prefix), 1, 0, dtype=torch.long)  # new tokens of each live hypothesis
        self.log_p = torch.zeros(len(prefix), 1, 0, dtype=torch.float64)

    def step(self) -> "_Candidates":
        """One token further: extend, rank, put aside what ended, drop the sources that are done."""
        rows, width = self.token.shape
        logits, self.state = self.decoder.step(self.token.flatten(), self.context, self.state)
        log_p = logits.log_softmax(-1).unflatten(0, (rows, width))
        since = self.position + 1 - self.prefix.lengths[self.sources]  # new tokens so far; below 0, one is forced
        self._restrict(log_p, since)
        scores, parents, tokens = beam_step(self.scores, log_p, 2 * self.beam.width)
        ends = torch.zeros_like(tokens, dtype=torch.bool) if self.limits.end is None else tokens == self.limits.end
        candidates = _Candidates(list(self.sources), scores, parents, tokens, ends & (since >= 0)[:, None])
        self._put_aside(candidates, log_p)
        self._advance(candidates, log_p, since)
        return candidates

    def _restrict(self, log_p: Float[Tensor, "B K V"], since: Int[Tensor, " B"]) -> None:
        """What may not come, in place: forbidden tokens, an early end, a repeated n-gram; or all but a forced one."""
        log_p[:, :, list(self.limits.never)] = -math.inf
        if self.limits.end is not None:
            log_p[since < self.beam.min_length, :, self.limits.end] = -math.inf
        if self.beam.no_repeat is not None:
            for b, k, token in self._repeats(self.beam.no_repeat):
                log_p[b, k, token] = -math.inf
        forced = since < 0
        if forced.any():
            given = self.prefix.values[self.sources, min(self.position + 1, self.prefix.values.shape[1] - 1)]
            log_p[forced] = -math.inf
            log_p[forced, :, given[forced]] = 0.0

    def _repeats(self, n: int) -> Iterator[tuple[int, int, int]]:
        """The tokens that would complete an n-gram that a hypothesis has already."""
        for b, rows in enumerate(self.history.tolist()):
            for k, row in enumerate(rows):
                last = row[len(row) - n + 1 :]
                for start in range(len(row) - n + 1):
                    if row[start : start + n - 1] == last:
                        yield b, k, row[start + n - 1]

    def _put_aside(self, candidates: "_Candidates", log_p: Float[Tensor, "B K V"]) -> None:
        """Hypotheses that end among the first K are results."""
        finite = candidates.scores > -math.inf
        ended = (candidates.ends & finite)[:, : self.beam.width]
        for b, place in ended.nonzero().tolist():
            parent, token = int(candidates.parents[b, place]), int(candidates.tokens[b, place])
            logs = (*self._new(self.log_p, b, parent), float(log_p[b, parent, token]))
            self._add(b, self._new(self.history, b, parent), logs, float(candidates.scores[b, place]), ended=True)

    def _new(self, kept: Tensor, b: int, k: int) -> tuple:
        """What a hypothesis has since the end of its own prefix."""
        forced = int(self.prefix.lengths[self.sources[b]] - self.prefix.lengths.min())
        return tuple(kept[b, k, forced:].tolist())

    def _add(self, b: int, tokens: tuple[int, ...], logs: tuple[float, ...], score: float, *, ended: bool) -> None:
        normal = float(length_normalised(torch.tensor(score, dtype=torch.float64), len(logs), self.beam.length_penalty))
        self.found[self.sources[b]].append(Hypothesis(tokens, logs, normal, ended))

    def _advance(self, candidates: "_Candidates", log_p: Float[Tensor, "B K V"], since: Int[Tensor, " B"]) -> None:
        """The K best that did not end go on; sources that are done go."""
        order = (candidates.ends.long() * len(candidates.tokens[0])).add(torch.arange(candidates.tokens.shape[1]))
        live = order.argsort(dim=1)[:, : self.beam.width]
        parents, tokens = candidates.parents.gather(1, live), candidates.tokens.gather(1, live)
        scores = candidates.scores.gather(1, live).masked_fill(candidates.ends.gather(1, live), -math.inf)
        candidates.live = live
        rows, width = self.token.shape
        chosen = log_p.flatten(1).gather(1, parents * log_p.shape[-1] + tokens).double()
        self.history = torch.cat([_follow(self.history, parents), tokens[..., None]], dim=2)
        self.log_p = torch.cat([_follow(self.log_p, parents), chosen[..., None]], dim=2)
        going = self._going(scores, since)
        self._cut_off(~going, scores, since)
        kept = going.nonzero()[:, 0]
        places = (torch.arange(rows)[:, None] * width + parents)[kept].flatten()
        self.state = reorder(self.state, places)
        if len(kept) < rows:
            self.context = reorder(self.context, kept)
        self.token, self.scores = tokens[kept], scores[kept]
        self.history, self.log_p = self.history[kept], self.log_p[kept]
        self.sources = [self.sources[b] for b in kept.tolist()]
        self.position += 1

    def _going(self, scores: Float[Tensor, "B K"], since: Int[Tensor, " B"]) -> Tensor:
        """A source goes on while it has room, a live hypothesis, and less than K results."""
        few = torch.tensor([len(self.found[source]) < self.beam.width for source in self.sources])
        return (since + 1 < self.limits.most) & (scores > -math.inf).any(1) & few

    def _cut_off(self, done: Tensor, scores: Float[Tensor, "B K"], since: Int[Tensor, " B"]) -> None:
        """What is still unfinished at the limit: a result only where there are not enough that ended."""
        for b in done.nonzero()[:, 0].tolist():
            for k in range(scores.shape[1]):
                if len(self.found[self.sources[b]]) < self.beam.width and scores[b, k] > -math.inf:
                    tokens, logs = self._new(self.history, b, k), self._new(self.log_p, b, k)
                    self._add(b, tokens, logs, float(scores[b, k]), ended=False)


@dataclass
class _Candidates:
    """The 2K best extensions of each source's beam."""

    sources: list[int]
    scores: Float[Tensor, "B k"]
    parents: Int[Tensor, "B k"]
    tokens: Int[Tensor, "B k"]
    ends: Tensor
    live: Int[Tensor, "B K"] | None = None

    def recorded(self) -> Iterator[BeamStep]:
        assert self.live is not None
        for b, source in enumerate(self.sources):
            places: list[int | None] = [None] * self.tokens.shape[1]
            for place, candidate in enumerate(self.live[b].tolist()):
                if not self.ends[b, candidate]:
                    places[candidate] = place
            parents, tokens, scores = (tuple(p[b].tolist()) for p in (self.parents, self.tokens, self.scores))
            yield BeamStep(source, parents, tokens, scores, tuple(places))


def _follow(kept: Tensor, parents: Int[Tensor, "B K"]) -> Tensor:
    return kept.gather(1, parents[..., None].expand(-1, -1, kept.shape[2]))

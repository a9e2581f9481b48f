"""Beam search over any decoder: many sources at once, K hypotheses each."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seqlab.decode.generate import Limits
from seqlab.equations.decoding import beam_step, length_normalised
from seqlab.errors import UsageError
from seqlab.kernels.logits import largest, log_total
from seqlab.models.interface import Decoder, Memory
from seqlab.models.seq2seq import for_search, reorder
from seqlab.padded import Padded
from seqlab.types import State

PerSource = Int[Tensor, " B"]
Scores = Float[Tensor, "B K"]


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
        self.given = prefix.lengths  # of each source's prefix
        self.history = torch.zeros(len(prefix), 1, 0, dtype=torch.long)  # new tokens of each live hypothesis
        self.log_p = torch.zeros(len(prefix), 1, 0, dtype=torch.float64)

    def step(self) -> "_Candidates":
        """One token further: extend, rank, put aside what ended, drop the sources that are done."""
        beams = self.token.shape
        logits, self.state = self.decoder.step(self.token.flatten(), self.context, self.state)
        total = log_total(logits)
        since = self.position + 1 - self.given  # new tokens so far; below 0, one is forced
        logits = self._restricted(logits.unflatten(0, beams), total.unflatten(0, beams), since).flatten(0, 1)
        forced = self.position + 1 < self.prefix.values.shape[1]
        best, best_tokens = largest(logits, 2 * self.beam.width, () if forced else self.limits.never)
        log_p = (best - total[:, None]).unflatten(0, beams)
        scores, parents, places = beam_step(self.scores, log_p, 2 * self.beam.width)
        where = parents * log_p.shape[-1] + places
        tokens, chosen = best_tokens.view(beams[0], -1).gather(1, where), log_p.flatten(1).gather(1, where).double()
        ends = torch.zeros_like(tokens, dtype=torch.bool) if self.limits.end is None else tokens == self.limits.end
        candidates = _Candidates(list(self.sources), scores, parents, tokens, chosen, ends & (since >= 0)[:, None])
        some = bool(candidates.ends.any())
        if some:
            self._put_aside(candidates)
        self._advance(candidates, since, ended=some)
        return candidates

    def _restricted(self, logits: Float[Tensor, "B K V"], total: Scores, since: PerSource) -> Float[Tensor, "B K V"]:
        """Without what may not come yet: an early end, a repeated n-gram; or all but a forced token."""
        forced = self.position + 1 < self.prefix.values.shape[1]
        if not (self.beam.min_length or self.beam.no_repeat or forced):
            return logits
        logits = logits.clone()
        if self.limits.end is not None:
            logits[since < self.beam.min_length, :, self.limits.end] = -math.inf
        if self.beam.no_repeat is not None:
            for b, k, token in self._repeats(self.beam.no_repeat):
                logits[b, k, token] = -math.inf
        if forced:  # by whoever gave the prefix, and he may give what is never chosen
            logits[:, :, list(self.limits.never)] = -math.inf
            given = self.prefix.values[self.sources, self.position + 1]
            logits[since < 0] = -math.inf
            logits[since < 0, :, given[since < 0]] = total[since < 0]
        return logits

    def _repeats(self, n: int) -> Iterator[tuple[int, int, int]]:
        """The tokens that would complete an n-gram that a hypothesis has already."""
        for b, rows in enumerate(self.history.tolist()):
            for k, row in enumerate(rows):
                last = row[len(row) - n + 1 :]
                for start in range(len(row) - n + 1):
                    if row[start : start + n - 1] == last:
                        yield b, k, row[start + n - 1]

    def _put_aside(self, candidates: "_Candidates") -> None:
        """Hypotheses that end among the first K are results."""
        finite = candidates.scores > -math.inf
        ended = (candidates.ends & finite)[:, : self.beam.width]
        for b, place in ended.nonzero().tolist():
            parent = int(candidates.parents[b, place])
            logs = (*self._new(self.log_p, b, parent), float(candidates.log_p[b, place]))
            self._add(b, self._new(self.history, b, parent), logs, float(candidates.scores[b, place]), ended=True)

    def _new(self, kept: Tensor, b: int, k: int) -> tuple:
        """What a hypothesis has since the end of its own prefix."""
        forced = int(self.prefix.lengths[self.sources[b]] - self.prefix.lengths.min())
        return tuple(kept[b, k, forced:].tolist())

    def _add(self, b: int, tokens: tuple[int, ...], logs: tuple[float, ...], score: float, *, ended: bool) -> None:
        normal = float(length_normalised(torch.tensor(score, dtype=torch.float64), len(logs), self.beam.length_penalty))
        self.found[self.sources[b]].append(Hypothesis(tokens, logs, normal, ended))

    def _advance(self, candidates: "_Candidates", since: PerSource, *, ended: bool) -> None:
        """The K best that did not end go on; sources that are done go."""
        rows, width = self.token.shape
        live = torch.arange(candidates.tokens.shape[1]).expand_as(candidates.tokens)
        if ended:
            live = (candidates.ends.long() * candidates.tokens.shape[1]).add(live).argsort(dim=1)
        candidates.live = live = live[:, : self.beam.width]
        parents, tokens, scores, chosen = (
            part.gather(1, live)
            for part in (candidates.parents, candidates.tokens, candidates.scores, candidates.log_p)
        )
        if ended:
            scores = scores.masked_fill(candidates.ends.gather(1, live), -math.inf)
        self.history = torch.cat([_follow(self.history, parents), tokens[..., None]], dim=2)
        self.log_p = torch.cat([_follow(self.log_p, parents), chosen[..., None]], dim=2)
        going = self._going(scores, since)
        places = parents + torch.arange(0, rows * width, width)[:, None]
        if not going.all():
            self._cut_off(~going, scores, since)
            kept = going.nonzero()[:, 0]
            self.context, self.given = reorder(self.context, kept), self.given[kept]
            places, tokens, scores = places[kept], tokens[kept], scores[kept]
            self.history, self.log_p = self.history[kept], self.log_p[kept]
            self.sources = [self.sources[b] for b in kept.tolist()]
        self.state = reorder(self.state, places.flatten())
        self.token, self.scores = tokens, scores
        self.position += 1

    def _going(self, scores: Scores, since: PerSource) -> Bool[Tensor, " B"]:
        """A source goes on while it has room, a live hypothesis, and less than K results."""
        few = torch.tensor([len(self.found[source]) < self.beam.width for source in self.sources])
        return (since + 1 < self.limits.most) & (scores[:, 0] > -math.inf) & few

    def _cut_off(self, done: Tensor, scores: Scores, since: PerSource) -> None:
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
    log_p: Float[Tensor, "B k"]  # of these tokens
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

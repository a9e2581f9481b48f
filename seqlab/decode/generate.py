"""One token after another, from any decoder, by any rule; and how likely a target is."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqlab.equations.decoding import (
    choose,
    keep_top_k,
    keep_top_p,
    sequence_log_probability,
    temper,
)
from seqlab.errors import UsageError
from seqlab.kernels.search import likeliest, log_total, without
from seqlab.models.interface import Decoder, Memory
from seqlab.models.seq2seq import for_search, reorder
from seqlab.padded import Padded
from seqlab.randomness import uniform
from seqlab.types import Logits, PerRow, RowIds

LiveRows = Int[Tensor, " b"]


@dataclass(frozen=True)
class Greedy:
    """E58: the likeliest token. Tokens of `never` are not chosen; `rows` are the rows' numbers in the whole job."""

    def __call__(
        self, logits: Logits, rows: RowIds, step: int | RowIds, never: tuple[int, ...] = ()
    ) -> RowIds:
        return likeliest(logits, never)[0]


@dataclass(frozen=True)
class Sample:
    """E59: a token at random: tempered, then cut to the top k and to the top p of what is left.

    The draw is keyed by (seed, row, step): the same whatever the batch size.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.temperature < float("inf"):
            raise UsageError(
                f"a temperature must be above 0, not {self.temperature}",
                hint="0.7 is a good first try.",
            )
        if self.top_k is not None and self.top_k < 1:
            raise UsageError(
                f"top-k must keep at least 1 token, not {self.top_k}",
                hint="40 is a good first try.",
            )
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UsageError(
                f"top-p is a share above 0 and up to 1, not {self.top_p}",
                hint="0.9 is a good first try.",
            )

    def __call__(
        self, logits: Logits, rows: RowIds, step: int | RowIds, never: tuple[int, ...] = ()
    ) -> RowIds:
        return choose(self.probabilities(logits, never), uniform(rows, self.seed, step))

    def probabilities(self, logits: Logits, never: tuple[int, ...] = ()) -> Logits:
        """What it draws from."""
        logits = temper(without(logits, never), self.temperature)
        if self.top_k is not None:
            logits = keep_top_k(logits, self.top_k)
        if self.top_p is not None:
            logits = keep_top_p(logits, self.top_p)
        return logits.double().softmax(-1)


Rule = Greedy | Sample  # how the next token of each row is chosen


@dataclass(frozen=True)
class Limits:
    """When a row ends: at token `end` (None: never), or after `most` new tokens; and what is never chosen."""

    end: int | None
    most: int
    never: tuple[int, ...] = ()


@dataclass(frozen=True)
class Generated:
    """What was generated for each row, without the prefix and the end token.

    The log-probabilities are those of the chosen tokens, the end token's included where there is one.
    """

    tokens: Padded
    log_probabilities: list[tuple[float, ...]]

    @property
    def log_probability(self) -> PerRow:
        """E57: their sum."""
        return torch.tensor([math.fsum(row) for row in self.log_probabilities], dtype=torch.float64)


@torch.inference_mode()
def generate(
    decoder: Decoder, memory: Memory, prefix: Padded, rule: Rule, limits: Limits, *, rows: RowIds
) -> Generated:
    """Continue each row's prefix (at least one token, such as SOS); a row that never ends is cut, not lost."""
    new: list[list[int]] = [[] for _ in rows]
    logs: list[list[float]] = [[] for _ in rows]
    for places, tokens, log_p in _steps(decoder, memory, prefix, rule, limits, rows=rows):
        for place, token, log in zip(places.tolist(), tokens.tolist(), log_p.tolist(), strict=True):
            logs[place].append(log)
            if token != limits.end:
                new[place].append(token)
    return Generated(Padded.from_rows(new), [tuple(row) for row in logs])


def stream(
    decoder: Decoder, memory: Memory, prefix: Padded, rule: Rule, limits: Limits, *, row: int
) -> Iterator[tuple[int, float]]:
    """The tokens of a single row as they are chosen, the end token too, each with its log-probability."""
    steps = _steps(decoder, memory, prefix, rule, limits, rows=torch.tensor([row]))
    while True:
        with (
            torch.inference_mode()
        ):  # while a step is made: whoever takes the token has a mode of their own
            step = next(steps, None)
        if step is None:
            return
        yield int(step[1][0]), float(step[2][0])


def _steps(
    decoder: Decoder, memory: Memory, prefix: Padded, rule: Rule, limits: Limits, *, rows: RowIds
) -> Iterator[tuple[LiveRows, LiveRows, Float[Tensor, " b"]]]:
    """The live rows' places, their new tokens and the tokens' log-probabilities, step by step.

    The part of the prefixes that all rows have is read at once; where one is longer than another, its tokens are
    forced while the others already choose: so every row is computed as if it were alone.
    """
    if not len(rows):
        return
    shared = int(prefix.lengths.min()) - 1
    # a sample of a seed stays the same only as long as no probability moves, so there 8 bits are too few
    decoder = for_search(decoder, coarse=isinstance(rule, Greedy))
    context, state = decoder.start(memory)
    if shared:
        _, state = decoder.read(prefix.values[:, :shared], context, state)
    places = torch.arange(len(rows))  # of the rows that have not ended
    token = prefix.values[:, shared]
    shortest, longest = shared + 1, int(prefix.lengths.max())
    for position in range(shortest, longest + limits.most):
        logits, state = decoder.step(token, context, state)
        if isinstance(rule, Greedy):
            token, log_p = likeliest(logits, limits.never)
        else:  # new tokens of each row; below 0, one is forced
            since = position - prefix.lengths[places]
            token = rule(logits, rows[places], since, limits.never)
            log_p = logits.gather(-1, token[:, None])[:, 0] - log_total(logits)
        ended = token == (-1 if limits.end is None else limits.end)
        if position + 1 - shortest >= limits.most:
            ended |= position + 1 - prefix.lengths[places] >= limits.most
        if position >= longest:
            yield places, token, log_p
        else:
            free = position >= prefix.lengths[places]
            ended &= free
            yield places[free], token[free], log_p[free]
            token = torch.where(free, token, prefix.values[places, position])
        if ended.any():
            if ended.all():
                return
            live = torch.nonzero(~ended)[:, 0]
            places, token = reorder((places, token), live)
            context, state = reorder(context, live), reorder(state, live)


@torch.inference_mode()
def score(decoder: Decoder, memory: Memory, target: Padded) -> PerRow:
    """E57: the log-probability of each row of `target` after its first token."""
    if target.values.shape[1] < 2:
        return torch.zeros(len(target), dtype=torch.float64)
    context, state = decoder.start(memory)
    logits, _ = decoder.read(target.values[:, :-1], context, state)
    real = Padded(target.values[:, 1:], (target.lengths - 1).clamp(min=0)).real
    return sequence_log_probability(logits.double(), target.values[:, 1:], real)

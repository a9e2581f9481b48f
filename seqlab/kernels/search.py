"""What a search asks of logits, by the native kernels where they are ready, else by torch."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seqlab.equations.decoding import beam_step
from seqlab.kernels import native
from seqlab.types import BestIds, BestScores, Logits, PerRow, RowIds

Histories = Int[Tensor, "B K T"]
LogHistories = Float[Tensor, "B K T"]
NO_TOKEN = -1


class Extended(NamedTuple):
    """A step of a beam search: the 2K best extensions of each source, and the K hypotheses that go on.

    `parents` are places in the beam before, `rows` its rows of all sources together. A hypothesis that ended goes on
    only where there are too few others, with the score -inf.
    """

    scores: BestScores
    parents: BestIds
    tokens: BestIds
    log_p: BestScores  # of these tokens
    ends: Bool[Tensor, "B C"]
    live_scores: BestScores
    live_tokens: BestIds
    live_rows: BestIds
    history: Histories  # their tokens so far
    log_history: LogHistories  # and the log-probabilities of these


def log_total(logits: Logits) -> PerRow:
    """log Σ_v e^logit_v: what is taken from a logit to make it a log-probability."""
    if _native(logits):
        return torch.ops.seqlab.log_total(logits)
    return logits.logsumexp(-1)


def likeliest(logits: Logits, never: tuple[int, ...] = ()) -> tuple[RowIds, PerRow]:
    """E58: the likeliest token of each row that is not one of `never`, and its log-probability."""
    if _native(logits):
        return torch.ops.seqlab.likeliest(logits, never)
    tokens = without(logits, never).argmax(-1)
    return tokens, logits.gather(-1, tokens[:, None])[:, 0] - logits.logsumexp(-1)


def largest(logits: Logits, keep: int, never: tuple[int, ...] = ()) -> tuple[BestScores, BestIds]:
    """The largest logits of each row, and whose they are, largest first; those of `never` count as -inf."""
    keep = min(keep, logits.shape[-1])
    if _native(logits):
        return torch.ops.seqlab.largest(logits, keep, never)
    return without(logits, never).topk(keep, dim=-1)


def without(logits: Logits, never: tuple[int, ...]) -> Logits:
    """The same logits, but -inf for those of `never`."""
    return (
        logits.index_fill(-1, torch.tensor(never, dtype=torch.long), -math.inf) if never else logits
    )


def extend_beams(
    logits: Float[Tensor, "N V"],
    totals: Float[Tensor, " N"] | None,
    scores: BestScores,
    history: Histories,
    log_history: LogHistories,
    *,
    width: int,
    never: tuple[int, ...],
    end: int | None,
    may_end: Bool[Tensor, " B"],
) -> Extended:
    """One step of a beam search (E60): rank the extensions of each live hypothesis, and choose those that go on.

    `totals` are the logits' `log_total`, where these are no longer all that the decoder gave.
    """
    last = NO_TOKEN if end is None else end
    if _native(logits):
        return Extended(
            *torch.ops.seqlab.beam_step(
                logits, totals, scores, history, log_history, width, never, last, may_end
            )
        )
    beams = scores.shape
    best, best_tokens = largest(logits, 2 * width, never)
    log_p = (best - (log_total(logits) if totals is None else totals)[:, None]).unflatten(0, beams)
    ranked, parents, places = beam_step(scores, log_p, 2 * width)
    where = parents * log_p.shape[-1] + places
    tokens = best_tokens.view(beams[0], -1).gather(1, where)
    chosen = log_p.flatten(1).gather(1, where).double()
    ends = (tokens == last) & may_end[:, None]
    live = ends.long().argsort(dim=1, stable=True)[:, :width]
    live_parents, live_tokens = parents.gather(1, live), tokens.gather(1, live)
    rows = live_parents + torch.arange(0, beams.numel(), beams[1])[:, None]
    return Extended(
        ranked,
        parents,
        tokens,
        chosen,
        ends,
        ranked.gather(1, live).masked_fill(ends.gather(1, live), -math.inf),
        live_tokens,
        rows,
        _appended(history, live_parents, live_tokens),
        _appended(log_history, live_parents, chosen.gather(1, live)),
    )


def _appended(kept: Tensor, parents: Tensor, last: Tensor) -> Tensor:
    before = kept.gather(1, parents[..., None].expand(-1, -1, kept.shape[2]))
    return torch.cat([before, last[..., None]], dim=2)


def _native(logits: Tensor) -> bool:
    return logits.dtype == torch.float32 and native.ready()

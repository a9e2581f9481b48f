"""Which part of an input an answer rests on: by the gradient, along a path from nothing, and by leaving out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from numpy.polynomial.legendre import leggauss
from torch import Tensor

from seqlab.errors import UsageError, nearest
from seqlab.explain.tokens import ColouredText
from seqlab.explain.view import View
from seqlab.layers.tap import listening
from seqlab.subject import Subject

Method = Literal["gradient", "integrated", "leave-one-out"]
ENTRANCES = ("encoder.embedding", "encoder.spelling", "decoder.embedding")
COMPLETE = 0.02  # the attributions may miss the difference they explain by this share
STEPS = (32, 64, 128, 256, 512)
BUDGET = 2**15  # tokens to be read in one attempt: 64 steps of 512 tokens, or 512 of 64


@dataclass(frozen=True)
class Saliency:
    """What each token of the source and of the text so far adds to the log-probability of one answer."""

    method: Method
    source: Float[Tensor, " S"]
    written: Float[Tensor, " T"]
    log_probability: float
    baseline: float | None = None  # of the same answer when nothing is read: what integrated gradients begin from
    steps: int = 1

    @property
    def sum(self) -> float:
        return float(self.source.sum() + self.written.sum())

    @property
    def gap(self) -> float:
        """Completeness: by what share the attributions miss the difference that they explain."""
        assert self.baseline is not None
        difference = self.log_probability - self.baseline
        return abs(self.sum - difference) / max(abs(difference), 1e-12)


def saliency(subject: Subject, *, method: Method = "integrated", position: int | None = None) -> Saliency:
    """The share of each token in an answer; integrated gradients (Sundararajan et al. 2017) until they are complete."""
    place = subject.place(position)
    if method == "leave-one-out":
        return _left_out(subject, place)
    one = torch.ones(1, dtype=torch.float64)
    if method == "gradient":
        log_p, shares = _along(subject, place, one, one)
        return Saliency(method, shares["source"], shares["written"], log_p)
    log_p, nothing = (float(_scaled(subject, place, torch.full((1, 1), scale))) for scale in (1.0, 0.0))
    rows = _rows(subject)
    for steps in STEPS:
        if steps > STEPS[0] and steps * _tokens(subject) > BUDGET:
            break
        # Gauss-Legendre points of u on the path u³: close together near nothing, where norms make it steep
        u, weights = _gauss(steps)
        parts = zip(u.split(rows), weights.split(rows), strict=True)
        some = [_along(subject, place, point**3, 3 * point**2 * weight)[1] for point, weight in parts]
        source, written = (torch.stack([part[side] for part in some]).sum(0) for side in ("source", "written"))
        result = Saliency(method, source, written, log_p, nothing, steps)
        if result.gap <= COMPLETE:
            break
    return result


def _tokens(subject: Subject) -> int:
    return len(subject.source) + len(subject.written)


def _rows(subject: Subject) -> int:
    """How many copies of a text are read at once: enough to keep the machine busy, few enough to fit its memory."""
    return max(1, 4096 // _tokens(subject))


def _side(entrance: str) -> str:
    return "written" if entrance == "decoder.embedding" else "source"


def _along(
    subject: Subject, place: int, scales: Float[Tensor, " P"], weights: Float[Tensor, " P"]
) -> tuple[float, dict[str, Tensor]]:
    """Weighted means over points with all embeddings scaled: the answer's log-probability, and embedding · gradient.

    The latter for each source token, whatever door it came in by, and for each token that the decoder has read.
    """
    leaves: dict[str, tuple[Tensor, Tensor]] = {}

    def enter(name: str, value: Tensor) -> Tensor:
        if name not in ENTRANCES:
            return value
        leaf = (value.detach() * scales.to(value.dtype)[:, None, None]).requires_grad_()
        leaves[name] = (value.detach()[0], leaf)
        return leaf

    with torch.enable_grad(), listening(enter):
        log_p = weights @ _log_p(subject, place, len(scales))
    shares = {
        "source": torch.zeros(len(subject.source), dtype=torch.float64),
        "written": torch.zeros(len(subject.written), dtype=torch.float64),
    }
    if not leaves or any(len(value) != len(shares[_side(name)]) for name, (value, _) in leaves.items()):
        raise UsageError("this model has no vector for each token that an answer could rest on", hint="try 'lens'.")
    grads = torch.autograd.grad(log_p, [leaf for _, leaf in leaves.values()], allow_unused=True)
    for (name, (value, _)), grad in zip(leaves.items(), grads, strict=True):
        if grad is not None:
            shares[_side(name)] += (value * grad.sum(0)).sum(-1)
    return float(log_p.detach()), shares


def _log_p(subject: Subject, place: int, rows: int) -> Float[Tensor, " P"]:
    """Of the answer at one place, in each of so many copies of the text."""
    return subject.copies(rows)[:, place].double().log_softmax(-1)[:, subject.answers[place]]


@torch.no_grad()
def _scaled(
    subject: Subject, place: int, scales: Float[Tensor, "P _"], sides: Sequence[str] = ("source", "written")
) -> Float[Tensor, " P"]:
    """The same where embeddings on some sides are scaled: a row of scales for each copy."""

    def scale(name: str, value: Tensor) -> Tensor:
        return value * scales[:, :, None] if name in ENTRANCES and _side(name) in sides else value

    with listening(scale):
        return _log_p(subject, place, len(scales))


def _left_out(subject: Subject, place: int) -> Saliency:
    """By how much the answer's log-probability falls when the embedding of one token is nothing."""
    log_p = float(_scaled(subject, place, torch.ones(1, 1)))
    drops = {}
    for side, tokens in (("source", subject.source), ("written", subject.written)):
        keep = 1 - torch.eye(len(tokens))
        parts = [_scaled(subject, place, some, [side]) for some in keep.split(_rows(subject))] if tokens else []
        drops[side] = log_p - torch.cat([*parts, torch.zeros(0, dtype=torch.float64)])
    return Saliency("leave-one-out", drops["source"], drops["written"], log_p)


def _gauss(points: int) -> tuple[Float[Tensor, " P"], Float[Tensor, " P"]]:
    """Where to look between 0 and 1, and how much each look counts: Gauss-Legendre points."""
    places, weights = map(torch.from_numpy, leggauss(points))
    return (places + 1) / 2, weights / 2


def saliency_view(subject: Subject, *, method: str = "integrated", position: int | None = None) -> View:
    """The input coloured by what each token adds to the log-probability of one answer."""
    if method not in get_args(Method):
        raise UsageError(f"there is no method '{method}'", hint=nearest(method, get_args(Method)))
    place = subject.place(position)
    result = saliency(subject, method=method, position=position)  # type: ignore[arg-type]
    sides = {
        "source": (subject.source, result.source.numpy()),
        "written before": (subject.written[: place + 1], result.written[: place + 1].numpy()),
    }
    answer = subject.answered[place]
    log_p = result.log_probability
    data: dict[str, Any] = {"method": method, "answer": answer, "position": place + 1, "log_probability": log_p}
    parts: list[str | ColouredText] = []
    for name, (tokens, values) in sides.items():
        if tokens:
            data[name.replace(" ", "_")] = (tokens, values)
            text = ColouredText([f"{token} " for token in tokens], values, title=name)
            parts += [f"{name}:", text]
    if result.baseline is not None:
        data |= {"baseline": result.baseline, "completeness_gap": result.gap, "steps": result.steps}
        note = f"sum {result.sum:.3f} of a difference of {log_p - result.baseline:.3f} ({result.steps} steps)"
        if result.gap > COMPLETE:
            note += ": incomplete, the path is too rough; try a shorter text, or --method leave-one-out"
        parts.append(note)
    return View("saliency", f"what {answer!r} rests on ({method})", data, parts)

"""Which part of an input an answer rests on: by the gradient, along a path from nothing, and by leaving out."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from numpy.polynomial.legendre import leggauss
from torch import Tensor

from seqlab.errors import UsageError, one_of
from seqlab.explain.token_figures import ColouredText
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

    source: Float[Tensor, " S"]
    written: Float[Tensor, " T"]
    log_probability: float
    # of the same answer when nothing is read: what integrated gradients begin from
    baseline: float | None = None
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


def saliency(
    subject: Subject, *, method: Method = "integrated", position: int | None = None
) -> Saliency:
    """The share of each token in an answer; integrated gradients (Sundararajan et al. 2017) until they are complete."""
    place = subject.place(position)
    sides = [len(subject.source), len(subject.written)]
    whole = torch.ones(1, sum(sides), dtype=torch.float64)
    with torch.no_grad():
        log_p, nothing = (float(_log_p(subject, place, scales)) for scales in (whole, 0 * whole))
        rows = max(
            1, 4096 // sum(sides)
        )  # copies read at once: enough to keep a machine busy, few enough for memory
        if method == "leave-one-out":
            without = (1 - torch.eye(sum(sides), dtype=torch.float64)).split(rows)
            left = torch.cat([_log_p(subject, place, scales) for scales in without])
            source, written = (log_p - left).split(sides)
            return Saliency(source, written, log_p)
    if method == "gradient":
        source, written = _gradient(subject, place, whole, whole[:, 0]).split(sides)
        return Saliency(source, written, log_p)
    for steps in STEPS:
        if steps > STEPS[0] and steps * sum(sides) > BUDGET:
            break
        # Gauss-Legendre points of u on the path u³: close together near nothing, where norms make it steep
        u, weights = _gauss(steps)
        parts = zip(u.split(rows), (3 * u**2 * weights).split(rows), strict=True)
        shares = [
            _gradient(subject, place, point[:, None] ** 3 * whole, weight)
            for point, weight in parts
        ]
        source, written = torch.stack(shares).sum(0).split(sides)
        result = Saliency(source, written, log_p, nothing, steps)
        if result.gap <= COMPLETE:
            break
    return result


def _gradient(
    subject: Subject, place: int, scales: Float[Tensor, "P N"], weights: Float[Tensor, " P"]
) -> Float[Tensor, " N"]:
    """The weighted sum over points of embedding · gradient, which is the gradient of each token's scale."""
    scales.requires_grad_()
    with torch.enable_grad():
        log_p = weights @ _log_p(subject, place, scales)
    return torch.autograd.grad(log_p, scales)[0].sum(0)


def _log_p(subject: Subject, place: int, scales: Float[Tensor, "P N"]) -> Float[Tensor, " P"]:
    """The log-probability of the answer at one place, in a copy of the text for each row of scales.

    A token's embedding is multiplied by its scale, whatever door it came in by: first the source's, then the text's.
    """
    source, written = scales.split([len(subject.source), len(subject.written)], dim=1)
    fits = []

    def scale(name: str, value: Tensor) -> Tensor:
        if name not in ENTRANCES:
            return value
        factors = written if name == "decoder.embedding" else source
        fits.append(value.shape[1] == factors.shape[1])
        return value * factors.to(value.dtype)[..., None] if fits[-1] else value

    with listening(scale):
        log_p = subject.copies(len(scales))[:, place].double().log_softmax(-1)
    if not fits or not all(fits):
        raise UsageError(
            "this model has no vector for each token that an answer could rest on",
            hint="try 'lens'.",
        )
    return log_p[:, subject.answers[place]]


def _gauss(points: int) -> tuple[Float[Tensor, " P"], Float[Tensor, " P"]]:
    """Where to look between 0 and 1, and how much each look counts: Gauss-Legendre points."""
    places, weights = map(torch.from_numpy, leggauss(points))
    return (places + 1) / 2, weights / 2


def saliency_view(
    subject: Subject, *, method: str = "integrated", position: int | None = None
) -> View:
    """The input coloured by what each token adds to the log-probability of one answer."""
    one_of("method", method, get_args(Method))
    place = subject.place(position)
    result = saliency(subject, method=method, position=position)  # type: ignore[arg-type]
    sides = {
        "source": (subject.source, result.source.numpy()),
        "written before": (subject.written[: place + 1], result.written[: place + 1].numpy()),
    }
    answer = subject.answer_names[place]
    log_p = result.log_probability
    data: dict[str, Any] = {"method": method, "answer": answer, "position": place + 1}
    data["log_probability"] = log_p
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
            note += (
                ": incomplete, the path is too rough; try a shorter text, or --method leave-one-out"
            )
        parts.append(note)
    return View("saliency", f"what {answer!r} rests on ({method})", data, parts)

"""The view `saliency`: the contribution of each input token to an answer.

Methods: gradient times input, integrated gradients, and leaving out one token at a time.
"""

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
EMBEDDINGS = ("encoder.embedding", "encoder.spelling", "decoder.embedding")
COMPLETE = 0.02  # relative gap between the attributions and the difference that they explain
STEPS = (32, 64, 128, 256, 512)
MAX_TOKENS = 2**15  # read in one attempt: 64 steps of 512 tokens, or 512 of 64
BATCH_TOKENS = 4096  # tokens read at once: enough to keep the processor busy, few enough for memory


@dataclass(frozen=True)
class Saliency:
    """What each token of the source and of the output so far adds to the log-probability of one answer."""

    source: Float[Tensor, " S"]
    written: Float[Tensor, " T"]
    log_probability: float
    # the log-probability when all embeddings are zero, where integrated gradients start
    baseline: float | None = None
    steps: int = 1

    @property
    def sum(self) -> float:
        return float(self.source.sum() + self.written.sum())

    @property
    def gap(self) -> float:
        """Return the relative difference between the sum of attributions and what they explain (completeness)."""
        assert self.baseline is not None
        difference = self.log_probability - self.baseline
        return abs(self.sum - difference) / max(abs(difference), 1e-12)


def saliency(
    subject: Subject, *, method: Method = "integrated", position: int | None = None
) -> Saliency:
    """Return the contribution of each token to an answer.

    Integrated gradients (Sundararajan et al. 2017) use more steps until they are complete.
    """
    place = subject.place(position)
    sides = [len(subject.source), len(subject.written)]
    whole = torch.ones(1, sum(sides), dtype=torch.float64)
    rows = max(1, BATCH_TOKENS // sum(sides))
    with torch.no_grad():
        log_p = float(_log_p(subject, place, whole))
        baseline = float(_log_p(subject, place, 0 * whole))
        if method == "leave-one-out":
            masks = (1 - torch.eye(sum(sides), dtype=torch.float64)).split(rows)
            log_p_without = torch.cat([_log_p(subject, place, scales) for scales in masks])
            source, written = (log_p - log_p_without).split(sides)
            return Saliency(source, written, log_p)
    if method == "gradient":
        source, written = _gradient(subject, place, whole, whole[:, 0]).split(sides)
        return Saliency(source, written, log_p)
    for steps in STEPS:
        if steps > STEPS[0] and steps * sum(sides) > MAX_TOKENS:
            break
        # Gauss-Legendre points of u on the path u³: dense near zero, where layer norms make it steep
        u, weights = _gauss_legendre(steps)
        parts = zip(u.split(rows), (3 * u**2 * weights).split(rows), strict=True)
        shares = [
            _gradient(subject, place, point[:, None] ** 3 * whole, weight)
            for point, weight in parts
        ]
        source, written = torch.stack(shares).sum(0).split(sides)
        result = Saliency(source, written, log_p, baseline, steps)
        if result.gap <= COMPLETE:
            break
    return result


def _gradient(
    subject: Subject, place: int, scales: Float[Tensor, "P N"], weights: Float[Tensor, " P"]
) -> Float[Tensor, " N"]:
    """Return the weighted sum over points of embedding · gradient, which is the gradient of each token's scale."""
    scales.requires_grad_()
    with torch.enable_grad():
        log_p = weights @ _log_p(subject, place, scales)
    return torch.autograd.grad(log_p, scales)[0].sum(0)


def _log_p(subject: Subject, place: int, scales: Float[Tensor, "P N"]) -> Float[Tensor, " P"]:
    """Return the log-probability of the answer at one position, once for each row of scales.

    Each token's embedding is multiplied by its scale; the source tokens come first, then those of the output.
    """
    source, written = scales.split([len(subject.source), len(subject.written)], dim=1)
    fits = []

    def scale(name: str, value: Tensor) -> Tensor:
        if name not in EMBEDDINGS:
            return value
        factors = written if name == "decoder.embedding" else source
        fits.append(value.shape[1] == factors.shape[1])
        return value * factors.to(value.dtype)[..., None] if fits[-1] else value

    with listening(scale):
        log_p = subject.copies(len(scales))[:, place].double().log_softmax(-1)
    if not fits or not all(fits):
        raise UsageError(
            "saliency needs a model with an embedding for each token, which this one does not have",
            hint="use the view 'lens'.",
        )
    return log_p[:, subject.answers[place]]


def _gauss_legendre(points: int) -> tuple[Float[Tensor, " P"], Float[Tensor, " P"]]:
    """Return the nodes between 0 and 1 and the weights of Gauss-Legendre quadrature."""
    nodes, weights = map(torch.from_numpy, leggauss(points))
    return (nodes + 1) / 2, weights / 2


def saliency_view(
    subject: Subject, *, method: str = "integrated", position: int | None = None
) -> View:
    """Colour the input by what each token adds to the log-probability of one answer."""
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
        difference = log_p - result.baseline
        note = (
            f"the contributions sum to {result.sum:.3f} of {difference:.3f} ({result.steps} steps)"
        )
        if result.gap > COMPLETE:
            note += ": incomplete; use a shorter text, or --method leave-one-out"
        parts.append(note)
    return View("saliency", f"what {answer!r} rests on ({method})", data, parts)

"""Which part of an input an answer rests on: by the gradient, along a path from nothing, and by leaving out."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from seqlab.bundle import Bundle
from seqlab.errors import UsageError
from seqlab.explain import terminal
from seqlab.explain.charts import coloured_text
from seqlab.explain.view import View
from seqlab.layers.tap import listening
from seqlab.subject import Subject
from seqlab.tasks import subject as subject_of

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
        return Saliency(method, *_by_token(subject, shares), log_probability=log_p)
    log_p, nothing = _scaled(subject, place, 1.0), _scaled(subject, place, 0.0)
    tokens = len(subject.source) + len(subject.written)
    for steps in STEPS:
        if steps > STEPS[0] and steps * tokens > BUDGET:
            break
        # Gauss-Legendre points of u on the path u³: close together near nothing, where norms make it steep
        u, weights = _gauss(steps)
        total: dict[str, Tensor] = {}
        for some, weight in zip(u.split(_rows(tokens)), weights.split(_rows(tokens)), strict=True):
            _, shares = _along(subject, place, some**3, 3 * some**2 * weight)
            total = {name: total.get(name, 0) + share for name, share in shares.items()}
        result = Saliency(method, *_by_token(subject, total), log_p, nothing, steps)
        if result.gap <= COMPLETE:
            break
    return result


def _rows(tokens: int) -> int:
    """How many copies of a text are read at once: enough to keep the machine busy, few enough to fit its memory."""
    return max(1, 4096 // tokens)


def _along(
    subject: Subject, place: int, scales: Float[Tensor, " P"], weights: Float[Tensor, " P"]
) -> tuple[float, dict[str, Float[Tensor, " _"]]]:
    """Weighted means over points with all embeddings scaled: the answer's log-probability, and embedding · gradient."""
    leaves: dict[str, tuple[Tensor, Tensor]] = {}

    def enter(name: str, value: Tensor) -> Tensor:
        if name not in ENTRANCES:
            return value
        leaf = (value.detach() * scales.to(value.dtype)[:, None, None]).requires_grad_()
        leaves[name] = (value.detach()[0], leaf)
        return leaf

    with torch.enable_grad(), listening(enter):
        log_p = weights @ _log_p(subject, place, len(scales))
    sides = {name: subject.written if name == "decoder.embedding" else subject.source for name in leaves}
    if not leaves or any(len(value) != len(sides[name]) for name, (value, _) in leaves.items()):
        raise UsageError("this model has no vector for each token that an answer could rest on", hint="try 'lens'.")
    grads = torch.autograd.grad(log_p, [leaf for _, leaf in leaves.values()], allow_unused=True)
    shares = {
        name: torch.zeros(len(value)).double() if grad is None else (value * grad.sum(0)).sum(-1).double()
        for (name, (value, _)), grad in zip(leaves.items(), grads, strict=True)
    }
    return float(log_p.detach()), shares


def _log_p(subject: Subject, place: int, rows: int) -> Float[Tensor, " P"]:
    """Of the answer at one place, in each of so many copies of the text."""
    return subject.copies(rows)[:, place].double().log_softmax(-1)[:, subject.answers[place]]


@torch.no_grad()
def _scaled(subject: Subject, place: int, scale: float) -> float:
    with listening(lambda name, value: value * scale if name in ENTRANCES else value):
        return float(_log_p(subject, place, 1))


def _by_token(subject: Subject, shares: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The shares of source tokens, whatever door they came in by, and of the tokens that the decoder has read."""
    source = torch.zeros(len(subject.source), dtype=torch.float64)
    written = torch.zeros(len(subject.written), dtype=torch.float64)
    for name, share in shares.items():
        side = written if name == "decoder.embedding" else source
        side += share
    return source, written


@torch.no_grad()
def _left_out(subject: Subject, place: int) -> Saliency:
    """By how much the answer's log-probability falls when the embedding of one token is nothing."""
    log_p = _scaled(subject, place, 1.0)
    sides = {"written": len(subject.written), "source": len(subject.source)}
    drops = {side: torch.zeros(size, dtype=torch.float64) for side, size in sides.items()}
    rows = _rows(sum(sides.values()))
    for side, size in sides.items():
        for first in range(0, size, rows):
            some = torch.arange(first, min(first + rows, size))

            def leave(name: str, value: Tensor, side: str = side, some: Tensor = some) -> Tensor:
                if name not in ENTRANCES or (name == "decoder.embedding") != (side == "written"):
                    return value
                return value.index_put((torch.arange(len(some)), some), torch.zeros(()))

            with listening(leave):
                drops[side][some] = log_p - _log_p(subject, place, len(some))
    return Saliency("leave-one-out", drops["source"], drops["written"], log_p)


def _gauss(points: int) -> tuple[Float[Tensor, " P"], Float[Tensor, " P"]]:
    """Where to look between 0 and 1, and how much each look counts (Golub & Welsch 1969)."""
    k = torch.arange(1, points, dtype=torch.float64)
    off = k / (4 * k * k - 1).sqrt()
    values, vectors = torch.linalg.eigh(torch.diag(off, 1) + torch.diag(off, -1))
    return (values + 1) / 2, vectors[0].square()


def saliency_view(
    bundle: Bundle,
    given: Any,
    *,
    output: str | None = None,
    method: str = "integrated",
    position: int | None = None,
) -> View:
    """The input coloured by what each token adds to the log-probability of one answer."""
    if method not in get_args(Method):
        raise UsageError(f"there is no method '{method}'", hint=f"there are: {', '.join(get_args(Method))}.")
    subject = subject_of(bundle, given, output=output)
    place = subject.place(position)
    result = saliency(subject, method=method, position=position)  # type: ignore[arg-type]
    sides = {
        "source": (subject.source, result.source.numpy()),
        "written before": (subject.written[: place + 1], result.written[: place + 1].numpy()),
    }
    sides = {name: side for name, side in sides.items() if side[0]}
    answer, log_p = subject.answered[place], result.log_probability
    data: dict[str, Any] = {"method": method, "answer": answer, "position": place + 1, "log_probability": log_p}
    data |= {name.replace(" ", "_"): side for name, side in sides.items()}
    notes = []
    if result.baseline is not None:
        data |= {"baseline": result.baseline, "completeness_gap": result.gap, "steps": result.steps}
        note = f"sum {result.sum:.3f} of a difference of {log_p - result.baseline:.3f} ({result.steps} steps)"
        if result.gap > COMPLETE:
            note += ": incomplete, the path is too rough; try a shorter text, or --method leave-one-out"
        notes.append(note)
    texts = {name: ([f"{token} " for token in tokens], values) for name, (tokens, values) in sides.items()}

    def letters(width: int, colour: bool) -> str:
        parts = [
            f"{name}:\n{terminal.coloured_text(*text, width=width, colour=colour)}" for name, text in texts.items()
        ]
        return "\n".join(parts + notes)

    return View(
        "saliency",
        f"what {answer!r} rests on ({method})",
        data,
        tuple(coloured_text(*text, title=name) for name, text in texts.items()),
        letters,
    )

"""The view `gradients`: ‖∂L/∂h_t‖ through time and depth, and the bound that the recurrent matrices give (E36)."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.linalg import vector_norm

from seqlab.bundle import Bundle
from seqlab.equations.bptt import bound
from seqlab.errors import UsageError
from seqlab.explain.charts import HeatMap
from seqlab.explain.plots import Curve, Lines
from seqlab.explain.stage_names import label
from seqlab.explain.view import View
from seqlab.layers.recurrence import Recurrence
from seqlab.layers.tap import listening
from seqlab.subject import Subject
from seqlab.training.checkpoint import MetricsFile

Verdict = Literal["vanishing", "exploding", "healthy"]
# factor of the gradient norm per step back in time: at 0.933, a thousandth is left after 100 steps
HEALTHY = (0.93, 1.05)
MAX_SINGLE_LOSSES = 48  # positions up to which the loss of each one is backpropagated separately
REMEDIES: dict[Verdict, str] = {
    "vanishing": "Distant tokens are hardly learnt: use an LSTM or GRU, attention, or residual connections.",
    "exploding": "Clip the gradient (train.clip), lower the learning rate, or use orthogonal initial matrices.",
    "healthy": "Nothing to do.",
}


@dataclass(frozen=True)
class RecurrentBlock:
    """One gate's block of a recurrent W: how much repeated products with it can grow or shrink a gradient."""

    name: str
    # the largest: a step multiplies the norm of a gradient by at most this, times the slope of the nonlinearity
    singular_value: float
    spectral_radius: float


@dataclass(frozen=True)
class Flow:
    """Norms of ∂L/∂h at each position of each layer, where L is the loss of one answer, or of each one separately."""

    names: tuple[str, ...]
    last: Float[Tensor, "L T"]
    each: Float[Tensor, "L S T"] | None  # [layer, position of the loss, position of the state]
    matrices: tuple[RecurrentBlock, ...]
    places: tuple[str, ...]
    position: int

    def factor(self, layer: int) -> float:
        """Return the mean factor (geometric) of the gradient norm per step back in time."""
        norms = self.last[layer, : self.position + 1]
        nonzero = norms.nonzero()[:, 0].tolist()
        if len(nonzero) < 2:
            return math.nan
        first = nonzero[0]
        last = nonzero[-1]
        return math.exp(float((norms[first].log() - norms[last].log()) / (last - first)))

    def verdict(self, layer: int) -> Verdict:
        """Return vanishing, exploding or healthy, by the mean factor per step."""
        low, high = HEALTHY
        factor = self.factor(layer)
        if not factor >= low:
            return "vanishing"
        return "exploding" if factor > high else "healthy"

    def sentence(self, layer: int) -> str:
        """Return the verdict, the factor it rests on, and what to do, as text."""
        name = self.names[layer]
        factor = self.factor(layer)
        verdict = self.verdict(layer)
        if math.isnan(factor):
            return f"{name}: the input is too short for a verdict."
        return f"{name}: {verdict}; each step back multiplies the gradient norm by {factor:.3f}. {REMEDIES[verdict]}"


def gradient_flow(subject: Subject, *, position: int | None = None, each: bool = True) -> Flow:
    """Backpropagate the loss of one answer; if the input is short, also that of each other answer."""
    place = subject.place(position)
    count = len(subject.answers)
    losses = range(place, place + 1)
    if each and 1 < count <= MAX_SINGLE_LOSSES:
        losses = range(count)
    rows = [_norms(subject, loss) for loss in losses]
    names = tuple(rows[0])
    if not names:
        raise UsageError(
            "this model has no hidden states with gradients", hint="use the view 'saliency'."
        )
    norms = torch.stack([torch.stack([row[name] for row in rows]) for name in names])
    of_each = norms if len(rows) > 1 else None
    tokens = subject.written or subject.source
    return Flow(
        names, norms[:, losses.index(place)], of_each, matrices(subject.bundle), tokens, place
    )


def _norms(subject: Subject, place: int) -> dict[str, Float[Tensor, " T"]]:
    """Return ‖∂L/∂h_t‖ of every recurrent state and block output that has one vector for each token."""
    states: dict[str, list[Tensor]] = {}

    def record(name: str, value: Tensor) -> Tensor:
        if name.endswith((".h", ".output")) and value.requires_grad:
            value.retain_grad()
            states.setdefault(name, []).append(value)
        return value

    with torch.enable_grad(), listening(record):
        log_p = subject.logits().log_softmax(-1)
        if not log_p.requires_grad:
            raise UsageError(
                "this model is trained without gradients",
                hint="the view 'trellis' shows its hidden states.",
            )
        (-log_p[place, subject.answers[place]]).backward()
    subject.bundle.model.zero_grad()
    side = len(subject.written or subject.source)
    by_name = {}
    for name, values in states.items():
        norms = [
            vector_norm(torch.zeros_like(v) if v.grad is None else v.grad, dim=-1)[0]
            for v in values
        ]
        steps = torch.stack(norms) if norms[0].dim() == 0 else torch.stack(norms).sum(0)
        steps = steps.flip(0) if ".backward." in name else steps
        if len(steps) == side:
            by_name[name] = steps.double()
    return by_name


def matrices(bundle: Bundle) -> tuple[RecurrentBlock, ...]:
    """Return the recurrent matrices of all layers, one block for each gate."""
    blocks = []
    for layer in bundle.model.modules():
        if isinstance(layer, Recurrence):
            gates = layer.W.detach().double().split(layer.size)
            for gate, block in zip(layer.cell.gates, gates, strict=True):
                radius = float(torch.linalg.eigvals(block).abs().max())
                stretch = float(bound(block, max_slope=1.0, distance=1))
                blocks.append(RecurrentBlock(f"{layer.name}.{gate}", stretch, radius))
    return tuple(blocks)


def gradients_view(
    subject: Subject, *, position: int | None = None, folder: Path | None = None
) -> View:
    """Plot ‖∂L/∂h_t‖ of each layer against the distance from the loss, with the bound of the matrices and a verdict."""
    flow = gradient_flow(subject, position=position)
    recipe = subject.bundle.recipe
    distance = np.arange(flow.position, -1, -1, dtype=float)
    logs = np.log10(flow.last[:, : flow.position + 1].clamp(min=1e-30).numpy())
    curves = [
        Curve(label(name), norms, distance) for name, norms in zip(flow.names, logs, strict=True)
    ]
    bounds = [
        Curve(
            f"upper bound, {label(m.name)} (E36)",
            logs[0, -1] + distance * math.log10(m.singular_value),
            distance,
            dashed=True,
        )
        for m in flow.matrices
        if m.name.endswith(".h")
    ]
    layers = range(len(flow.names))
    sentences = [flow.sentence(layer) for layer in layers]
    clip = clip_rate(folder, recipe.train.clip)
    if clip is not None:
        sentences.append(
            f"in training {100 * clip:.1f} % of the logged steps were clipped at {recipe.train.clip:g}."
        )
    data: dict[str, Any] = {
        "layers": flow.names,
        "places": flow.places,
        "position": flow.position + 1,
        "norms": flow.last.numpy(),
        "factor_of_a_step": [flow.factor(layer) for layer in layers],
        "verdicts": [flow.verdict(layer) for layer in layers],
        "sentences": sentences,
        "matrices": [asdict(m) for m in flow.matrices],
        "clip_rate": clip,
    }
    title = f"gradient of the loss at {subject.answer_names[flow.position]!r}"
    titles = ("steps back in time from the loss", "log10 of the norm of dL/dh")
    pictures = [Lines(curves + bounds, title=title, titles=titles).draw()]
    if flow.each is not None:
        data["each"] = flow.each.numpy()
        last = torch.where(flow.each[-1] > 0, flow.each[-1].log10(), math.nan).numpy()
        title = f"{label(flow.names[-1])}: log10 of the norm, for the loss at each row's position"
        pictures.append(HeatMap(last, subject.answer_names, flow.places, title=title).draw())
    return View(
        "gradients",
        f"gradient flow in {recipe.name}",
        data,
        [*pictures, Lines(curves).as_text, "log10 of the norm, by steps back in time", *sentences],
    )


def clip_rate(folder: Path | None, clip: float) -> float | None:
    """Return the share of logged training steps whose gradient was clipped, or None without a log."""
    if folder is None or not (path := folder / "run" / "metrics.jsonl").exists():
        return None
    norms = [
        row["gradient_norm"]
        for row in MetricsFile(path).rows()
        if isinstance(row.get("gradient_norm"), float)
    ]
    return sum(norm > clip for norm in norms) / len(norms) if norms else None

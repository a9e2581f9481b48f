"""How far a gradient reaches: ‖∂L/∂h_t‖ through time and depth, and what the recurrent matrices say about it (E36)."""

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
from seqlab.explain.view import View
from seqlab.layers.recurrence import Recurrence
from seqlab.layers.tap import listening
from seqlab.subject import Subject
from seqlab.training.checkpoint import MetricsFile

Verdict = Literal["vanishing", "exploding", "healthy"]
# what a step may leave of a gradient: a thousandth is left after 100 steps at 0.933
HEALTHY = (0.93, 1.05)
EACH_STEP_UP_TO = 48  # positions: each one's loss is sent back by itself
REMEDIES: dict[Verdict, str] = {
    "vanishing": "what is far back is hardly learnt: use an LSTM or GRU, attention, or residual connections.",
    "exploding": "clip the gradient (train.clip), lower the rate, or begin with orthogonal matrices.",
    "healthy": "nothing to do.",
}


@dataclass(frozen=True)
class RecurrentBlock:
    """One block of a recurrent layer's W: what it does to a gradient that it meets again and again."""

    name: str
    singular_value: float  # the largest: no step can stretch a gradient by more (times the slope of the squashing)
    spectral_radius: float


@dataclass(frozen=True)
class Flow:
    """Norms of ∂L/∂h at each place of each layer; L is the loss of one answer, or of each in its turn."""

    names: tuple[str, ...]
    last: Float[Tensor, "L T"]
    each: Float[Tensor, "L S T"] | None  # [layer, whose loss, where]
    matrices: tuple[RecurrentBlock, ...]
    places: tuple[str, ...]
    position: int

    def factor(self, layer: int) -> float:
        """What a step back leaves of the gradient, as a geometric mean from the loss to the first place."""
        norms = self.last[layer, : self.position + 1]
        reached = norms.nonzero()[:, 0].tolist()
        if len(reached) < 2:
            return math.nan
        first = reached[0]
        last = reached[-1]
        return math.exp(float((norms[first].log() - norms[last].log()) / (last - first)))

    def verdict(self, layer: int) -> Verdict:
        """Vanishing, exploding or healthy, by the mean factor of a step."""
        low, high = HEALTHY
        factor = self.factor(layer)
        if not factor >= low:
            return "vanishing"
        return "exploding" if factor > high else "healthy"

    def sentence(self, layer: int) -> str:
        """The verdict, its number and what to do."""
        name = self.names[layer]
        factor = self.factor(layer)
        verdict = self.verdict(layer)
        if math.isnan(factor):
            return f"{name}: too short a way to tell."
        return f"{name}: {verdict}; a step back leaves {factor:.3f} of the gradient. {REMEDIES[verdict]}"


def gradient_flow(subject: Subject, *, position: int | None = None, each: bool = True) -> Flow:
    """Send the loss of one answer back through the model, and where the input is short, that of each answer."""
    place = subject.place(position)
    count = len(subject.answers)
    losses = range(count) if each and 1 < count <= EACH_STEP_UP_TO else range(place, place + 1)
    rows = [_norms(subject, at) for at in losses]
    names = tuple(rows[0])
    if not names:
        raise UsageError(
            "this model has no states that a gradient flows through", hint="look at 'saliency'."
        )
    norms = torch.stack([torch.stack([row[name] for row in rows]) for name in names])
    every = norms if len(rows) > 1 else None
    places = subject.written or subject.source
    return Flow(
        names, norms[:, losses.index(place)], every, matrices(subject.bundle), places, place
    )


def _norms(subject: Subject, place: int) -> dict[str, Float[Tensor, " T"]]:
    """‖∂L/∂h_t‖ at every recurrent state and every block's output that stands over the positions of one side."""
    kept: dict[str, list[Tensor]] = {}

    def keep(name: str, value: Tensor) -> Tensor:
        if name.endswith((".h", ".output")) and value.requires_grad:
            value.retain_grad()
            kept.setdefault(name, []).append(value)
        return value

    with torch.enable_grad(), listening(keep):
        log_p = subject.logits().log_softmax(-1)
        if not log_p.requires_grad:
            raise UsageError(
                "this model learns without gradients",
                hint="the view 'trellis' shows what it believes.",
            )
        (-log_p[place, subject.answers[place]]).backward()
    subject.bundle.model.zero_grad()
    side = len(subject.written or subject.source)
    by_name = {}
    for name, values in kept.items():
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
    """The recurrent matrices, gate by gate."""
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
    """‖∂L/∂h_t‖ against the distance from the loss, for each layer; what the matrices allow; and a verdict."""
    flow = gradient_flow(subject, position=position)
    recipe = subject.bundle.recipe
    distance = np.arange(flow.position, -1, -1, dtype=float)
    logs = np.log10(flow.last[:, : flow.position + 1].clamp(min=1e-30).numpy())
    curves = [Curve(name, norms, distance) for name, norms in zip(flow.names, logs, strict=True)]
    bounds = [
        Curve(
            f"at most, {m.name} (E36)",
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
    titles = ("steps back from the loss", "log10 of the norm of dL/dh")
    pictures = [Lines(curves + bounds, title=title, titles=titles).draw()]
    if flow.each is not None:
        data["each"] = flow.each.numpy()
        last = torch.where(flow.each[-1] > 0, flow.each[-1].log10(), math.nan).numpy()
        title = f"{flow.names[-1]}: whose loss (down) reaches whom (across), log10"
        pictures.append(HeatMap(last, subject.answer_names, flow.places, title=title).draw())
    return View(
        "gradients",
        f"gradient flow in {recipe.name}",
        data,
        [*pictures, Lines(curves).letters, "log10 of the norm, against steps back", *sentences],
    )


def clip_rate(folder: Path | None, clip: float) -> float | None:
    """The share of the steps that a run has logged whose gradient was clipped; None where there is no log."""
    if folder is None or not (path := folder / "run" / "metrics.jsonl").exists():
        return None
    norms = [
        row["gradient_norm"]
        for row in MetricsFile(path).rows()
        if isinstance(row.get("gradient_norm"), float)
    ]
    return sum(norm > clip for norm in norms) / len(norms) if norms else None

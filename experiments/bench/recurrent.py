"""Forward and backward pass of a recurrent layer, compared with torch: same weights, same input, same gradients."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

import seqlab
from experiments.bench.race import Race, Side
from seqlab.equations.recurrent import gru_step
from seqlab.kernels import native
from seqlab.layers.recurrence import Recurrence
from seqlab.recipe import Cell

PEERS: dict[Cell, Callable[..., nn.RNNBase]] = {"gru-torch": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}
NAMES: dict[Cell, str] = {
    "gru-torch": "GRU",
    "gru": "GRU of the lectures",
    "lstm": "LSTM",
    "rnn": "tanh RNN",
}


def recurrent_race(
    kind: Cell, size: int, *, rows: int = 32, steps: int = 64, wanted: float | None = None
) -> Race:
    """E17, E24 or E25 with its gradients (E31-E34), for as many features as units."""
    torch.manual_seed(1)
    x, layer = (
        torch.randn(rows, steps, size, requires_grad=True),
        Recurrence(kind, size, size, name=""),
    )
    ours = _pass(lambda: layer(x, layer.start(rows))[0], [x, layer.U, layer.W, layer.b])
    return Race(
        title=f"{NAMES[kind]} forward and back, {rows} rows of {steps} steps, {size} units",
        part="one pass",
        ours=Side("Seqlab", seqlab.__version__, ours, _numbers),
        peers=[_equation(layer, x) if kind == "gru" else _torchs(PEERS[kind], layer, x, wanted)],
        missing=[] if native.ready() else ["Seqlab's native kernels"],
    )


def _torchs(
    peer: Callable[..., nn.RNNBase], layer: Recurrence, x: Tensor, wanted: float | None
) -> Side:
    theirs = peer(layer.size, layer.size, batch_first=True)
    weights = list(theirs.parameters())
    with torch.no_grad():
        for copy, own in zip(
            weights, (layer.U, layer.W, layer.b, torch.zeros_like(layer.b)), strict=True
        ):
            copy.copy_(own)
    run = _pass(lambda: theirs(x)[0], [x, *weights[:3]])
    return Side(f"nn.{type(theirs).__name__}", torch.__version__, run, _numbers, wanted=wanted)


def _equation(layer: Recurrence, x: Tensor) -> Side:
    def states() -> Tensor:
        found = [layer.start(len(x))[0]]
        for x_t in x.unbind(1):
            found.append(gru_step(x_t, found[-1], layer.W, layer.U, layer.b))
        return torch.stack(found[1:], dim=1)

    run = _pass(states, [x, layer.U, layer.W, layer.b])
    return Side("the equation, step by step,", seqlab.__version__, run, _numbers)


def _pass(states: Callable[[], Tensor], inputs: Sequence[Tensor]) -> Callable[[], list[Tensor]]:
    """Return a function that runs forward and backward from a given gradient, so that only the layer is timed."""
    g = torch.randn(states().shape, generator=torch.Generator().manual_seed(2))

    def run() -> list[Tensor]:
        found = states()
        return [found, *torch.autograd.grad(found, inputs, g)]

    return run


def _numbers(found: list[Tensor]) -> np.ndarray:
    """Return the norms of all states and of each gradient."""
    return np.array([float(part.detach().double().norm()) for part in found])

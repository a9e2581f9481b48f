"""Features to logits."""

from jaxtyping import Float
from torch import Tensor, nn

from seqlab.layers.linear import Linear
from seqlab.layers.tap import tap


class Head(nn.Module):
    """E18: o = V h + c. With `tied`, V is an embedding's weight, reached through a projection where sizes differ."""

    def __init__(self, size: int, num_outputs: int, *, tied: nn.Parameter | None = None) -> None:
        super().__init__()
        inner = size if tied is None else tied.shape[1]
        self.project = Linear(size, inner, bias=False) if inner != size else None
        self.output = Linear(inner, num_outputs)
        nn.init.zeros_(self.output.bias)
        if tied is not None:
            self.output.weight = tied

    def forward(self, features: Float[Tensor, "... D"]) -> Float[Tensor, "... V"]:
        if self.project is not None:
            features = self.project(features)
        return tap("logits", self.output(tap("features", features)))

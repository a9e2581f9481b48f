"""Features to logits."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqlab.kernels.cross_entropy import cross_entropy, head_cross_entropy
from seqlab.layers.linear import Linear
from seqlab.layers.tap import listened_to, tap


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
        return tap("logits", self.output(tap("features", self._projected(features))))

    def _projected(self, features: Float[Tensor, "... D"]) -> Float[Tensor, "... E"]:
        return features if self.project is None else self.project(features)

    def loss(
        self, features: Float[Tensor, "N D"], gold: Int[Tensor, " N"], *, label_smoothing: float = 0.0
    ) -> Float[Tensor, ""]:
        """E4 summed over the rows, without holding the logits of all of them where nobody looks."""
        if listened_to() or torch.is_autocast_enabled(features.device.type):
            return cross_entropy(self(features), gold, label_smoothing=label_smoothing).sum()
        projected, output = self._projected(features), self.output
        return head_cross_entropy(projected, output.weight, output.bias, gold, label_smoothing=label_smoothing)

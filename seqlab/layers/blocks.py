"""Transformer blocks: attention and feed-forward, each with add & norm (E52)."""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import gelu

from seqlab.equations.attention import causal, split_heads
from seqlab.equations.transformer import rotary
from seqlab.layers.attention import Heads, MultiHeadAttention
from seqlab.layers.dropout import Dropout
from seqlab.layers.linear import Linear
from seqlab.layers.norms import BatchNorm, LayerNorm, NoNorm
from seqlab.layers.tap import tap
from seqlab.recipe import Transformer

Real = Bool[Tensor, "B T"]


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": gelu,
    "gelu-tanh": partial(gelu, approximate="tanh"),
}


class FeedForward(nn.Module):
    """E53: two layers with a ReLU between, the same at each position; GELU for models that come from elsewhere."""

    def __init__(self, settings: Transformer, *, dropout: float, name: str) -> None:
        super().__init__()
        self.name, self.activation = name, ACTIVATIONS[settings.activation]
        self.widen = Linear(settings.size, settings.inner)
        self.narrow = Linear(settings.inner, settings.size)
        for linear in (self.widen, self.narrow):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)
        self.dropout = Dropout(dropout, name=f"{name}.inner")

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        inner = self.widen(tap(f"{self.name}.x", x))
        in_place = self.activation is torch.relu and not torch.is_grad_enabled()  # new memory costs more than a ReLU
        inner = inner.relu_() if in_place else self.activation(inner)
        return self.narrow(self.dropout(tap(f"{self.name}.inner", inner)))


class AddNorm(nn.Module):
    """E52 around a sublayer: the norm after the sum (post, the paper's) or before the sublayer (pre)."""

    def __init__(self, settings: Transformer, *, dropout: float, name: str) -> None:
        super().__init__()
        self.name, self.before = name, settings.norm == "pre"
        layer = LayerNorm(settings.size, epsilon=settings.epsilon)
        self.norm = {"layer": layer, "batch": BatchNorm(settings.size), "none": NoNorm()}[settings.normalise]
        self.dropout = Dropout(dropout, name=name)

    def enter(self, x: Float[Tensor, "B T D"], real: Real | None) -> Float[Tensor, "B T D"]:
        """What the sublayer is given."""
        return self.norm(x, real) if self.before else x

    def leave(self, x: Float[Tensor, "B T D"], y: Float[Tensor, "B T D"], real: Real | None) -> Float[Tensor, "B T D"]:
        """The sum of what went in and what came out."""
        total = tap(f"{self.name}.sum", x + self.dropout(y))
        return total if self.before else self.norm(total, real)


class EncoderBlock(nn.Module):
    """Self-attention over the whole source, or over what stands before (causal), then feed-forward."""

    def __init__(self, settings: Transformer, *, dropout: float, name: str) -> None:
        super().__init__()
        self.name, self.rotary = name, settings.positions == "rotary"
        self.causal, self.window = settings.causal, settings.window
        self.attention = MultiHeadAttention(settings.size, num_heads=settings.heads, name=f"{name}.attention")
        self.feed_forward = FeedForward(settings, dropout=dropout, name=f"{name}.feed_forward")
        self.first = AddNorm(settings, dropout=dropout, name=f"{name}.first")
        self.second = AddNorm(settings, dropout=dropout, name=f"{name}.second")

    def forward(self, x: Float[Tensor, "B T D"], real: Real) -> Float[Tensor, "B T D"]:
        heard = self._heard(self.attention.project_all(self.first.enter(x, real)), real)
        x = self.first.leave(x, self.attention.mix(heard), real)
        x = self.second.leave(x, self.feed_forward(self.second.enter(x, real)), real)
        return tap(f"{self.name}.output", x)

    def without_padding(self, x: Float[Tensor, "1 N D"], real: Real) -> Float[Tensor, "1 N D"]:
        """The same for the real positions of a batch in one row: only attention needs to know whose they are."""
        projected = self.attention.query_key_value(self.first.enter(x, None))[0]
        wide = projected.new_zeros(*real.shape, projected.shape[-1])
        wide[real] = projected
        q, k, v = (split_heads(part, self.attention.num_heads) for part in wide.chunk(3, dim=-1))
        x = self.first.leave(x, self.attention.mix(self._heard((q, k, v), real)[real][None]), None)
        return self.second.leave(x, self.feed_forward(self.second.enter(x, None)), None)

    def _heard(self, projected: tuple[Tensor, Tensor, Tensor], real: Real) -> Float[Tensor, "B T D"]:
        q, k, v = projected
        if self.rotary:
            q, k = rotary(q), rotary(k)
        visible = real[:, None]
        if self.causal:
            visible = visible & causal(real.shape[1], real.shape[1], window=self.window)
        return self.attention.side_by_side(q, (k, v), visible)


class DecoderBlock(nn.Module):
    """Masked self-attention over the target so far, attention to the source where there is one, feed-forward."""

    def __init__(self, settings: Transformer, *, reads_source: bool, dropout: float, name: str) -> None:
        super().__init__()
        self.name, self.rotary, self.window = name, settings.positions == "rotary", settings.window
        self.attention = MultiHeadAttention(settings.size, num_heads=settings.heads, name=f"{name}.attention")
        self.cross: MultiHeadAttention | None = None
        self.third: AddNorm | None = None
        if reads_source:
            self.cross = MultiHeadAttention(settings.size, num_heads=settings.heads, name=f"{name}.cross")
            self.third = AddNorm(settings, dropout=dropout, name=f"{name}.third")
        self.feed_forward = FeedForward(settings, dropout=dropout, name=f"{name}.feed_forward")
        self.first = AddNorm(settings, dropout=dropout, name=f"{name}.first")
        self.second = AddNorm(settings, dropout=dropout, name=f"{name}.second")

    def forward(
        self,
        x: Float[Tensor, "R T D"],
        past: Heads,
        source: Heads | None,
        visible: Bool[Tensor, "B S"] | None,
        *,
        first: int,
    ) -> tuple[Float[Tensor, "R T D"], Heads]:
        """The tokens further, from position `first` on, and the keys and values of all that can still be seen."""

        def joined(k: Tensor, v: Tensor) -> Heads:
            return torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)

        x, (k, v) = self.further(x, joined, source, visible, first=first)
        kept = k.shape[2] if self.window is None else self.window - 1
        return x, (k[:, :, -kept:], v[:, :, -kept:]) if kept else (k[:, :, :0], v[:, :, :0])

    def further(
        self,
        x: Float[Tensor, "R T D"],
        remember: Callable[[Tensor, Tensor], Heads],
        source: Heads | None,
        visible: Bool[Tensor, "B S"] | None,
        *,
        first: int,
    ) -> tuple[Float[Tensor, "R T D"], Heads]:
        """The same for whoever keeps keys and values: `remember` takes the new ones and gives all that are seen."""
        q, k, v = self.attention.project_all(self.first.enter(x, None))
        if self.rotary:
            q, k = rotary(q, first=first), rotary(k, first=first)
        k, v = remember(k, v)
        mask = causal(q.shape[2], k.shape[2], window=self.window)[None] if q.shape[2] > 1 else None
        x = self.first.leave(x, self.attention(q, (k, v), mask), None)
        if self.cross is not None and self.third is not None and source is not None and visible is not None:
            seen = self._look(self.cross, self.third.enter(x, None), source, visible)
            x = self.third.leave(x, seen, None)
        x = self.second.leave(x, self.feed_forward(self.second.enter(x, None)), None)
        return tap(f"{self.name}.output", x), (k, v)

    def _look(
        self, cross: MultiHeadAttention, x: Float[Tensor, "R T D"], source: Heads, visible: Bool[Tensor, "B S"]
    ) -> Float[Tensor, "R T D"]:
        """Attention to the source: the hypotheses of one source stand side by side as queries to the same keys."""
        rows, length = len(visible), x.shape[1]
        q = cross.project_queries(x.reshape(rows, -1, x.shape[-1]))
        return cross(q, source, visible[:, None]).reshape(-1, length, x.shape[-1])

"""The blocks of a Transformer: norms (E50, E51), many heads (E47), feed-forward (E53), add & norm (E52)."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import gelu, scaled_dot_product_attention

from seqlab.equations.attention import attention_weights, causal, rotary, scaled_score, split_heads
from seqlab.equations.attention import context as weighted_sum
from seqlab.equations.transformer import EPSILON, batch_norm
from seqlab.kernels import passes
from seqlab.layers.linear import Linear
from seqlab.layers.tap import listened_to, tap
from seqlab.randomness import Dropout, training
from seqlab.recipe import TransformerConfig
from seqlab.types import Mask, Vectors

HeadQueries = Float[Tensor, "B H T d"]
Hypotheses = Float[Tensor, "R T D"]

MOMENTUM = 0.1  # how far the mean and variance of a batch norm move towards those of each batch
Heads = Sequence[Tensor]  # keys and values, each B H T d
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": gelu,
    "gelu-tanh": partial(gelu, approximate="tanh"),
}


class LayerNorm(nn.Module):
    """E50, by torch's fused kernel."""

    def __init__(self, size: int, *, epsilon: float = EPSILON) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.gain = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, x: Vectors, real: Mask | None = None) -> Vectors:
        return functional.layer_norm(x, self.gain.shape, self.gain, self.bias, self.epsilon)


class BatchNorm(nn.Module):
    """E51 over the real positions, for comparison (C17): in training by the batch, in use by what training has seen.

    Its predictions in training depend on the other rows of the batch, which is why nothing here uses it by default.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))
        # parameters without a gradient, so that they are saved, averaged and resumed like all others
        self.mean = nn.Parameter(torch.zeros(size), requires_grad=False)
        self.variance = nn.Parameter(torch.ones(size), requires_grad=False)

    def forward(self, x: Vectors, real: Mask | None = None) -> Vectors:
        if not training():
            return self.gain * (x - self.mean) / (self.variance + EPSILON).sqrt() + self.bias
        real = torch.ones(x.shape[:2], dtype=torch.bool) if real is None else real
        positions = x[real]
        with torch.no_grad():
            self.mean.lerp_(positions.mean(0), MOMENTUM)
            self.variance.lerp_(positions.var(0, unbiased=False), MOMENTUM)
        return torch.zeros_like(x).masked_scatter(
            real[..., None], batch_norm(positions, self.gain, self.bias)
        )


class NoNorm(nn.Module):
    """What comes in goes out, for comparison (C17)."""

    def forward(self, x: Vectors, real: Mask | None = None) -> Vectors:
        return x


class MultiHeadAttention(nn.Module):
    """E47: several attentions side by side, concatenated and mixed.

    Queries may be more than the keys' rows: K hypotheses of one source are K times as many queries to its keys.
    """

    def __init__(self, size: int, *, num_heads: int, name: str) -> None:
        super().__init__()
        if size % num_heads:
            raise ValueError(
                f"{num_heads} heads cannot share {size} features evenly; choose a size that {num_heads} divides"
            )
        self.num_heads, self.name = num_heads, name
        self.query_key_value = Linear(size, 3 * size)
        self.mix = Linear(size, size)
        for linear in (self.query_key_value, self.mix):
            for block in linear.weight.split(size):
                nn.init.xavier_uniform_(block)
            nn.init.zeros_(linear.bias)
        self.query_key_value.weight.num_blocks = 3  # type: ignore[attr-defined]  # for optimisers that see matrices

    def project_all(self, x: Vectors) -> tuple[Tensor, ...]:
        """Queries, keys and values of the same positions in one product, as self-attention needs them."""
        return self.split(self.query_key_value.as_factor(tap(f"{self.name}.x", x)))

    def keys_and_values(self, memory: Vectors) -> Float[Tensor, "B T 2*D"]:
        """Keys and values of a source, side by side: computed once, used at every step."""
        size = self.mix.in_features
        return self.query_key_value.part(size, 3 * size).as_factor(
            tap(f"{self.name}.memory", memory)
        )

    def project_queries(self, x: Vectors) -> HeadQueries:
        size = self.mix.in_features
        return self.split(self.query_key_value.part(0, size).as_factor(tap(f"{self.name}.x", x)))[0]

    def split(self, projected: Float[Tensor, "B T P"]) -> tuple[HeadQueries, ...]:
        """The heads of each of the vectors that stand side by side: queries, keys, values."""
        return tuple(
            split_heads(part, self.num_heads)
            for part in projected.split(self.mix.in_features, dim=-1)
        )

    def forward(
        self, q: HeadQueries, heads: Heads, visible: Bool[Tensor, "#B #T S"] | None
    ) -> Vectors:
        return self.mix(self.side_by_side(q, heads, visible))

    def side_by_side(
        self, q: HeadQueries, heads: Heads, visible: Bool[Tensor, "#B #T S"] | None
    ) -> Vectors:
        """What each head gives, before it is mixed."""
        mask = None if visible is None else visible[:, None]
        k, v = heads
        if listened_to():
            attended = self._observed(q, k, v, mask)
        elif q.dtype == torch.bfloat16:
            attended = passes.attention(q, k, v, visible)
        else:
            attended = scaled_dot_product_attention(q, k, v, mask)
        return attended.transpose(1, 2).flatten(-2)

    def _observed(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """The same heads by the equation, so that the weights exist and can be seen or replaced."""
        for name, value in (("q", q), ("k", k), ("v", v)):
            tap(f"{self.name}.{name}", value)
        visible = torch.ones(1, 1, 1, k.shape[2], dtype=torch.bool) if mask is None else mask
        weights = attention_weights(tap(f"{self.name}.score", scaled_score(q, k)), visible)
        return tap(f"{self.name}.heads", weighted_sum(tap(f"{self.name}.weights", weights), v))


def _rotary(x: HeadQueries, first: int = 0) -> HeadQueries:
    """By angles in float32: those of far positions need its bits."""
    wide = torch.promote_types(x.dtype, torch.float32)
    return rotary(x.to(wide), first=first).to(x.dtype)


class FeedForward(nn.Module):
    """E53: two layers with a ReLU between, the same at each position; GELU for models that come from elsewhere."""

    def __init__(self, settings: TransformerConfig, *, dropout: float, name: str) -> None:
        super().__init__()
        self.name, self.activation = name, ACTIVATIONS[settings.activation]
        self.widen = Linear(settings.size, settings.inner)
        self.narrow = Linear(settings.inner, settings.size)
        for linear in (self.widen, self.narrow):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)
        self.dropout = Dropout(dropout, name=f"{name}.inner")

    def forward(self, x: Vectors) -> Vectors:
        x = tap(f"{self.name}.x", x)
        windows = self._windows(x)
        if windows is not None:
            return self.narrow(passes.relu_dropout(self.widen.as_factor(x), windows))
        inner = self.widen(x)
        in_place = (
            self.activation is torch.relu and not torch.is_grad_enabled()
        )  # new memory costs more than a ReLU
        inner = inner.relu_() if in_place else self.activation(inner)
        return self.narrow(self.dropout(tap(f"{self.name}.inner", inner)))

    def _windows(self, x: Vectors) -> passes.MaskWindows | None:
        """The masks of the inner features, where one native pass can do ReLU and dropout."""
        if self.activation is not torch.relu or listened_to() or not passes.can_pass(x):
            return None
        return _windows(self.dropout, x[..., :1].expand(*x.shape[:-1], self.widen.out_features))


def _windows(dropout: Dropout, x: Vectors) -> passes.MaskWindows | None:
    """The masks of a dropout for the native kernels, or None where nothing is dropped."""
    windows = dropout.windows(x, torch.float32)
    return None if windows is None else passes.MaskWindows(*windows, dropout.rate)


class AddNorm(nn.Module):
    """E52 around a sublayer: the norm after the sum (post, the paper's) or before the sublayer (pre)."""

    def __init__(self, settings: TransformerConfig, *, dropout: float, name: str) -> None:
        super().__init__()
        self.name, self.before = name, settings.norm == "pre"
        layer = LayerNorm(settings.size, epsilon=settings.epsilon)
        self.norm = {"layer": layer, "batch": BatchNorm(settings.size), "none": NoNorm()}[
            settings.normalise
        ]
        self.dropout = Dropout(dropout, name=name)

    def enter(self, x: Vectors, real: Mask | None = None) -> Vectors:
        """What the sublayer is given."""
        return self.norm(x, real) if self.before else x

    def leave(self, x: Vectors, y: Vectors, real: Mask | None = None) -> Vectors:
        """The sum of what went in and what came out."""
        windows = _windows(self.dropout, y) if passes.can_pass(x, y) else None
        dropped = x + self.dropout(y) if windows is None else passes.add_dropout(x, y, windows)
        total = tap(f"{self.name}.sum", dropped)
        return total if self.before else self.norm(total, real)


class TransformerBlock(nn.Module):
    """Self-attention, attention to a source where there is one, feed-forward.

    An encoder calls it, for the whole source or for what stands before each position (causal). A decoder, whose tokens
    see those before them, uses `decode`.
    """

    def __init__(
        self, settings: TransformerConfig, *, dropout: float, name: str, reads_source: bool = False
    ) -> None:
        super().__init__()
        self.name, self.rotary = name, settings.positions == "rotary"
        self.causal, self.window = settings.causal, settings.window

        def attention(part: str) -> MultiHeadAttention:
            return MultiHeadAttention(
                settings.size, num_heads=settings.heads, name=f"{name}.{part}"
            )

        def add_norm(part: str) -> AddNorm:
            return AddNorm(settings, dropout=dropout, name=f"{name}.{part}")

        self.attention = attention("attention")
        self.cross = attention("cross") if reads_source else None
        self.third = add_norm("third") if reads_source else None
        self.feed_forward = FeedForward(settings, dropout=dropout, name=f"{name}.feed_forward")
        self.first = add_norm("first")
        self.second = add_norm("second")

    def forward(self, x: Vectors, real: Mask) -> Vectors:
        mixed = self.attention.mix(
            self._self_attention(self.attention.project_all(self.first.enter(x, real)), real)
        )
        return self._feed_forward(self.first.leave(x, mixed, real), real)

    def without_padding(self, x: Float[Tensor, "1 N D"], real: Mask) -> Float[Tensor, "1 N D"]:
        """The same for the real positions of a batch in one row: only attention needs to know whose they are."""
        projected = self.attention.query_key_value(self.first.enter(x))[0]
        wide = projected.new_zeros(*real.shape, projected.shape[-1])
        wide[real] = projected
        attended = self._self_attention(self.attention.split(wide), real)
        return self._feed_forward(self.first.leave(x, self.attention.mix(attended[real][None])))

    def decode(
        self, x: Hypotheses, past: Heads, source: Sequence[Tensor], *, first: int
    ) -> tuple[Hypotheses, Heads]:
        """The tokens from position `first` on, and the keys and values of all that can still be seen.

        `source` is which of its positions are real, its keys and its values; or nothing.
        """
        q, k, v = self.attention.project_all(self.first.enter(x))
        if self.rotary:
            q, k = _rotary(q, first), _rotary(k, first)
        if past[0].shape[2]:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        mask = causal(q.shape[2], k.shape[2], window=self.window)[None] if q.shape[2] > 1 else None
        x = self.first.leave(x, self.attention(q, (k, v), mask))
        if self.cross is not None and self.third is not None and source:
            visible, *heads = source
            # the hypotheses of one source stand side by side as queries to the same keys
            q = self.cross.project_queries(
                self.third.enter(x).reshape(len(visible), -1, x.shape[-1])
            )
            x = self.third.leave(x, self.cross(q, heads, visible[:, None]).reshape(x.shape))
        cut = 0 if self.window is None else max(0, k.shape[2] - self.window + 1)
        return self._feed_forward(x), (k[:, :, cut:], v[:, :, cut:])

    def _self_attention(self, projected: tuple[Tensor, ...], real: Mask) -> Vectors:
        q, k, v = projected
        if self.rotary:
            q, k = _rotary(q), _rotary(k)
        visible = real[:, None]
        if self.causal:
            visible = visible & causal(real.shape[1], real.shape[1], window=self.window)
        return self.attention.side_by_side(q, (k, v), visible)

    def _feed_forward(self, x: Vectors, real: Mask | None = None) -> Vectors:
        x = self.second.leave(x, self.feed_forward(self.second.enter(x, real)), real)
        return tap(f"{self.name}.output", x)

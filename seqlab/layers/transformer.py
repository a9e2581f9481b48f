"""The blocks of a Transformer: norms (E50, E51), many heads (E47), feed-forward (E53), add & norm (E52)."""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import gelu, scaled_dot_product_attention

from seqlab.equations.attention import attention_weights, causal, scaled_score, split_heads
from seqlab.equations.attention import context as weighted_sum
from seqlab.equations.transformer import batch_norm, rotary
from seqlab.layers.dropout import Dropout, training
from seqlab.layers.linear import Linear
from seqlab.layers.tap import listened_to, tap
from seqlab.recipe import Transformer

Queries = Float[Tensor, "B H T d"]
Source = Bool[Tensor, "B S"]
Real = Bool[Tensor, "B T"]
Vectors = Float[Tensor, "B T D"]
Hypotheses = Float[Tensor, "R T D"]

EPSILON = 1e-5
Heads = tuple[Tensor, Tensor]  # keys and values, each B H T d
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

    def forward(self, x: Vectors, real: Real | None = None) -> Vectors:
        return functional.layer_norm(x, self.gain.shape, self.gain, self.bias, self.epsilon)


class BatchNorm(nn.Module):
    """E51 over the real positions, for comparison (C17): in training by the batch, in use by what training has seen.

    Its predictions in training depend on the other rows of the batch, which is why nothing here uses it by default.
    """

    def __init__(self, size: int, *, momentum: float = 0.1) -> None:
        super().__init__()
        self.momentum = momentum
        self.gain = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))
        # parameters without a gradient, so that they are saved, averaged and resumed like all others
        self.mean = nn.Parameter(torch.zeros(size), requires_grad=False)
        self.variance = nn.Parameter(torch.ones(size), requires_grad=False)

    def forward(self, x: Vectors, real: Real | None = None) -> Vectors:
        if not training():
            return self.gain * (x - self.mean) / (self.variance + EPSILON).sqrt() + self.bias
        real = torch.ones(x.shape[:2], dtype=torch.bool) if real is None else real
        seen = x[real]
        with torch.no_grad():
            self.mean.lerp_(seen.mean(0), self.momentum)
            self.variance.lerp_(seen.var(0, unbiased=False), self.momentum)
        return torch.zeros_like(x).masked_scatter(real[..., None], batch_norm(seen, self.gain, self.bias))


class NoNorm(nn.Module):
    """What comes in goes out, for comparison (C17)."""

    def forward(self, x: Vectors, real: Real | None = None) -> Vectors:
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

    def project_all(self, x: Vectors) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of the same positions in one product, as self-attention needs them."""
        q, k, v = self.query_key_value(tap(f"{self.name}.x", x)).chunk(3, dim=-1)
        return self._split(q), self._split(k), self._split(v)

    def project_memory(self, memory: Float[Tensor, "B S D"]) -> Heads:
        """Keys and values of a source: computed once, used at every step."""
        k, v = self.keys_and_values(memory).chunk(2, dim=-1)
        return self._split(k), self._split(v)

    def keys_and_values(self, memory: Float[Tensor, "B S D"]) -> Float[Tensor, "B S 2*D"]:
        """The same with keys and values side by side, as they come out of the product."""
        size = self.mix.in_features
        return self.query_key_value.part(size, 3 * size)(tap(f"{self.name}.memory", memory))

    def project_queries(self, x: Vectors) -> Queries:
        return self._split(self.query_key_value.part(0, self.mix.in_features)(tap(f"{self.name}.x", x)))

    def forward(self, q: Queries, heads: Heads, visible: Bool[Tensor, "#B #T S"] | None) -> Vectors:
        return self.mix(self.side_by_side(q, heads, visible))

    def side_by_side(self, q: Queries, heads: Heads, visible: Bool[Tensor, "#B #T S"] | None) -> Vectors:
        """What the heads have heard, before it is mixed."""
        k, v = heads
        mask = None if visible is None else visible[:, None]
        if listened_to():
            heard = self._observed(q, k, v, mask)
        else:
            heard = scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return heard.transpose(1, 2).flatten(-2)

    def _observed(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """The same heads by the equation, so that the weights exist and can be seen or replaced."""
        for name, value in (("q", q), ("k", k), ("v", v)):
            tap(f"{self.name}.{name}", value)
        visible = torch.ones(1, 1, 1, k.shape[2], dtype=torch.bool) if mask is None else mask
        weights = attention_weights(tap(f"{self.name}.score", scaled_score(q, k)), visible)
        return tap(f"{self.name}.heads", weighted_sum(tap(f"{self.name}.weights", weights), v))

    def _split(self, x: Float[Tensor, "B L D"]) -> Float[Tensor, "B H L d"]:
        return split_heads(x, self.num_heads)


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

    def forward(self, x: Vectors) -> Vectors:
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

    def enter(self, x: Vectors, real: Real | None) -> Vectors:
        """What the sublayer is given."""
        return self.norm(x, real) if self.before else x

    def leave(self, x: Vectors, y: Vectors, real: Real | None) -> Vectors:
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

    def forward(self, x: Vectors, real: Real) -> Vectors:
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

    def _heard(self, projected: tuple[Tensor, Tensor, Tensor], real: Real) -> Vectors:
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
        x: Hypotheses,
        past: Heads,
        source: Heads | None,
        visible: Source | None,
        *,
        first: int,
    ) -> tuple[Hypotheses, Heads]:
        """The tokens further, from position `first` on, and the keys and values of all that can still be seen."""

        def joined(k: Tensor, v: Tensor) -> Heads:
            return torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)

        x, (k, v) = self.further(x, joined, source, visible, first=first)
        kept = k.shape[2] if self.window is None else self.window - 1
        return x, (k[:, :, -kept:], v[:, :, -kept:]) if kept else (k[:, :, :0], v[:, :, :0])

    def further(
        self,
        x: Hypotheses,
        remember: Callable[[Tensor, Tensor], Heads],
        source: Heads | None,
        visible: Source | None,
        *,
        first: int,
    ) -> tuple[Hypotheses, Heads]:
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

    def _look(self, cross: MultiHeadAttention, x: Hypotheses, source: Heads, visible: Source) -> Hypotheses:
        """Attention to the source: the hypotheses of one source stand side by side as queries to the same keys."""
        rows, length = len(visible), x.shape[1]
        q = cross.project_queries(x.reshape(rows, -1, x.shape[-1]))
        return cross(q, source, visible[:, None]).reshape(-1, length, x.shape[-1])

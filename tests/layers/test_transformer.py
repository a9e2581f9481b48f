import pytest
import torch
from torch import nn

from seqlab.equations.attention import attend, dot, general_score, join_heads, self_attention
from seqlab.equations.transformer import add_and_norm, feed_forward, layer_norm, norm_and_add
from seqlab.layers.inputs import Positions
from seqlab.layers.tap import listening
from seqlab.layers.transformer import (
    AddNorm,
    BatchNorm,
    FeedForward,
    MultiHeadAttention,
    TransformerBlock,
)
from seqlab.models.recurrent import SourceAttention
from seqlab.randomness import noise
from seqlab.recipe import TransformerConfig


def _copied(theirs: nn.MultiheadAttention, ours: MultiHeadAttention) -> None:
    ours.query_key_value.weight.data = theirs.in_proj_weight.data
    ours.query_key_value.bias.data = theirs.in_proj_bias.data
    ours.mix.load_state_dict(theirs.out_proj.state_dict())


@pytest.mark.parametrize("num_heads", [1, 2, 8])
def test_many_heads_equal_torchs(num_heads):
    theirs = nn.MultiheadAttention(16, num_heads, batch_first=True)
    nn.init.normal_(theirs.in_proj_bias)
    ours = MultiHeadAttention(16, num_heads=num_heads, name="a")
    _copied(theirs, ours)
    x, memory = torch.randn(3, 5, 16), torch.randn(3, 7, 16)
    visible = torch.rand(3, 7) > 0.4
    visible[:, 0] = True
    expected, weights = theirs(
        x, memory, memory, key_padding_mask=~visible, average_attn_weights=False
    )
    seen = {}

    fused = ours(
        ours.project_queries(x), ours.split(ours.keys_and_values(memory)), visible[:, None]
    )
    with listening(lambda name, value: seen.setdefault(name, value)):
        observed = ours(
            ours.project_queries(x), ours.split(ours.keys_and_values(memory)), visible[:, None]
        )

    torch.testing.assert_close(fused, expected)
    torch.testing.assert_close(observed, expected)
    torch.testing.assert_close(seen["a.weights"], weights)
    assert {"a.q", "a.k", "a.v", "a.score", "a.heads"} <= seen.keys()


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_an_encoder_block_equals_torchs(norm):
    theirs = nn.TransformerEncoderLayer(
        16, 4, 64, dropout=0.0, batch_first=True, norm_first=norm == "pre"
    )
    ours = TransformerBlock(TransformerConfig(size=16, heads=4, norm=norm), dropout=0.0, name="e")
    _copied(theirs.self_attn, ours.attention)
    ours.feed_forward.widen.load_state_dict(theirs.linear1.state_dict())
    ours.feed_forward.narrow.load_state_dict(theirs.linear2.state_dict())
    for layer, their_norm in ((ours.first, theirs.norm1), (ours.second, theirs.norm2)):
        nn.init.normal_(their_norm.weight)
        layer.norm.gain.data, layer.norm.bias.data = their_norm.weight.data, their_norm.bias.data
    x = torch.randn(3, 5, 16)
    real = torch.arange(5) < torch.tensor([[5], [2], [4]])
    expected = theirs(x, src_key_padding_mask=~real)
    torch.testing.assert_close(ours(x, real)[real], expected[real])


def test_many_heads_equal_the_equations():
    """E45 and E46 for each head, E47 for their mixture."""
    layer, x, visible = (
        MultiHeadAttention(16, num_heads=4, name="a"),
        torch.randn(3, 5, 16),
        torch.rand(3, 1, 5) > 0.4,
    )
    visible[..., 0] = True
    q, k, v = layer.project_all(x)
    heads, _ = attend(q, k, v, visible[:, None])
    torch.testing.assert_close(
        layer(q, (k, v), visible), join_heads(heads, layer.mix.weight) + layer.mix.bias
    )
    W_Q, W_K, W_V = (part.unflatten(0, (4, -1)) for part in layer.query_key_value.weight.chunk(3))
    for head in range(4):
        alone, _ = self_attention(x, W_Q[head], W_K[head], W_V[head], visible)
        torch.testing.assert_close(heads[:, head], alone)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_sublayer_with_its_norm_equals_the_equations(norm):
    """E50, E52, E53."""
    settings = TransformerConfig(size=16, heads=4, norm=norm)
    layer, around, x = (
        FeedForward(settings, dropout=0.0, name="f"),
        AddNorm(settings, dropout=0.0, name="n"),
        torch.randn(3, 5, 16),
    )
    nn.init.normal_(around.norm.gain)
    nn.init.normal_(around.norm.bias)

    def sublayer(x):
        return feed_forward(
            x, layer.widen.weight, layer.widen.bias, layer.narrow.weight, layer.narrow.bias
        )

    def normed(x):
        return layer_norm(x, around.norm.gain, around.norm.bias)

    torch.testing.assert_close(layer(x), sublayer(x))
    torch.testing.assert_close(around.norm(x), normed(x))
    expected = {"post": add_and_norm, "pre": norm_and_add}[norm](x, sublayer, normed)
    torch.testing.assert_close(around.leave(x, layer(around.enter(x, None)), None), expected)


def test_ablation_is_a_listener_too():
    layer = MultiHeadAttention(16, num_heads=4, name="encoder.0")
    x = torch.randn(3, 5, 16)
    q, k, v = layer.project_all(x)
    with listening(
        lambda name, value: torch.zeros_like(value) if name.endswith("weights") else value
    ):
        silenced = layer(q, (k, v), None)
    torch.testing.assert_close(silenced, layer.mix.bias.expand_as(silenced))


def test_heads_must_divide_the_features():
    with pytest.raises(ValueError, match="5 heads cannot share 16 features evenly"):
        MultiHeadAttention(16, num_heads=5, name="encoder.0")


@pytest.mark.parametrize("kind", ["dot", "general", "additive", "scaled"])
@pytest.mark.parametrize("memory_size", [8, 12])
def test_the_source_is_weighed_by_each_score(kind, memory_size):
    layer = SourceAttention(kind, 8, memory_size, name="a")
    memory, query = torch.randn(2, 6, memory_size), torch.randn(2, 3, 8)
    visible = torch.tensor([[True] * 6, [True, True] + [False] * 4])
    seen = {}
    with listening(lambda name, value: seen.setdefault(name, value)):
        context, weights = layer(query, layer.keys(memory), memory, visible)
    assert weights.equal(seen["a.weights"])
    torch.testing.assert_close(context, weights @ memory)
    if kind == "general":  # E42
        torch.testing.assert_close(seen["a.score"], general_score(query, memory, layer.key.weight))
    if kind == "dot":  # E1, of each query and key
        torch.testing.assert_close(
            seen["a.score"], dot(query[:, :, None], layer.keys(memory)[:, None])
        )
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3))
    assert weights[1, :, 2:].eq(0).all()


def test_batch_norm_uses_the_batch_in_training_and_what_it_saw_afterwards():
    ours, theirs = BatchNorm(6), nn.BatchNorm1d(6)
    x, real = torch.randn(4, 5, 6) * 2 + 1, torch.arange(5) < torch.tensor([[5], [3], [1], [4]])
    with noise(0, 0, torch.arange(4)):
        trained = ours(x, real)
    torch.testing.assert_close(trained[real], theirs(x[real]))
    assert trained[~real].eq(0).all()
    torch.testing.assert_close(ours.mean.data, theirs.running_mean)
    torch.testing.assert_close(ours(x), (x - ours.mean) / (ours.variance + 1e-5).sqrt())


def test_learned_positions_end_where_they_were_learned():
    positions = Positions("learned", 4, most=3, name="p")
    with pytest.raises(ValueError, match="4 positions where 3 were learned"):
        positions(torch.zeros(1, 2, 4), first=2)

"""The decoder that looks at the source, against the equations."""

import pytest
import torch

from seqlab.equations.attention import attention_vector
from seqlab.layers.inputs import Embedding
from seqlab.layers.linear import Head
from seqlab.layers.stack import CausalStack
from seqlab.models.interface import Memory
from seqlab.models.recurrent import AttentiveDecoder, Bridge, SourceAttention, attentive_sizes
from seqlab.padded import Padded
from seqlab.recipe import AttentionConfig, StackConfig

V, D, H, M = 9, 4, 5, 6


@pytest.mark.parametrize("feeding", [False, True])
def test_the_head_of_luongs_wiring_reads_the_attention_vector(feeding):
    """E40, of the context and the state of each step; with feeding it enters the next step."""
    torch.manual_seed(0)
    settings = AttentionConfig(score="dot", wiring="luong", feeding=feeding)
    input_size, feature_size = attentive_sizes(settings, D, H, M)
    stack = CausalStack(
        input_size, StackConfig(kind="rnn", size=H, layers=1), dropout=0.0, name="d"
    )
    decoder = AttentiveDecoder(
        Embedding(V, D, name="d"),
        stack,
        SourceAttention("dot", H, M, name="a"),
        Head(feature_size, V),
        bridge=Bridge(M, stack.state_sizes),
        memory_size=M,
        settings=settings,
        dropout=0.0,
    )
    source = Padded(torch.randn(2, 3, M), torch.tensor([3, 2])).masked()
    memory, tokens = (
        Memory(rows=2, states=source, summary=source.last()),
        torch.tensor([[2, 5, 7], [2, 4, 4]]),
    )

    context, state = decoder.start(memory)
    found = decoder.features(tokens, context, state).features

    fed = [state[-1]] if feeding else []
    h = state[:1]
    for step, x in enumerate(decoder.embedding(tokens).unbind(1)):
        out, h = stack(torch.cat([x, *fed], dim=-1)[:, None], h)
        c, _ = decoder.attention(out, *context)
        vector = attention_vector(c[:, 0], out[:, 0], decoder.vector.weight)
        torch.testing.assert_close(found[:, step], vector)
        fed = [vector] if feeding else []

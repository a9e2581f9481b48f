import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cosine as cosine_distance
from torch.nn.functional import scaled_dot_product_attention

from seqlab.equations.attention import (
    additive_score,
    attend,
    attention_pool,
    attention_vector,
    attention_weights,
    causal,
    cosine,
    diversity_penalty,
    dot,
    dot_score,
    doubly_stochastic_penalty,
    final_pool,
    general_score,
    hop_overlap,
    join_heads,
    masked_softmax,
    max_pool,
    mean_pool,
    scaled_score,
    self_attention,
    split_heads,
)
from seqlab.padded import Padded


def test_the_lectures_worked_example():
    """W2: q = W_Q y, x = e1, e2, e1; z = (2e^-½, e^½) / (2e^-½ + e^½)."""
    x = torch.eye(4)[[0, 1, 0]]
    W_V = torch.tensor([[1.0, 0, 0, 0], [0, 1, 1, 0]])
    W_Q = torch.tensor([[0.0, 1, 0], [1, 0, 0], [0, 0, 1], [1, 0, -1]])
    q = W_Q @ torch.tensor([1.0, -1.0, 0.0])
    assert q.tolist() == [-1, 1, 0, 1]
    assert dot_score(q[None], x).tolist() == [[-1, 1, -1]]

    z, weights = attend(
        q[None, None], x[None], (x @ W_V.mT)[None], torch.ones(1, 1, 3, dtype=torch.bool)
    )

    low, high = 2 * math.exp(-0.5), math.exp(0.5)
    torch.testing.assert_close(z[0, 0], torch.tensor([low, high]) / (low + high))
    torch.testing.assert_close(z[0, 0], torch.tensor([0.42388, 0.57612]), atol=1e-5, rtol=0)
    torch.testing.assert_close(weights[0, 0], torch.tensor([-0.5, 0.5, -0.5]).softmax(0))


def test_masked_scores_give_the_softmax_of_the_others():
    """W3: "I am space invader" (the slide's own rows 2 to 4 are not the softmax of its scores)."""
    score = torch.tensor(
        [
            [0.11, 0.04, 0.05, 0.3],
            [0.19, 0.53, 0.42, 0.37],
            [0.81, 0.21, 0.05, 0.09],
            [0.51, 0.43, 0.12, 0.03],
        ]
    )
    expected = torch.tensor(
        [
            [1, 0, 0, 0],
            [0.41581, 0.58419, 0, 0],
            [0.49591, 0.27216, 0.23192, 0],
            [0.31066, 0.28678, 0.21033, 0.19223],
        ]
    )
    weights = attention_weights(score[None], causal(4, 4)[None])
    torch.testing.assert_close(weights[0], expected, atol=1e-5, rtol=0)


def test_a_query_without_visible_keys_gets_zeros():
    weights = attention_weights(torch.randn(2, 3, 4), torch.zeros(1, 1, 4, dtype=torch.bool))
    assert weights.eq(0).all()


def test_attend_equals_fused_attention_of_torch():
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 7, 8), torch.randn(2, 4, 7, 8)
    visible = torch.rand(2, 1, 5, 7) > 0.3
    visible[..., 0] = True
    torch.testing.assert_close(
        attend(q, k, v, visible)[0], scaled_dot_product_attention(q, k, v, attn_mask=visible)
    )


def test_self_attention_is_attention_of_a_sequence_to_itself():
    x, W_Q, W_K, W_V = torch.randn(2, 5, 8), torch.randn(6, 8), torch.randn(6, 8), torch.randn(3, 8)
    visible = torch.ones(1, 5, 5, dtype=torch.bool)
    one, _ = self_attention(x, W_Q, W_K, W_V, visible)
    other, _ = attend(x @ W_Q.T, x @ W_K.T, x @ W_V.T, visible)
    torch.testing.assert_close(one, other)


def test_scores_by_hand():
    query, key = (
        torch.randn(1, 2, 3, dtype=torch.float64),
        torch.randn(1, 4, 3, dtype=torch.float64),
    )
    W, v = torch.randn(3, 3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    for s in range(2):
        for t in range(4):
            h, other = query[0, s], key[0, t]
            torch.testing.assert_close(dot_score(query, key)[0, s, t], h @ other)
            torch.testing.assert_close(general_score(query, key, W)[0, s, t], h @ W @ other)
            torch.testing.assert_close(
                additive_score(query, key, v)[0, s, t], v @ (h + other).tanh()
            )
            torch.testing.assert_close(scaled_score(query, key)[0, s, t], h @ other / math.sqrt(3))


def test_the_attention_vector_mixes_context_and_state():
    c, h, W_c = torch.randn(2, 3), torch.randn(2, 4), torch.randn(5, 7)
    torch.testing.assert_close(attention_vector(c, h, W_c), (torch.cat([c, h], 1) @ W_c.T).tanh())


def test_heads_are_split_and_joined_again():
    x = torch.randn(2, 5, 12)
    torch.testing.assert_close(join_heads(split_heads(x, 3), torch.eye(12)), x)


def test_queries_are_the_last_positions_of_the_keys():
    assert causal(2, 4).tolist() == [[True, True, True, False], [True, True, True, True]]
    assert causal(2, 4, window=2).tolist() == [
        [False, True, True, False],
        [False, False, True, True],
    ]


def test_the_diversity_penalty_is_zero_for_hops_on_separate_positions():
    apart = torch.eye(5)[:3][None]
    assert diversity_penalty(apart).item() == 0
    same = torch.eye(5)[[0, 0, 0]][None]
    assert diversity_penalty(same).item() == pytest.approx(
        6
    )  # six entries off the diagonal are 1 where 0 is wanted


def test_hop_overlap_is_the_weight_on_shared_positions():
    weights = torch.tensor(
        [[[1.0, 0.0, 0.0], [0.25, 0.75, 0.0]], [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]]]
    )
    assert hop_overlap(weights).tolist() == [0.25, 1.0]


def test_the_doubly_stochastic_penalty_is_zero_if_each_key_has_weight_one():
    weights = torch.tensor([[[1.0, 0, 0], [0, 1, 0], [0, 0, 1]], [[1, 0, 0], [1, 0, 0], [0, 0, 1]]])
    everything, two = torch.ones(2, 3, dtype=torch.bool), torch.tensor([[True, True, False]] * 2)
    assert doubly_stochastic_penalty(weights, everything).tolist() == [
        0,
        2,
    ]  # (1 - 2)² + (1 - 0)² + 0
    assert doubly_stochastic_penalty(weights, two).tolist() == [1, 3]


def attended(states, real, lengths):
    """One learned query, scored by the dot product."""
    query = torch.linspace(-1, 1, states.shape[-1], dtype=states.dtype)
    return attention_pool(states, states @ query, real)[0]


POOLS = {
    "mean": lambda states, real, lengths: mean_pool(states, real),
    "final": lambda states, real, lengths: final_pool(states, lengths),
    "max": lambda states, real, lengths: max_pool(states, real),
    "attention": attended,
}


every_pool = pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS.keys())


def padded(lengths, *, pad=0.0, width=None, seed=0):
    width = max(lengths) if width is None else width
    states = torch.randn(
        len(lengths), width, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    rows = Padded(states, torch.tensor(lengths))
    return rows.with_values(states.masked_fill(~rows.real[..., None], pad))


def test_by_hand():
    states = torch.tensor([[[1.0, 4.0], [3.0, -2.0], [9.0, 9.0]]])
    real = torch.tensor([[True, True, False]])
    assert mean_pool(states, real).tolist() == [[2.0, 1.0]]
    assert final_pool(states, torch.tensor([2])).tolist() == [[3.0, -2.0]]
    assert max_pool(states, real).tolist() == [[3.0, 4.0]]

    pooled, weights = attention_pool(states, torch.tensor([[0.0, math.log(3), 7.0]]), real)
    torch.testing.assert_close(weights, torch.tensor([[0.25, 0.75, 0.0]]))
    torch.testing.assert_close(pooled, torch.tensor([[2.5, -0.5]]))


def test_the_maximum_may_be_negative():
    rows = padded([2, 4])
    assert max_pool(rows.values - 100, rows.real).max() < 0


def test_equal_scores_give_the_mean():
    rows = padded([2, 4, 0, 1])
    pooled, _ = attention_pool(rows.values, torch.full((4, 4), 7.0, dtype=torch.float64), rows.real)
    torch.testing.assert_close(pooled, mean_pool(rows.values, rows.real))


@every_pool
@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    pad=st.sampled_from([7.0, math.inf, math.nan]),
)
def test_pads_change_nothing(pool, lengths, pad):
    """Law: a batch equals its rows one by one, whatever lies at the pads."""
    rows = padded(lengths, pad=pad, width=7)
    alone = [
        pool(row[None], torch.ones(1, len(row), dtype=torch.bool), torch.tensor([len(row)]))
        for row in rows.rows()
    ]
    torch.testing.assert_close(pool(rows.values, rows.real, rows.lengths), torch.cat(alone))


@every_pool
def test_no_gradient_reaches_a_pad(pool):
    rows = padded([2, 4, 0])
    states = rows.values.requires_grad_()
    pool(states, rows.real, rows.lengths).sum().backward()
    assert states.grad[~rows.real].eq(0).all()
    assert states.grad[1].ne(0).any()


@every_pool
@pytest.mark.parametrize("width", [0, 3])
def test_an_empty_row_pools_to_zeros(pool, width):
    rows = padded([0, 0], pad=math.nan, width=width)
    assert pool(rows.values, rows.real, rows.lengths).equal(torch.zeros(2, 3, dtype=torch.float64))


def test_dot_gives_the_lectures_scores():
    """W2: q = (-1, 1, 0, 1) with the keys e1, e2, e1."""
    query, keys = torch.tensor([-1.0, 1.0, 0.0, 1.0]), torch.eye(4)[[0, 1, 0]]
    assert dot(query.expand(3, 4), keys).tolist() == [-1.0, 1.0, -1.0]


def test_cosine_is_one_minus_scipys_distance():
    """W8."""
    x, y = torch.randn(2, 20, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = [1 - cosine_distance(a, b) for a, b in zip(x.numpy(), y.numpy(), strict=True)]
    torch.testing.assert_close(cosine(x, y), torch.tensor(expected, dtype=torch.float64))
    assert cosine(x, y).min() < 0  # the slide's "between 0 and 1" is a slip


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_cosine_is_in_range_and_independent_of_scale(scale):
    x = torch.randn(500, 7, generator=torch.Generator().manual_seed(0))
    assert cosine(scale * x, x).max() <= 1
    assert cosine(scale * x, -x).min() >= -1
    torch.testing.assert_close(cosine(scale * x, x), torch.ones(500))


def test_the_cosine_with_the_zero_vector_is_zero():
    x = torch.zeros(1, 3, requires_grad=True)
    similarity = cosine(x, torch.ones(1, 3))
    similarity.sum().backward()
    assert similarity.item() == 0
    assert x.grad.isfinite().all()


def test_masked_softmax_is_the_softmax_of_the_visible_scores():
    """W3; the slide's own rows 2 to 4 are not the softmax of its scores."""
    score = torch.tensor(
        [
            [0.11, 0.04, 0.05, 0.3],
            [0.19, 0.53, 0.42, 0.37],
            [0.81, 0.21, 0.05, 0.09],
            [0.51, 0.43, 0.12, 0.03],
        ]
    )
    expected = torch.tensor(
        [
            [1, 0, 0, 0],
            [0.41581, 0.58419, 0, 0],
            [0.49591, 0.27216, 0.23192, 0],
            [0.31066, 0.28678, 0.21033, 0.19223],
        ]
    )
    causal = torch.ones(4, 4).tril().bool()
    torch.testing.assert_close(masked_softmax(score, causal), expected, atol=1e-5, rtol=0)


def test_a_mask_is_broadcast_and_hides_any_value():
    score = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    score[..., 1] = math.nan
    visible = torch.tensor([True, False, True, True])
    weights = masked_softmax(score, visible[None, None])
    assert weights[..., 1].eq(0).all()
    torch.testing.assert_close(weights[..., visible], score[..., visible].softmax(-1))


def test_a_row_without_visible_scores_gets_zeros_and_no_gradient():
    score = torch.randn(2, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    weights = masked_softmax(score, torch.tensor([[False] * 4, [True] * 4]))
    (weights**2).sum().backward()
    assert weights[0].eq(0).all()
    assert score.grad[0].eq(0).all()
    assert score.grad[1].abs().min() > 0

import math

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from seqlab.equations.attention import (
    additive_score,
    attend,
    attention_vector,
    attention_weights,
    causal,
    diversity_penalty,
    dot_score,
    doubly_stochastic_penalty,
    general_score,
    hop_overlap,
    join_heads,
    scaled_score,
    self_attention,
    split_heads,
)


def test_the_lectures_worked_example():
    """W2: q = W_Q y, x = e1, e2, e1; z = (2e^-½, e^½) / (2e^-½ + e^½)."""
    x = torch.eye(4)[[0, 1, 0]]
    W_V = torch.tensor([[1.0, 0, 0, 0], [0, 1, 1, 0]])
    W_Q = torch.tensor([[0.0, 1, 0], [1, 0, 0], [0, 0, 1], [1, 0, -1]])
    q = W_Q @ torch.tensor([1.0, -1.0, 0.0])
    assert q.tolist() == [-1, 1, 0, 1]
    assert dot_score(q[None], x).tolist() == [[-1, 1, -1]]

    z, weights = attend(q[None, None], x[None], (x @ W_V.mT)[None], torch.ones(1, 1, 3, dtype=torch.bool))

    low, high = 2 * math.exp(-0.5), math.exp(0.5)
    torch.testing.assert_close(z[0, 0], torch.tensor([low, high]) / (low + high))
    torch.testing.assert_close(z[0, 0], torch.tensor([0.42388, 0.57612]), atol=1e-5, rtol=0)
    torch.testing.assert_close(weights[0, 0], torch.tensor([-0.5, 0.5, -0.5]).softmax(0))


def test_masked_scores_become_the_softmax_of_what_is_left():
    """W3: "I am space invader" (the slide's own rows 2 to 4 are not the softmax of its scores)."""
    score = torch.tensor(
        [[0.11, 0.04, 0.05, 0.3], [0.19, 0.53, 0.42, 0.37], [0.81, 0.21, 0.05, 0.09], [0.51, 0.43, 0.12, 0.03]]
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


def test_a_query_that_sees_nothing_gets_zeros():
    weights = attention_weights(torch.randn(2, 3, 4), torch.zeros(1, 1, 4, dtype=torch.bool))
    assert weights.eq(0).all()


def test_attend_equals_torchs_fused_attention():
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 7, 8), torch.randn(2, 4, 7, 8)
    visible = torch.rand(2, 1, 5, 7) > 0.3
    visible[..., 0] = True
    torch.testing.assert_close(attend(q, k, v, visible)[0], scaled_dot_product_attention(q, k, v, attn_mask=visible))


def test_self_attention_is_attention_of_a_sequence_to_itself():
    x, W_Q, W_K, W_V = torch.randn(2, 5, 8), torch.randn(6, 8), torch.randn(6, 8), torch.randn(3, 8)
    visible = torch.ones(1, 5, 5, dtype=torch.bool)
    one, _ = self_attention(x, W_Q, W_K, W_V, visible)
    other, _ = attend(x @ W_Q.T, x @ W_K.T, x @ W_V.T, visible)
    torch.testing.assert_close(one, other)


def test_scores_by_hand():
    query, key = torch.randn(1, 2, 3, dtype=torch.float64), torch.randn(1, 4, 3, dtype=torch.float64)
    W, v = torch.randn(3, 3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    for s in range(2):
        for t in range(4):
            h, other = query[0, s], key[0, t]
            torch.testing.assert_close(dot_score(query, key)[0, s, t], h @ other)
            torch.testing.assert_close(general_score(query, key, W)[0, s, t], h @ W @ other)
            torch.testing.assert_close(additive_score(query, key, v)[0, s, t], v @ (h + other).tanh())
            torch.testing.assert_close(scaled_score(query, key)[0, s, t], h @ other / math.sqrt(3))


def test_the_attention_vector_mixes_context_and_state():
    c, h, W_c = torch.randn(2, 3), torch.randn(2, 4), torch.randn(5, 7)
    torch.testing.assert_close(attention_vector(c, h, W_c), (torch.cat([c, h], 1) @ W_c.T).tanh())


def test_heads_are_split_and_joined_again():
    x = torch.randn(2, 5, 12)
    torch.testing.assert_close(join_heads(split_heads(x, 3), torch.eye(12)), x)


def test_queries_are_the_last_positions_of_the_keys():
    assert causal(2, 4).tolist() == [[True, True, True, False], [True, True, True, True]]
    assert causal(2, 4, window=2).tolist() == [[False, True, True, False], [False, False, True, True]]


def test_the_penalty_is_zero_for_hops_that_look_at_places_of_their_own():
    apart = torch.eye(5)[:3][None]
    assert diversity_penalty(apart).item() == 0
    same = torch.eye(5)[[0, 0, 0]][None]
    assert diversity_penalty(same).item() == pytest.approx(6)  # six entries off the diagonal are 1 where 0 is wanted


def test_hops_overlap_by_the_weight_that_lies_on_the_same_places():
    weights = torch.tensor([[[1.0, 0.0, 0.0], [0.25, 0.75, 0.0]], [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]]])
    assert hop_overlap(weights).tolist() == [0.25, 1.0]


def test_looking_at_each_place_once_in_all_costs_nothing():
    weights = torch.tensor([[[1.0, 0, 0], [0, 1, 0], [0, 0, 1]], [[1, 0, 0], [1, 0, 0], [0, 0, 1]]])
    everything, two = torch.ones(2, 3, dtype=torch.bool), torch.tensor([[True, True, False]] * 2)
    assert doubly_stochastic_penalty(weights, everything).tolist() == [0, 2]  # (1 - 2)² + (1 - 0)² + 0
    assert doubly_stochastic_penalty(weights, two).tolist() == [1, 3]

import math

import pytest
import torch
from scipy.spatial.distance import cosine as cosine_distance
from torch.nn import functional as F

from seqlab.equations.similarity import cosine, cross_entropy, dot, masked_softmax, perplexity


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
def test_cosine_neither_leaves_its_range_nor_minds_the_scale(scale):
    x = torch.randn(500, 7, generator=torch.Generator().manual_seed(0))
    assert cosine(scale * x, x).max() <= 1
    assert cosine(scale * x, -x).min() >= -1
    torch.testing.assert_close(cosine(scale * x, x), torch.ones(500))


def test_the_zero_vector_is_like_nothing():
    x = torch.zeros(1, 3, requires_grad=True)
    similarity = cosine(x, torch.ones(1, 3))
    similarity.sum().backward()
    assert similarity.item() == 0
    assert x.grad.isfinite().all()


def test_masked_softmax_is_the_softmax_of_what_is_left():
    """W3; the slide's own rows 2 to 4 are not the softmax of its scores."""
    score = torch.tensor(
        [[0.11, 0.04, 0.05, 0.3], [0.19, 0.53, 0.42, 0.37], [0.81, 0.21, 0.05, 0.09], [0.51, 0.43, 0.12, 0.03]]
    )
    expected = torch.tensor(
        [[1, 0, 0, 0], [0.41581, 0.58419, 0, 0], [0.49591, 0.27216, 0.23192, 0], [0.31066, 0.28678, 0.21033, 0.19223]]
    )
    causal = torch.ones(4, 4).tril().bool()
    torch.testing.assert_close(masked_softmax(score, causal), expected, atol=1e-5, rtol=0)


def test_one_mask_serves_many_rows_and_hides_whatever_is_there():
    score = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    score[..., 1] = math.nan
    visible = torch.tensor([True, False, True, True])
    weights = masked_softmax(score, visible[None, None])
    assert weights[..., 1].eq(0).all()
    torch.testing.assert_close(weights[..., visible], score[..., visible].softmax(-1))


def test_a_row_that_sees_nothing_gets_zeros_and_no_gradient():
    score = torch.randn(2, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    weights = masked_softmax(score, torch.tensor([[False] * 4, [True] * 4]))
    (weights**2).sum().backward()
    assert weights[0].eq(0).all()
    assert score.grad[0].eq(0).all()
    assert score.grad[1].abs().min() > 0


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 1.0])
def test_cross_entropy_and_its_gradient_are_torchs(label_smoothing):
    generator = torch.Generator().manual_seed(0)
    ours = torch.randn(6, 5, generator=generator, dtype=torch.float64).requires_grad_()
    theirs = ours.detach().clone().requires_grad_()
    gold, weight = torch.randint(5, (6,), generator=generator), torch.rand(6, generator=generator, dtype=torch.float64)

    loss = cross_entropy(ours, gold, label_smoothing=label_smoothing)
    expected = F.cross_entropy(theirs, gold, label_smoothing=label_smoothing, reduction="none")
    (weight @ loss).backward()
    (weight @ expected).backward()

    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_guessing_among_equals_has_their_number_as_perplexity():
    loss = cross_entropy(torch.zeros(3, 10), torch.tensor([0, 4, 9])).mean()
    assert perplexity(loss) == pytest.approx(10)
    assert perplexity(math.log(7)) == pytest.approx(7)


def test_a_hopeless_model_has_infinite_perplexity():
    assert perplexity(1e4) == math.inf

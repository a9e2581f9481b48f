import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqlab.equations import hmm
from seqlab.kernels import forward_backward as fast

FLOAT64 = {"dtype": torch.float64}


def chain(num_states, *shape, seed=0, spread=1.0):
    """A random π and A, and `log_b` of the given shape."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *size: torch.randn(*size, generator=generator, **FLOAT64)  # noqa: E731
    return (
        draw(num_states).softmax(-1),
        draw(num_states, num_states).softmax(-1),
        spread * draw(*shape, num_states),
    )


def joint_table(pi, A, log_b):
    """All state paths of one row, and the log of the joint probability of each with the observations."""
    paths = torch.tensor(list(itertools.product(range(len(pi)), repeat=len(log_b))))
    log_p = pi.log()[paths[:, 0]] + log_b[torch.arange(len(log_b)), paths].sum(-1)
    return paths, log_p + A.log()[paths[:, :-1], paths[:, 1:]].sum(-1)


def marginals(paths, log_p, num_states):
    """p(z_t = i) at each t, and Σ_t p(z_{t-1} = i, z_t = j), from the weights of all paths."""
    states = torch.nn.functional.one_hot(paths, num_states).double()
    weight = log_p.softmax(0)
    return (
        torch.einsum("p,pti->ti", weight, states),
        torch.einsum("p,pti,ptj->ij", weight, states[:, :-1], states[:, 1:]),
    )


@given(
    num_states=st.integers(1, 3),
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=4),
    seed=st.integers(0, 99),
    spread=st.sampled_from([0.0, 1.0, 30.0, 2000.0]),
    zeros=st.booleans(),
)
def test_everything_equals_the_joint_table(num_states, lengths, seed, spread, zeros):
    """Ragged rows, a missing observation, impossible transitions, likelihoods far below the smallest number."""
    lengths = torch.tensor(lengths)
    pi, A, log_b = chain(num_states, len(lengths), 6, seed=seed, spread=spread)
    log_b[:, 1] = 0.0
    if zeros:
        A = torch.eye(num_states, **FLOAT64).roll(1, 1).lerp(torch.eye(num_states, **FLOAT64), 0.5)

    filtered, log_likelihood = hmm.forward(pi, A, log_b, lengths)
    gamma, xi, log_p = hmm.posterior(pi, A, log_b, lengths)
    path, best = hmm.viterbi(pi, A, log_b, lengths)

    expected_xi = torch.zeros_like(A)
    for row, length in enumerate(lengths.tolist()):
        assert not any(x[row, length:].any() for x in (filtered, gamma, path))
        if length == 0:
            assert log_likelihood[row] == log_p[row] == best[row] == 0
            continue
        paths, table = joint_table(pi, A, log_b[row, :length])
        expected, pairs = marginals(paths, table, num_states)
        expected_xi += pairs
        torch.testing.assert_close(log_likelihood[row], table.logsumexp(0), atol=1e-8, rtol=1e-12)
        torch.testing.assert_close(gamma[row, :length], expected, atol=1e-8, rtol=0)
        torch.testing.assert_close(best[row], table.max(), atol=1e-8, rtol=1e-12)
        torch.testing.assert_close(
            joint_of(path[row, :length], pi, A, log_b[row]), table.max(), atol=1e-8, rtol=1e-12
        )
        for t in range(length):
            seen = marginals(*joint_table(pi, A, log_b[row, : t + 1]), num_states)[0][-1]
            torch.testing.assert_close(filtered[row, t], seen, atol=1e-8, rtol=0)
    torch.testing.assert_close(xi, expected_xi, atol=1e-8, rtol=0)
    torch.testing.assert_close(log_p, log_likelihood)


def joint_of(path, pi, A, log_b):
    """log p(x, z) of one path."""
    moves = A.log()[path[:-1], path[1:]].sum()
    return pi.log()[path[0]] + moves + log_b[torch.arange(len(path)), path].sum()


def test_backward_is_the_likelihood_of_what_follows():
    """E8, against the joint table of the rest with each state in turn as the certain one before it."""
    _, A, log_b = chain(3, 2, 5)
    lengths = torch.tensor([5, 3])
    log_beta = hmm.log_backward(A, log_b, lengths)
    for row, length in enumerate(lengths.tolist()):
        for t in range(length - 1):
            rest = torch.stack(
                [joint_table(A[i], A, log_b[row, t + 1 : length])[1].logsumexp(0) for i in range(3)]
            )
            torch.testing.assert_close(log_beta[row, t], rest)
        torch.testing.assert_close(log_beta[row, length - 1], torch.zeros(3, **FLOAT64))


def test_predict_and_condition_are_one_step_of_the_filter():
    """E5 and E6 are what E7 repeats."""
    pi, A, log_b = chain(4, 3, 7)
    filtered, log_likelihood = hmm.forward(pi, A, log_b, torch.full((3,), 7))
    predicted, log_p = pi.expand(3, -1), torch.zeros(3, **FLOAT64)
    for t in range(7):
        belief, c = hmm.condition(predicted, log_b[:, t].exp())
        torch.testing.assert_close(belief, filtered[:, t])
        log_p += c.squeeze(-1).log()
        predicted = hmm.predict(belief, A)
    torch.testing.assert_close(log_p, log_likelihood)


def test_the_posterior_is_the_gradient_of_the_likelihood():
    """γ = ∂ log p / ∂ log b, and ξ = ∂ log p / ∂ log A (E9)."""
    pi, A, log_b = chain(3, 4, 9)
    lengths, log_A = torch.tensor([9, 4, 1, 7]), A.log().requires_grad_()
    gamma, xi, _ = hmm.posterior(pi, A, log_b, lengths)
    hmm.forward(pi, log_A.exp(), log_b.requires_grad_(), lengths)[1].sum().backward()
    torch.testing.assert_close(log_b.grad, gamma)
    torch.testing.assert_close(log_A.grad, xi)


def test_weights_multiply_the_counts_of_rows():
    """A row with weight two is a row that is there twice, and one with weight zero is not there."""
    pi, A, log_b = chain(3, 3, 5)
    lengths = torch.tensor([5, 2, 4])
    weighted = hmm.posterior(pi, A, log_b, lengths, torch.tensor([2.0, 0.0, 1.0], **FLOAT64)).xi
    torch.testing.assert_close(
        weighted, hmm.posterior(pi, A, log_b[[0, 0, 2]], lengths[[0, 0, 2]]).xi
    )


def test_a_missing_observation_is_predicted_and_not_conditioned():
    pi, A, log_b = chain(3, 1, 3)
    log_b[:, 1] = 0.0
    filtered, _ = hmm.forward(pi, A, log_b, torch.tensor([3]))
    torch.testing.assert_close(filtered[:, 1], hmm.predict(filtered[:, 0], A))


def test_padding_changes_nothing_and_a_batch_equals_its_rows():
    pi, A, log_b = chain(4, 5, 12)
    lengths = torch.tensor([3, 12, 0, 7, 12])
    wider = torch.cat([log_b, torch.full((5, 6, 4), math.nan, **FLOAT64)], dim=1)
    for row, length in enumerate(lengths.tolist()):
        wider[row, length:] = math.nan
    gamma, xi, log_p = hmm.posterior(pi, A, wider, lengths)
    path, best = hmm.viterbi(pi, A, wider, lengths)
    cut = [log_b[i : i + 1, : max(n, 1)] for i, n in enumerate(lengths.tolist())]
    alone = [hmm.posterior(pi, A, row, lengths[i : i + 1]) for i, row in enumerate(cut)]
    for i, n in enumerate(lengths.tolist()):
        torch.testing.assert_close(gamma[i, :n], alone[i].gamma[0, :n])
        torch.testing.assert_close(log_p[i], alone[i].log_likelihood[0])
        alone_path, alone_best = hmm.viterbi(pi, A, log_b[i : i + 1, :n], lengths[i : i + 1])
        assert path[i, :n].equal(alone_path[0])
        torch.testing.assert_close(best[i], alone_best[0])
    torch.testing.assert_close(xi, sum(one.xi for one in alone))
    assert not gamma.isnan().any()


def test_an_impossible_row_is_minus_infinity_and_never_nan():
    """Row 0 is impossible in the middle, row 1 because its state cannot be reached; row 2 is fine."""
    pi, A = torch.tensor([1.0, 0.0], **FLOAT64), torch.eye(2, **FLOAT64)
    log_b = torch.zeros(3, 4, 2, **FLOAT64)
    log_b[0, 2] = -math.inf
    log_b[1, 2, 0] = -math.inf
    lengths = torch.tensor([4, 4, 4])
    filtered, log_likelihood = hmm.forward(pi, A, log_b, lengths)
    gamma, xi, log_p = hmm.posterior(pi, A, log_b, lengths)
    path, best = hmm.viterbi(pi, A, log_b, lengths)
    for result in (log_likelihood, log_p, best):
        assert result.tolist() == [-math.inf, -math.inf, 0.0]
    for result in (filtered, gamma, xi, path, hmm.log_backward(A, log_b, lengths)):
        assert not result.isnan().any()
    assert not gamma[:2].any()
    assert xi.tolist() == [[3.0, 0.0], [0.0, 0.0]]
    assert filtered[0, :2].tolist() == [[1.0, 0.0], [1.0, 0.0]]
    assert path[2].tolist() == [0, 0, 0, 0]


def test_reestimation_divides_counts():
    """E11: a state without counts keeps what it had, and what is impossible stays impossible."""
    last = torch.tensor([[0.5, 0.5], [0.0, 1.0], [0.3, 0.7]], **FLOAT64)
    counts = torch.tensor([[3.0, 1.0], [0.0, 2.0], [0.0, 0.0]], **FLOAT64)
    assert hmm.reestimate(counts, last).tolist() == [[0.75, 0.25], [0.0, 1.0], [0.3, 0.7]]
    smoothed = hmm.reestimate(counts, last, pseudo=1.0)
    torch.testing.assert_close(
        smoothed, torch.tensor([[4 / 6, 2 / 6], [0.0, 1.0], [0.3, 0.7]], **FLOAT64)
    )


@pytest.mark.parametrize("steep", [1.0, 400.0])
def test_moves_of_pairs_are_those_of_their_matrix(steep):
    """Also where a row must be done again in logs: the likelier label is the one that cannot be reached."""
    generator = torch.Generator().manual_seed(1)
    moves = torch.rand(4, 3, 3, dtype=torch.float64, generator=generator)
    moves[:, 0] = torch.tensor([1e-300, 0.0, 1.0])
    moves, pi = moves / moves.sum(-1, keepdim=True), torch.zeros(12, dtype=torch.float64)
    pi[:3] = torch.tensor([1.0, 0.0, 0.0])
    log_b = steep * torch.randn(3, 7, 3, dtype=torch.float64, generator=generator).repeat(1, 1, 4)
    lengths, weights = torch.tensor([7, 1, 4]), torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    matrix = hmm.as_matrix(moves)
    torch.testing.assert_close(matrix.sum(-1), torch.ones(12, dtype=torch.float64))
    for pairs, plain in (
        (hmm.forward(pi, moves, log_b, lengths), hmm.forward(pi, matrix, log_b, lengths)),
        (hmm.log_backward(moves, log_b, lengths), hmm.log_backward(matrix, log_b, lengths)),
        (hmm.viterbi(pi, moves, log_b, lengths), hmm.viterbi(pi, matrix, log_b, lengths)),
        (
            hmm.posterior(pi, moves, log_b, lengths, weights),
            hmm.posterior(pi, matrix, log_b, lengths, weights),
        ),
        (
            fast.posterior(pi, moves, log_b, lengths, weights),
            hmm.posterior(pi, matrix, log_b, lengths, weights),
        ),
    ):
        if isinstance(pairs, hmm.Posterior):
            pairs = pairs._replace(xi=hmm.as_matrix(pairs.xi))
            assert plain.xi.sum() > 5
        torch.testing.assert_close(tuple(pairs), tuple(plain))

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from seqlab.equations.decoding import (
    beam_step,
    choose,
    cross_entropy,
    greedy_choice,
    keep_top_k,
    keep_top_p,
    length_normalised,
    perplexity,
    sequence_log_probability,
    temper,
)

HELO = "helo"


HELLO_LOGITS = torch.tensor([[1.0, 2.2, -3.0, 4.1], [0.5, 0.3, -1.0, 1.2]])


probability_rows = st.lists(
    st.sampled_from([0.0, 1e-30, 1e-8, 0.1, 0.5, 3.0]), min_size=1, max_size=6
).filter(any)


few_logits = st.lists(
    st.sampled_from([-math.inf, -3.0, 0.0, 0.5, 2.0]), min_size=1, max_size=6
).filter(lambda row: max(row) > -math.inf)


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_sampling_hello_is_not_greedy():
    """W4: the argmax is "o", yet the slide samples "e".

    Its second row, (.249, .204, .055, .501), sums to 1.009: it is the softmax of its logits only to within 0.005.
    """
    probabilities = HELLO_LOGITS.softmax(-1)
    softmax = torch.tensor([[0.038, 0.125, 0.001, 0.837], [0.247, 0.202, 0.055, 0.497]])
    torch.testing.assert_close(probabilities, softmax, atol=6e-4, rtol=0)
    torch.testing.assert_close(
        probabilities[1], torch.tensor([0.249, 0.204, 0.055, 0.501]), atol=5e-3, rtol=0
    )
    assert [HELO[token] for token in greedy_choice(HELLO_LOGITS)] == ["o", "o"]
    assert HELO[choose(probabilities[:1], torch.tensor([0.1]))] == "e"
    assert HELO[choose(probabilities[:1], torch.tensor([0.9]))] == "o"


def test_all_sequences_together_have_probability_one():
    logits = numbers(1, 3, 4)
    every = torch.tensor(list(itertools.product(range(4), repeat=3)))
    log_p = sequence_log_probability(
        logits.expand(64, 3, 4), every, torch.ones(64, 3, dtype=torch.bool)
    )
    torch.testing.assert_close(log_p.exp().sum(), torch.tensor(1.0, dtype=torch.float64))
    assert log_p.argmax() == every.eq(greedy_choice(logits[0])).all(1).nonzero()


def test_pads_have_no_loss():
    logits, gold = numbers(2, 3, 4), torch.tensor([[1, 2, 3], [3, 0, -100]])
    real = torch.tensor([[True, True, True], [True, True, False]])
    logits[1, 2] = math.nan
    logits.requires_grad_()

    log_p = sequence_log_probability(logits, gold, real)
    log_p.sum().backward()

    by_hand = logits.detach().log_softmax(-1)
    torch.testing.assert_close(log_p[0], by_hand[0, 0, 1] + by_hand[0, 1, 2] + by_hand[0, 2, 3])
    torch.testing.assert_close(log_p[1], by_hand[1, 0, 3] + by_hand[1, 1, 0])
    assert logits.grad[1, 2].eq(0).all()


def test_an_empty_sequence_has_log_probability_zero():
    log_p = sequence_log_probability(
        numbers(2, 3, 4), torch.zeros(2, 3).long(), torch.zeros(2, 3).bool()
    )
    assert log_p.equal(torch.zeros(2, dtype=torch.float64))


def test_greedy_takes_the_first_of_equal_logits():
    assert greedy_choice(torch.tensor([[0.0, 2.0, 2.0], [1.0, 1.0, 1.0]])).tolist() == [1, 0]


def test_temperature_raises_probabilities_to_a_power():
    probabilities = torch.tensor([[0.2, 0.8, 0.0]])
    squared = temper(probabilities.log(), 0.5).softmax(-1)
    torch.testing.assert_close(squared, torch.tensor([[0.04, 0.64, 0.0]]) / 0.68)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_a_temperature_must_be_positive(temperature):
    with pytest.raises(ValueError, match=f"above 0, not {temperature}"):
        temper(HELLO_LOGITS, temperature)


@given(few_logits, st.integers(1, 8))
def test_top_k_keeps_the_first_k_of_a_stable_ranking(row, k):
    logits = torch.tensor([row])
    ranking = sorted(range(len(row)), key=lambda token: (-row[token], token))[:k]
    expected = [value if token in ranking else -math.inf for token, value in enumerate(row)]
    assert keep_top_k(logits, k).tolist() == [expected]


def test_top_1_is_greedy_also_for_equal_logits():
    logits = torch.tensor([[0.0, 2.0, 2.0], [1.0, 1.0, 1.0]])
    assert keep_top_k(logits, 1).isfinite().nonzero()[:, 1].equal(greedy_choice(logits))


def test_top_0_is_refused():
    with pytest.raises(ValueError, match="top-k must keep at least 1 token, not 0"):
        keep_top_k(HELLO_LOGITS, 0)


@pytest.mark.parametrize(
    ("p", "survivors"),
    [
        (1e-20, [1]),
        (0.49, [1]),
        (0.51, [1, 3]),
        (0.74, [1, 3]),
        (0.76, [0, 1, 3]),
        (1.0, [0, 1, 2, 3]),
    ],
)
def test_top_p_keeps_the_smallest_set_that_reaches_p(p, survivors):
    logits = torch.tensor([[0.2, 0.5, 0.05, 0.25]]).log()
    kept = keep_top_p(logits, p)
    assert kept.isfinite().nonzero()[:, 1].tolist() == survivors
    assert kept[:, survivors].equal(logits[:, survivors])


def test_top_p_stops_exactly_at_p_and_takes_the_first_of_equals():
    assert keep_top_p(torch.zeros(1, 4), 0.5).isfinite().tolist() == [[True, True, False, False]]


@given(few_logits, st.floats(0, 1, exclude_min=True))
def test_top_p_keeps_no_more_tokens_than_needed(row, p):
    logits = torch.tensor([row], dtype=torch.float64)
    probabilities = logits.softmax(-1)[0]
    kept = probabilities[keep_top_p(logits, p)[0].isfinite()]
    assert len(kept) >= 1
    assert kept.sum() >= p - 1e-9
    assert p == 1 or kept.sum() - kept.min() < p + 1e-9


def test_top_p_of_1_keeps_all_tokens():
    logits = torch.tensor([[100.0, 0.0, -100.0]])
    assert keep_top_p(logits, 1.0).equal(logits)


@pytest.mark.parametrize("p", [0.0, 1.1, math.nan])
def test_top_p_must_be_between_0_and_1(p):
    with pytest.raises(ValueError, match=f"not {p}"):
        keep_top_p(HELLO_LOGITS, p)


def test_evenly_spaced_uniform_numbers_reproduce_the_probabilities():
    probabilities, count = torch.tensor([0.2, 0.5, 0.0, 0.3]), 1000
    uniform = (torch.arange(count) + 0.5) / count
    chosen = choose(probabilities.expand(count, 4), uniform).bincount(minlength=4) / count
    torch.testing.assert_close(chosen, probabilities, atol=1 / count, rtol=0)


@given(
    probability_rows,
    st.sampled_from([0.0, 1e-45, 1e-9, 0.5, 1 - 2**-24, 1.0]) | st.floats(0, 1, width=32),
)
def test_a_token_of_probability_zero_is_never_chosen(row, uniform):
    """Also where rounding would lead past the last possible token; the row need not be normalised."""
    token = choose(torch.tensor([row]), torch.tensor([uniform]))
    assert row[token] > 0


@pytest.mark.parametrize("row", [[0.0, 0.0], [math.nan, 0.5]])
def test_a_row_without_probability_is_an_error(row):
    with pytest.raises(ValueError, match="row 1 has no token to choose from"):
        choose(torch.tensor([[0.5, 0.5], row]), torch.tensor([0.5, 0.5]))


def test_a_beam_step_keeps_the_best_extensions():
    scores, log_p = numbers(2, 3, seed=1), numbers(2, 3, 5, seed=2).log_softmax(-1)
    kept, parents, tokens = beam_step(scores, log_p, 4)
    for row in range(2):
        every = {
            (k, v): float(scores[row, k] + log_p[row, k, v]) for k in range(3) for v in range(5)
        }
        best = sorted(every, key=every.__getitem__, reverse=True)[:4]
        assert list(zip(parents[row].tolist(), tokens[row].tolist(), strict=True)) == best
        assert kept[row].tolist() == pytest.approx([every[pair] for pair in best])


def test_a_length_penalty_of_one_is_the_mean_and_of_zero_the_sum():
    score = torch.tensor([-6.0, -8.0])
    lengths = torch.tensor([2, 4])
    assert length_normalised(score, lengths, 1.0).tolist() == [-3.0, -2.0]  # the longer one wins
    assert length_normalised(score, lengths, 0.0).tolist() == [-6.0, -8.0]  # the shorter one does


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 1.0])
def test_cross_entropy_and_its_gradient_equal_torch(label_smoothing):
    generator = torch.Generator().manual_seed(0)
    ours = torch.randn(6, 5, generator=generator, dtype=torch.float64).requires_grad_()
    theirs = ours.detach().clone().requires_grad_()
    gold, weight = (
        torch.randint(5, (6,), generator=generator),
        torch.rand(6, generator=generator, dtype=torch.float64),
    )

    loss = cross_entropy(ours, gold, label_smoothing=label_smoothing)
    expected = F.cross_entropy(theirs, gold, label_smoothing=label_smoothing, reduction="none")
    (weight @ loss).backward()
    (weight @ expected).backward()

    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_the_perplexity_of_a_uniform_distribution_is_the_number_of_tokens():
    loss = cross_entropy(torch.zeros(3, 10), torch.tensor([0, 4, 9])).mean()
    assert perplexity(loss) == pytest.approx(10)
    assert perplexity(math.log(7)) == pytest.approx(7)


def test_a_probability_of_zero_gives_infinite_perplexity():
    assert perplexity(1e4) == math.inf

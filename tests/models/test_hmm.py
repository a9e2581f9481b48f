import itertools
import math
from dataclasses import replace

import pytest
import torch
from torch.distributions import MultivariateNormal

from seqlab.errors import DataError
from seqlab.models.emissions import Categorical, DiagonalGaussian, FullGaussian
from seqlab.models.hmm import HMM
from seqlab.padded import Padded
from tests.hmm_samples import sample

KINDS = ["categorical", "diagonal", "full"]


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def model(kind, num_states=3, size=4, seed=0):
    emissions = {
        "categorical": lambda: Categorical(numbers(num_states, size, seed=seed + 2).softmax(-1)),
        "diagonal": lambda: DiagonalGaussian(
            2 * numbers(num_states, size), numbers(num_states, size, seed=3).exp()
        ),
        "full": lambda: FullGaussian(2 * numbers(num_states, size), covariances(num_states, size)),
    }[kind]()
    return HMM(
        numbers(num_states).softmax(-1),
        numbers(num_states, num_states, seed=seed + 1).softmax(-1),
        emissions,
    )


def covariances(num_states, size):
    factor = numbers(num_states, size, size, seed=3)
    return factor @ factor.mT + 0.5 * torch.eye(size, dtype=torch.float64)


def ragged(hmm, *, gaps=True):
    """Rows of 5, 0, 2 and 3 positions, one of them unobserved; of vectors, some features are missing and NaN."""
    _, sampled = sample(hmm, 4, 5, seed=1)
    lengths, observed = torch.tensor([5, 0, 2, 3]), torch.ones(4, 5, dtype=torch.bool)
    observed[0, 2] = observed[3, 0] = False
    if sampled.values.dim() == 2 or not gaps:
        return Padded(sampled.values, lengths, observed)
    present = numbers(4, 5, 4, seed=7) > -0.5
    present[0, 1] = False
    return Padded(
        sampled.values.masked_fill(~present, math.nan), lengths, present & observed[..., None]
    )


def log_density(emissions, state, value, present):
    """log p of one observation, by torch's own distributions, over the features that are there."""
    if isinstance(emissions, Categorical):
        return emissions.probabilities[state, value].log()
    if not present.any():
        return torch.tensor(0.0, dtype=torch.float64)
    covariance = (
        emissions.variances[state].diag()
        if hasattr(emissions, "variances")
        else emissions.covariances[state]
    )
    normal = MultivariateNormal(emissions.means[state, present], covariance[present][:, present])
    return normal.log_prob(value[present])


def joint_table(hmm, observations, row):
    """Every state path of a row, with the log of its joint probability with what was observed."""
    length = int(observations.lengths[row])
    paths = list(itertools.product(range(hmm.num_states), repeat=length))
    log_p = torch.zeros(len(paths), dtype=torch.float64)
    for i, path in enumerate(paths):
        for t, state in enumerate(path):
            log_p[i] += (hmm.transitions[path[t - 1], state] if t else hmm.initial[state]).log()
            if observations.scored[row, t]:
                there = observations.observed[row, t].expand(4)
                log_p[i] += log_density(hmm.emissions, state, observations.values[row, t], there)
    return torch.tensor(paths).view(len(paths), length), log_p


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gaps", [False, True])
def test_a_model_equals_its_joint_table(kind, gaps):
    hmm = model(kind)
    observations = ragged(hmm, gaps=gaps)
    gamma, _, log_likelihood = hmm.posterior(observations)
    path, best = hmm.viterbi(observations)
    for row in (0, 2, 3):
        length = int(observations.lengths[row])
        paths, table = joint_table(hmm, observations, row)
        expected = (
            torch.nn.functional.one_hot(paths, 3)
            .double()
            .mul(table.softmax(0)[:, None, None])
            .sum(0)
        )
        torch.testing.assert_close(log_likelihood[row], table.logsumexp(0), atol=1e-8, rtol=0)
        torch.testing.assert_close(gamma[row, :length], expected, atol=1e-8, rtol=0)
        torch.testing.assert_close(best[row], table.max(), atol=1e-8, rtol=0)
        assert path[row, :length].tolist() == paths[table.argmax()].tolist()
    assert log_likelihood[1] == pytest.approx(0.0, abs=1e-12)
    assert not gamma[1].any()


@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_nothing_and_a_batch_equals_its_rows(kind):
    hmm = model(kind)
    observations = ragged(hmm)
    together = hmm.posterior(observations)
    for row, length in enumerate(observations.lengths.tolist()):
        alone = Padded(
            observations.values[row : row + 1, :length],
            torch.tensor([length]),
            observations.observed[row : row + 1, :length],
        )
        one = hmm.posterior(alone)
        torch.testing.assert_close(one.gamma[0], together.gamma[row, :length])
        torch.testing.assert_close(one.log_likelihood[0], together.log_likelihood[row])


@pytest.mark.parametrize("kind", ["diagonal", "full"])
def test_a_mask_of_all_features_equals_none(kind):
    hmm = model(kind)
    _, observations = sample(hmm, 3, 6, seed=1)
    everything, nothing = (
        replace(observations, observed=torch.full((3, 6, 4), there)) for there in (True, False)
    )
    torch.testing.assert_close(hmm.posterior(everything).gamma, hmm.posterior(observations).gamma)
    assert hmm.log_emissions(nothing).eq(0).all()


def test_a_full_gaussian_with_a_diagonal_covariance_is_the_diagonal_one():
    diagonal = model("diagonal")
    full = HMM(
        diagonal.initial,
        diagonal.transitions,
        FullGaussian(diagonal.emissions.means, diagonal.emissions.variances.diag_embed()),
    )
    observations = ragged(diagonal)
    torch.testing.assert_close(
        full.log_emissions(observations), diagonal.log_emissions(observations)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_samples_are_keyed_by_row_and_step(kind):
    hmm = model(kind)
    states, observations = sample(hmm, 6, 9, seed=1)
    fewer_states, fewer = sample(hmm, 4, 5, seed=1)
    assert fewer_states.equal(states[:4, :5])
    assert fewer.values.equal(observations.values[:4, :5])
    assert not sample(hmm, 6, 9, seed=2)[0].equal(states)


@pytest.mark.parametrize("kind", KINDS)
def test_samples_have_the_statistics_of_the_model(kind):
    hmm = model(kind)
    states, observations = sample(hmm, 4000, 5, seed=1)
    chain = torch.nn.functional.one_hot(states, 3).double()
    moves = torch.einsum("bti,btj->ij", chain[:, :-1], chain[:, 1:])
    torch.testing.assert_close(chain[:, 0].mean(0), hmm.initial, atol=0.03, rtol=0)
    torch.testing.assert_close(
        moves / moves.sum(1, keepdim=True), hmm.transitions, atol=0.03, rtol=0
    )
    for state in range(3):
        values = observations.values[states == state]
        if kind == "categorical":
            frequency = torch.bincount(values, minlength=4) / len(values)
            torch.testing.assert_close(
                frequency.double(), hmm.emissions.probabilities[state], atol=0.03, rtol=0
            )
            continue
        spread = (
            hmm.emissions.variances[state].diag()
            if kind == "diagonal"
            else hmm.emissions.covariances[state]
        )
        torch.testing.assert_close(values.mean(0), hmm.emissions.means[state], atol=0.15, rtol=0)
        torch.testing.assert_close(values.mT.cov(), spread, atol=0.3, rtol=0.1)


def test_a_probability_of_zero_is_never_sampled():
    emissions = Categorical(torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5]], dtype=torch.float64))
    hmm = HMM(
        torch.tensor([0.0, 1.0]).double(),
        torch.tensor([[0.0, 1.0], [1.0, 0.0]]).double(),
        emissions,
    )
    states, observations = sample(hmm, 500, 4, seed=0)
    assert states.unique(dim=0).tolist() == [[1, 0, 1, 0]]
    assert observations.values[:, ::2].unique().tolist() == [0, 2]
    assert observations.values[:, 1::2].unique().tolist() == [1]


def test_an_impossible_symbol_gives_no_nan():
    emissions = Categorical(torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]], dtype=torch.float64))
    hmm = HMM(torch.tensor([0.5, 0.5]).double(), torch.full((2, 2), 0.5).double(), emissions)
    observations = Padded.from_rows([[0, 2, 1], [0, 1, 1]])
    assert hmm.posterior(observations).log_likelihood.tolist()[0] == -math.inf
    assert hmm.viterbi(observations)[1].tolist()[0] == -math.inf
    assert hmm.posterior(observations).gamma.isfinite().all()
    assert hmm.posterior(observations).log_likelihood[1].isfinite()


@pytest.mark.parametrize("kind", KINDS)
def test_saving_and_loading_is_identity(kind):
    hmm = model(kind)
    again = HMM.from_tensors(hmm.tensors())
    assert type(again.emissions) is type(hmm.emissions)
    assert all(tensor.equal(hmm.tensors()[name]) for name, tensor in again.tensors().items())


@pytest.mark.parametrize(
    ("row", "message"), [([0.5, 0.4], "differs from 1 by 0.1"), ([1.5, -0.5], "negative")]
)
def test_rows_that_are_not_distributions_are_refused(row, message):
    with pytest.raises(DataError, match=message):
        HMM(torch.tensor(row).double(), torch.eye(2).double(), Categorical(torch.eye(2).double()))


def test_rows_with_rounding_errors_are_normalised():
    """Otherwise pads, which only predict, would change something."""
    rounded = torch.tensor([[0.9, 0.1], [0.3, 0.7]]).double()
    hmm = HMM(torch.tensor([0.2, 0.8]).double(), rounded, Categorical(rounded))
    assert (rounded.sum(-1) - 1).abs().max() > 1e-9
    assert (hmm.transitions.sum(-1) - 1).abs().max() < 1e-15

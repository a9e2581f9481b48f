import itertools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.hmm_fit import (
    HMMSettings,
    HMMShape,
    baum_welch,
    count_hmm,
    fit_hmm,
    grouped,
    rows_of,
    select_order,
    start_hmm,
)
from seqlab.errors import DataError, RunError
from seqlab.models.emissions import Categorical, DiagonalGaussian, FullGaussian
from seqlab.models.hmm import HMM
from seqlab.padded import Padded
from seqlab.training import baum_welch as em
from seqlab.training.baum_welch import HMMData
from tests.hmm_samples import sample

KINDS = ["categorical", "diagonal", "full"]
INITIAL = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
TRANSITIONS = torch.tensor(
    [[0.85, 0.1, 0.05], [0.1, 0.8, 0.1], [0.15, 0.05, 0.8]], dtype=torch.float64
)
SYMBOLS = torch.tensor(
    [[0.7, 0.2, 0.05, 0.05, 0.0], [0.0, 0.1, 0.75, 0.1, 0.05], [0.05, 0.0, 0.1, 0.15, 0.7]],
    dtype=torch.float64,
)
MEANS = torch.tensor([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]], dtype=torch.float64)
COVARIANCES = torch.tensor(
    [[[1.0, 0.6], [0.6, 1.0]], [[0.5, 0.0], [0.0, 2.0]], [[1.0, -0.4], [-0.4, 0.5]]]
).double()


def planted(kind):
    emissions = {
        "categorical": Categorical(SYMBOLS),
        "diagonal": DiagonalGaussian(MEANS, COVARIANCES.diagonal(dim1=1, dim2=2)),
        "full": FullGaussian(MEANS, COVARIANCES),
    }[kind]
    return HMM(INITIAL, TRANSITIONS, emissions)


def data(kind, num=60, length=40, seed=1):
    states, observations = sample(planted(kind), num, length, seed=seed)
    return states, HMMData(observations)


def family(kind, num_states=3):
    return HMMShape(num_states, kind, num_symbols=5 if kind == "categorical" else None)


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def in_order(model, like):
    """The same model with its states renamed to be closest to another's."""

    def renamed(order):
        order = list(order)
        emitted = {name: tensor[order] for name, tensor in vars(model.emissions).items()}
        return HMM(
            model.initial[order],
            model.transitions[order][:, order],
            type(model.emissions)(**emitted),
        )

    def distance(other):
        pairs = zip(vars(other.emissions).values(), vars(like.emissions).values(), strict=True)
        return sum(float((a - b).square().sum()) for a, b in pairs)

    return min(
        (renamed(order) for order in itertools.permutations(range(like.num_states))), key=distance
    )


def assert_same(one, other, **tolerance):
    for name, tensor in one.tensors().items():
        torch.testing.assert_close(tensor, other.tensors()[name], **tolerance)


def test_one_step_equals_the_textbook():
    """E11 from the expected counts over all 2⁴ paths."""
    start = HMM(
        torch.tensor([0.6, 0.4]).double(),
        torch.tensor([[0.7, 0.3], [0.2, 0.8]]).double(),
        Categorical(torch.tensor([[0.5, 0.4, 0.1], [0.1, 0.3, 0.6]]).double()),
    )
    x = [0, 2, 1, 0]
    paths = list(itertools.product(range(2), repeat=4))
    weight = torch.ones(len(paths)).double()
    for i, path in enumerate(paths):
        for t, (state, symbol) in enumerate(zip(path, x, strict=True)):
            weight[i] *= start.transitions[path[t - 1], state] if t else start.initial[state]
            weight[i] *= start.emissions.probabilities[state, symbol]
    weight /= weight.sum()
    first, moves, emitted = (
        torch.zeros(2).double(),
        torch.zeros(2, 2).double(),
        torch.zeros(2, 3).double(),
    )
    for p, path in zip(weight, paths, strict=True):
        first[path[0]] += p
        for a, b in itertools.pairwise(path):
            moves[a, b] += p
        for state, symbol in zip(path, x, strict=True):
            emitted[state, symbol] += p

    model = baum_welch(
        start, HMMData(Padded.from_rows([x])), settings=HMMSettings(iterations=1)
    ).model

    torch.testing.assert_close(model.initial, first)
    torch.testing.assert_close(model.transitions, moves / moves.sum(1, keepdim=True))
    torch.testing.assert_close(
        model.emissions.probabilities, emitted / emitted.sum(1, keepdim=True)
    )


@settings(max_examples=40)
@given(
    kind=st.sampled_from(KINDS),
    num_states=st.integers(1, 4),
    seed=st.integers(0, 999),
    pseudo=st.sampled_from([0.0, 0.3]),
    gaps=st.booleans(),
    labelled=st.booleans(),
)
def test_the_likelihood_never_falls(kind, num_states, seed, pseudo, gaps, labelled):
    """Ragged rows, missing observations and features, some labels, weights, pseudo-counts."""
    lengths = torch.tensor([7, 1, 4, 0, 7])
    draw = numbers(5, 7, 2, seed=seed)
    values = draw[..., 0].mul(3).long().abs() % 5 if kind == "categorical" else draw
    observed = numbers(5, 7, seed=seed + 2) > -1.0 if gaps else None
    if gaps and kind != "categorical":
        observed = (numbers(5, 7, 2, seed=seed + 1) > -0.7) & observed[..., None]
    labels = (
        (numbers(5, 7, seed=seed + 3).abs() * 3).long() % (num_states + 1) - 1 if labelled else None
    )
    evidence = HMMData(Padded(values, lengths, observed), labels, numbers(5, seed=seed + 4).exp())
    search = HMMSettings(
        restarts=2,
        iterations=15,
        tolerance=-math.inf,
        seed=seed,
        pseudo=pseudo,
        pseudo_emissions=pseudo,
    )
    for run in fit_hmm(evidence, family(kind, num_states), settings=search).restarts:
        assert len(run.objectives) == 16
        for before, after in itertools.pairwise(run.objectives):
            assert after >= before - 1e-9 * (1 + abs(before))


@pytest.mark.parametrize("kind", KINDS)
def test_a_restart_recovers_the_true_model(kind):
    _, evidence = data(kind, num=150, length=60)
    fit = fit_hmm(evidence, family(kind), settings=HMMSettings(restarts=3, iterations=200))
    assert fit.best.converged
    assert fit.best.log_likelihood == max(restart.log_likelihood for restart in fit.restarts)
    assert fit.best.log_likelihood > float(
        planted(kind).posterior(evidence.observations).log_likelihood.sum()
    )
    assert_same(in_order(fit.best.model, planted(kind)), planted(kind), atol=0.1, rtol=0.1)


def test_the_true_model_is_recovered_despite_missing_values():
    """A fifth of the positions unobserved, a third of the features missing at the others, what lies there is NaN."""
    _, evidence = data("full", num=200, length=60)
    observed, present = numbers(200, 60, seed=5) > -0.84, numbers(200, 60, 2, seed=6) > -0.43
    observed = present & observed[..., None]
    values = evidence.observations.values.masked_fill(~observed, math.nan)
    holed = HMMData(Padded(values, evidence.observations.lengths, observed))
    fit = fit_hmm(holed, family("full"), settings=HMMSettings(restarts=2, iterations=200))
    assert_same(in_order(fit.best.model, planted("full")), planted("full"), atol=0.15, rtol=0.15)


def test_counting_gives_relative_frequencies():
    observations, labels = (
        Padded.from_rows([[0, 1, 1], [2, 0]]),
        torch.tensor([[0, 0, 1], [1, 0, -1]]),
    )
    model = count_hmm(HMMData(observations, labels=labels), HMMShape(2, num_symbols=3))
    expected = {
        "initial": [1 / 2, 1 / 2],
        "transitions": [[1 / 2, 1 / 2], [1.0, 0.0]],
        "emissions.probabilities": [[2 / 3, 1 / 3, 0.0], [0.0, 1 / 2, 1 / 2]],
    }
    for name, tensor in model.tensors().items():
        torch.testing.assert_close(tensor, torch.tensor(expected[name]).double())

    smooth = HMMSettings(pseudo=1.0, pseudo_emissions=0.5)
    smoothed = count_hmm(
        HMMData(observations, labels=labels), HMMShape(2, num_symbols=3), settings=smooth
    )
    torch.testing.assert_close(
        smoothed.transitions, torch.tensor([[2 / 4, 2 / 4], [2 / 3, 1 / 3]]).double()
    )
    symbols = torch.tensor(
        [[2.5 / 4.5, 1.5 / 4.5, 0.5 / 4.5], [0.5 / 3.5, 1.5 / 3.5, 1.5 / 3.5]]
    ).double()
    torch.testing.assert_close(smoothed.emissions.probabilities, symbols)


@pytest.mark.parametrize("kind", ["diagonal", "full"])
def test_counted_gaussians_have_the_moments_of_their_vectors(kind):
    states, evidence = data(kind)
    model = count_hmm(replace(evidence, labels=states), family(kind))
    for state in range(3):
        values = evidence.observations.values[states == state]
        torch.testing.assert_close(model.emissions.means[state], values.mean(0))
        spread = values.mT.cov(correction=0)
        if kind == "diagonal":
            torch.testing.assert_close(model.emissions.variances[state], spread.diagonal())
        else:
            torch.testing.assert_close(model.emissions.covariances[state], spread)


def test_counting_without_all_labels_is_refused():
    evidence = HMMData(Padded.from_rows([[0, 1]]), labels=torch.tensor([[0, -1]]))
    with pytest.raises(DataError, match="a label at every position"):
        count_hmm(evidence, HMMShape(2))


@pytest.mark.parametrize("kind", KINDS)
def test_unlabelled_rows_improve_on_labelled_rows_alone(kind):
    """Three labelled rows among sixty: they name the states, and the others sharpen them."""
    states, evidence = data(kind, num=60, length=40)
    labels = states.clone()
    labels[3:] = -1
    smooth = HMMSettings(restarts=1, pseudo=0.1, pseudo_emissions=0.1)
    few = count_hmm(
        HMMData(Padded(evidence.observations.values[:3], torch.full((3,), 40)), labels=states[:3]),
        family(kind),
        settings=smooth,
    )
    both = fit_hmm(replace(evidence, labels=labels), family(kind), settings=smooth).best.model

    truth, unseen = data(kind, num=200, length=40, seed=2)
    right = [
        float((m.posterior(unseen.observations).gamma.argmax(-1) == truth).double().mean())
        for m in (few, both)
    ]
    likelihoods = [
        float(m.posterior(unseen.observations).log_likelihood.sum()) for m in (few, both)
    ]
    assert right[1] > right[0] - 0.005
    assert right[1] > 0.85
    assert likelihoods[1] > likelihoods[0]


def test_a_known_label_fixes_its_state():
    """With every position labelled, EM has nothing to decide, whatever it starts from."""
    states, evidence = data("categorical")
    labelled = replace(evidence, labels=states)
    for restart in range(2):
        run = baum_welch(
            start_hmm(evidence, family("categorical"), seed=0, restart=restart), labelled
        )
        assert_same(run.model, count_hmm(labelled, family("categorical")))


def test_a_weight_equals_copies_of_a_row():
    _, evidence = data("full", num=4, length=20)
    copies = torch.tensor([0, 0, 0, 2, 3])
    weights = torch.tensor([3.0, 0.0, 1.0, 1.0], dtype=torch.float64)
    start = start_hmm(evidence, family("full"), seed=0)
    search = HMMSettings(iterations=5)
    assert_same(
        baum_welch(start, replace(evidence, weights=weights), settings=search).model,
        baum_welch(start, rows_of(evidence, copies), settings=search).model,
        atol=1e-3,  # the floor is measured by the vectors as they lie there
        rtol=1e-3,
    )


def test_results_do_not_depend_on_the_size_of_batches(monkeypatch):
    lengths = torch.tensor([3, 12, 7, 12, 1, 0])
    evidence = HMMData(
        Padded(data("categorical", num=6, length=12)[1].observations.values, lengths)
    )
    start = start_hmm(evidence, family("categorical"), seed=0)
    whole = baum_welch(start, evidence, settings=HMMSettings(iterations=5))
    monkeypatch.setattr(em, "_MAX_NUMBERS", 1)
    assert len(grouped(evidence, 3)) == 5
    assert_same(baum_welch(start, evidence, settings=HMMSettings(iterations=5)).model, whole.model)


def test_an_unvisited_state_keeps_its_parameters():
    start = HMM(
        torch.tensor([1.0, 0.0]).double(),
        torch.eye(2).double(),
        Categorical(torch.tensor([[0.5, 0.5], [0.9, 0.1]]).double()),
    )
    model = baum_welch(start, HMMData(Padded.from_rows([[0, 1, 1, 1]]))).model
    assert model.transitions.equal(start.transitions)
    torch.testing.assert_close(
        model.emissions.probabilities, torch.tensor([[0.25, 0.75], [0.9, 0.1]]).double()
    )


@pytest.mark.parametrize("kind", ["diagonal", "full"])
def test_an_unvisited_gaussian_keeps_its_parameters(kind):
    start = planted(kind)
    start = HMM(torch.tensor([1.0, 0.0, 0.0]).double(), torch.eye(3).double(), start.emissions)
    model = baum_welch(start, data(kind, num=3)[1], settings=HMMSettings(iterations=3)).model
    for name, tensor in vars(model.emissions).items():
        assert tensor[1:].equal(vars(start.emissions)[name][1:])
        assert not tensor[:1].equal(vars(start.emissions)[name][:1])


def test_forbidden_transitions_stay_forbidden():
    right = torch.tensor([[0.9, 0.1, 0.0], [0.0, 0.9, 0.1], [0.0, 0.0, 1.0]], dtype=torch.float64)
    start = HMM(torch.tensor([1.0, 0.0, 0.0]).double(), right, planted("diagonal").emissions)
    _, observations = sample(start, 30, 50, seed=1)
    run = baum_welch(start, HMMData(observations), settings=HMMSettings(pseudo=0.5))
    assert run.model.transitions[right == 0].eq(0).all()
    torch.testing.assert_close(run.model.transitions, right, atol=0.05, rtol=0)


@pytest.mark.parametrize("kind", ["diagonal", "full"])
def test_no_state_collapses_onto_a_point(kind):
    """The same vector over and over, and a constant feature: the floor holds, and nothing is NaN or infinite."""
    values = torch.cat([torch.zeros(20, 2), torch.tensor([[5.0, 0.0]])]).double()[None]
    fit = fit_hmm(
        HMMData(Padded(values, torch.tensor([21]))),
        family(kind, 3),
        settings=HMMSettings(floor=1e-2),
    )
    assert all(tensor.isfinite().all() for tensor in fit.best.model.tensors().values())
    assert all(math.isfinite(restart.log_likelihood) for restart in fit.restarts)
    spread = vars(fit.best.model.emissions)["variances" if kind == "diagonal" else "covariances"]
    spread = spread if kind == "diagonal" else spread.diagonal(dim1=1, dim2=2)
    assert (spread[:, 0] >= 0.99e-2 * values[0, :, 0].var(correction=0)).all()


def test_an_impossible_start_is_an_error():
    start = HMM(
        torch.tensor([1.0, 0.0]).double(), torch.eye(2).double(), Categorical(torch.eye(2).double())
    )
    with pytest.raises(DataError, match="probability zero under the model"):
        baum_welch(start, HMMData(Padded.from_rows([[0, 1]])))


def test_fitting_without_data_is_an_error():
    with pytest.raises(DataError, match="nothing to fit"):
        baum_welch(
            planted("categorical"), HMMData(Padded(torch.zeros(2, 0).long(), torch.zeros(2).long()))
        )


def test_a_decreasing_likelihood_is_an_error():
    em.check_ascent([-5.0, -4.0, -4.0 - 1e-12])
    with pytest.raises(RunError, match=r"fell from -4\.0 to -4\.1"):
        em.check_ascent([-5.0, -4.0, -4.1])


def test_fitting_is_deterministic_and_reports_progress():
    _, evidence = data("categorical", num=10)
    likelihoods = []
    search = HMMSettings(restarts=2, iterations=5, seed=3)
    fit = fit_hmm(
        evidence,
        family("categorical"),
        settings=search,
        progress=lambda *step: likelihoods.append(step),
    )
    again = fit_hmm(evidence, family("categorical"), settings=search)
    assert_same(again.best.model, fit.best.model, atol=0, rtol=0)
    assert [(restart, iteration) for restart, iteration, _ in likelihoods] == [
        (r, i) for r in range(2) for i in range(6)
    ]
    assert [objective for _, _, objective in likelihoods] == [
        *fit.restarts[0].objectives,
        *fit.restarts[1].objectives,
    ]
    assert (fit.best.converged, len(fit.best.objectives)) == (False, 6)
    assert not fit.restarts[0].model.transitions.equal(fit.restarts[1].model.transitions)


@pytest.mark.parametrize("kind", ["categorical", "diagonal"])
@pytest.mark.parametrize("by", ["bic", "held out"])
def test_the_true_number_of_states_is_selected(kind, by):
    _, evidence = data(kind, num=80, length=50)
    held_out = data(kind, num=200, length=50, seed=2)[1] if by == "held out" else None
    search = HMMSettings(
        restarts=3, iterations=60, tolerance=1e-5, pseudo=0.1, pseudo_emissions=0.1
    )
    table, best = select_order(
        evidence, family(kind), [1, 2, 3, 4], held_out=held_out, settings=search
    )
    assert [candidate.num_states for candidate in table] == [1, 2, 3, 4]
    assert table[best].num_states == 3
    assert table[3].fit.log_likelihood > table[0].fit.log_likelihood


def test_unseen_symbols_need_pseudo_counts():
    evidence_seen, unseen = HMMData(Padded.from_rows([[0, 1, 0]])), HMMData(Padded.from_rows([[2]]))
    with pytest.raises(DataError, match="some held-out row is impossible"):
        select_order(evidence_seen, HMMShape(1, num_symbols=3), [1, 2], held_out=unseen)


def test_observations_of_the_wrong_kind_are_refused():
    vectors = HMMData(Padded(torch.zeros(1, 2, 1).double(), torch.tensor([2])))
    with pytest.raises(DataError, match="categorical states emit symbols, and these are vectors"):
        fit_hmm(vectors, HMMShape(2))
    with pytest.raises(DataError, match="full states emit vectors, and these are symbols"):
        fit_hmm(HMMData(Padded.from_rows([[0, 1]])), HMMShape(2, "full"))
    nothing = replace(vectors.observations, observed=torch.zeros(1, 2, 1, dtype=torch.bool))
    with pytest.raises(DataError, match="nothing was observed"):
        fit_hmm(HMMData(nothing), HMMShape(2, "full"))

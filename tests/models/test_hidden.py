from itertools import product

import pytest
import torch

from seqlab.equations.hmm import as_matrix
from seqlab.layers.tap import listening
from seqlab.models import hmm as module
from seqlab.models.emissions import Categorical
from seqlab.models.hmm import HMM, HMMDecoder, HMMTagger, label_chain
from seqlab.models.interface import Memory
from seqlab.padded import Padded

K, V, FIRST = 3, 5, 4


def distributions(*shape, seed=1):
    draws = (
        torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        + 0.05
    )
    return draws / draws.sum(-1, keepdim=True)


def chain(order):
    """π, p(w | history), b; histories of two labels count from 1, with 0 before the first."""
    shape = (K,) if order == 1 else (K + 1, K)
    return distributions(K), distributions(*shape, K, seed=2), distributions(K, V, seed=3)


def joint(order, symbols, labels):
    """log p(x, z), straight from the definition."""
    initial, moves, b = chain(order)
    p = initial[labels[0]] * b[labels[0], symbols[0]]
    for t in range(1, len(labels)):
        history = (
            (labels[t - 1],) if order == 1 else (0 if t == 1 else labels[t - 2] + 1, labels[t - 1])
        )
        p = p * moves[history][labels[t]] * b[labels[t], symbols[t]]
    return p


def tagger(order):
    initial, moves, b = chain(order)
    return HMMTagger(label_chain(initial, moves, Categorical(b)))


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("cells", [1, 1 << 22])
def test_posteriors_and_best_paths_are_those_of_the_joint_table(order, cells, monkeypatch):
    monkeypatch.setattr(module, "_MAX_CELLS", cells)
    rows, model = [[0, 3, 1, 2], [2], [4, 4, 0]], tagger(order)
    source = Padded.from_rows(rows)
    posterior, best = model.features(source), model.decode(source)
    for row, symbols in enumerate(rows):
        paths = list(product(range(K), repeat=len(symbols)))
        p = torch.stack([joint(order, symbols, path) for path in paths])
        assert best[row, : len(symbols)].tolist() == list(paths[int(p.argmax())])
        for t, label in product(range(len(symbols)), range(K)):
            share = sum(p[i] for i, path in enumerate(paths) if path[t] == label) / p.sum()
            torch.testing.assert_close(posterior[row, t, label], share)
    torch.testing.assert_close(model.head(posterior).exp()[source.real], posterior[source.real])


def test_the_best_path_over_pairs_equals_that_of_the_full_matrix():
    """The shortcut for states that few can come before equals the maximum over all of them."""
    model = tagger(2).hmm.model
    source = Padded.from_rows([[0, 3, 1, 2, 0, 1], [2, 2]])
    log_b = model.log_emissions(source)
    delta = model.initial.log() + log_b[:, 0]
    matrix = as_matrix(model.transitions)
    for t in range(1, 6):
        alive = (t < source.lengths)[:, None]
        delta = torch.where(alive, (delta[:, :, None] + matrix.log()).amax(1) + log_b[:, t], delta)
    torch.testing.assert_close(model.viterbi(source)[1], delta.amax(-1))


def test_rows_without_a_position_are_allowed():
    source = Padded.from_rows([[], [1]])
    assert tagger(2).decode(source).shape == (2, 1)
    assert tagger(2).decode(Padded.from_rows([[]])).shape == (1, 0)


@pytest.fixture
def decoder():
    return HMMDecoder(
        HMM(
            distributions(K), distributions(K, K, seed=2), Categorical(distributions(K, V, seed=3))
        ),
        first=FIRST,
    )


def test_a_decoder_gives_the_probability_of_each_token_after_those_before(decoder):
    model, tokens = decoder.hmm.model, torch.tensor([[0, 3, 1, 2]])
    logits, _ = decoder.read(tokens, *decoder.start(Memory(1)))
    for t in range(1, 4):
        before, after = (
            model.posterior(Padded(tokens[:, :n], torch.tensor([n]))).log_likelihood
            for n in (t, t + 1)
        )
        torch.testing.assert_close(logits[0, t - 1, tokens[0, t]], (after - before)[0])
    torch.testing.assert_close(logits.exp().sum(-1), torch.ones(1, 4, dtype=torch.float64))


def test_the_first_token_resets_the_belief(decoder):
    context, state = decoder.start(Memory(2))
    logits, (belief,) = decoder.read(torch.tensor([[0, 3, FIRST], [FIRST, 1, 2]]), context, state)
    torch.testing.assert_close(belief[0], decoder.hmm.initial.data)
    torch.testing.assert_close(
        logits[0, 2].exp(), decoder.hmm.initial @ decoder.hmm.emissions["probabilities"]
    )
    torch.testing.assert_close(logits[1, 0], logits[0, 2])


def test_an_impossible_token_does_not_change_the_belief():
    b = torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]], dtype=torch.float64)
    decoder = HMMDecoder(
        HMM(distributions(2), distributions(2, 2, seed=2), Categorical(b)), first=9
    )
    logits, (belief,) = decoder.read(torch.tensor([[2, 0]]), *decoder.start(Memory(1)))
    assert logits[0, :, 2].eq(-torch.inf).all()
    assert logits[0, :, :2].isfinite().all()
    torch.testing.assert_close(belief.sum(-1), torch.ones(1, dtype=torch.float64))


def test_beliefs_can_be_recorded_and_replaced(decoder):
    seen = {}
    with listening(lambda name, value: seen.setdefault(name, value)):
        read = decoder.features(torch.tensor([[0, 1]]), *decoder.start(Memory(1)))
        tagger(2).features(Padded.from_rows([[0, 1]]))
    assert seen["decoder.belief"] is read.features
    assert seen["encoder.posterior"].shape == (1, 2, K)
    with listening(
        lambda name, value: torch.full_like(value, 1 / K) if name == "decoder.belief" else value
    ):
        even, _ = decoder.read(torch.tensor([[0, 1]]), *decoder.start(Memory(1)))
    torch.testing.assert_close(even[0, 0], even[0, 1])

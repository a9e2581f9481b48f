import pytest
import torch

from experiments.hmm_fit import HMMShape
from seqlab.errors import DataError
from seqlab.models.emissions import DiagonalGaussian, FullGaussian
from seqlab.padded import Padded
from seqlab.training.baum_welch import HMMData
from seqlab.training.counting import CLASS_WEIGHT, Symbols, count_labels, interpolate

NAMES = ("A", "B")
SYMBOLS = Symbols(
    torch.tensor([0, 0, 0]), num_words=3, root=0
)  # two words, which fall back on the root


def evidence(rows, labels):
    observations = Padded.from_rows(rows)
    return HMMData(observations, labels=Padded.from_rows(labels).values)


def test_transitions_use_deleted_interpolation():
    """Counts (0: the start): 0A 2, AB 3, BA 1, BB 1. Seen once less: 0A 1/1, AB 2/2 and BB 0/1, BA 0/1 by bigrams;
    by unigrams A 2/6, B 3/6. So bigrams win 2 + 3, unigrams 1 + 1, and one is added to each."""
    ngrams = torch.tensor([[2.0, 0.0], [0.0, 3.0], [1.0, 1.0]], dtype=torch.float64)
    bigram, unigram = 6 / 9, 3 / 9
    alone = torch.tensor([3 + 1, 4 + 1], dtype=torch.float64) / 9
    expected = bigram * ngrams / ngrams.sum(-1, keepdim=True) + unigram * alone
    torch.testing.assert_close(interpolate(ngrams), expected)


def test_an_unseen_history_uses_the_shorter_one():
    ngrams = torch.zeros(3, 3, 2, dtype=torch.float64)
    ngrams[0, 1] = torch.tensor([5.0, 1.0])
    p = interpolate(ngrams)
    torch.testing.assert_close(p.sum(-1), torch.ones(3, 3, dtype=torch.float64))
    torch.testing.assert_close(p[2, 1], p[0, 1])  # nobody met 2 1; what follows 1 is known
    assert p.min() > 0


@pytest.mark.parametrize("order", [1, 2])
def test_ngrams_with_an_unknown_label_are_not_counted(order):
    """A row with gaps counts as much as its whole pieces do, where none of them begins a row."""
    whole = [[0, 1, 1, 0], [1, 0, 0, 1, 1]]
    rows = [[1] * len(labels) for labels in whole]
    gaps = [*whole, [-1, 0], [-1, -1, 1]]
    one = count_labels([evidence(rows, whole)], NAMES, SYMBOLS, order=order, smoothing=0.1)
    other = count_labels(
        [evidence([*rows, [1, 1], [1, 1, 1]], gaps)], NAMES, SYMBOLS, order=order, smoothing=0.1
    )
    assert other.model.transitions.equal(one.model.transitions)
    assert other.model.initial.equal(one.model.initial)


def test_words_are_smoothed_by_their_class_and_classes_by_the_root():
    """Symbols: 0 the root, 1 a word of the root, 2 a word of class 4, 3 a word of class 4; 4 the class itself."""
    symbols, k = Symbols(torch.tensor([0, 0, 4, 4, 0]), num_words=4, root=0), 0.5
    rows, labels = [[1] * 12 + [2, 2, 2, 3]], [[0] * 12 + [1, 1, 0, 1]]
    model = count_labels([evidence(rows, labels)], NAMES, symbols, order=1, smoothing=k).model
    counts = torch.tensor([[12.0, 0], [1, 2], [0, 1]], dtype=torch.float64)
    overall = counts.sum(0) / 16
    labelled = counts[1] + counts[2]  # word 1 is not rare
    root = (labelled + CLASS_WEIGHT * overall) / (4 + CLASS_WEIGHT)
    of_class = (labelled + CLASS_WEIGHT * root) / (4 + CLASS_WEIGHT)
    above = torch.stack([root, of_class, of_class])
    of_words = (counts + k * above) / (counts.sum(-1, keepdim=True) + k)
    p = torch.stack([root, *of_words, of_class])
    met = torch.tensor(
        [1.0, 12, 3, 1, 1], dtype=torch.float64
    )  # of the class: one word was met once
    joint = (p * met[:, None]).mT
    torch.testing.assert_close(model.emissions.probabilities, joint / joint.sum(-1, keepdim=True))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_an_unlabelled_word_has_the_distribution_of_its_class(smoothing):
    symbols = Symbols(torch.tensor([0, 4, 4, 4, 0]), num_words=4, root=0)
    rows, labels = [[1, 2, 3, 3, 1, 2, 3, 3]], [[0, 1, -1, -1, 0, 0, -1, -1]]
    b = count_labels(
        [evidence(rows, labels)], NAMES, symbols, order=1, smoothing=smoothing
    ).model.emissions.probabilities
    torch.testing.assert_close(b[0, 3] / b[1, 3], b[0, 4] / b[1, 4])


@pytest.mark.parametrize(
    ("kind", "emissions"), [("diagonal", DiagonalGaussian), ("full", FullGaussian)]
)
def test_gaussians_have_the_moments_of_each_label(kind, emissions):
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(60).reshape(3, 20) % 3 - 1  # a third is not known
    x = torch.randn(3, 20, 2, generator=generator) + 10 * labels[..., None]
    given = HMMData(Padded(x, torch.tensor([20, 20, 20])), labels=labels)
    fitted = count_labels([given], NAMES, HMMShape(2, kind), order=1, smoothing=0.1).model.emissions
    assert isinstance(fitted, emissions)
    for label in (0, 1):
        here = x[labels == label].double()
        torch.testing.assert_close(fitted.means[label], here.mean(0))
        spread = (
            fitted.variances[label] if kind == "diagonal" else fitted.covariances[label].diagonal()
        )
        torch.testing.assert_close(spread, here.var(0, unbiased=False))


def test_a_missing_label_is_named():
    with pytest.raises(
        DataError, match=r"^the label 'B' does not occur in the training part$"
    ) as caught:
        count_labels([evidence([[1, 2]], [[0, -1]])], NAMES, SYMBOLS, order=1, smoothing=0.1)
    assert "data.max_source" in caught.value.hint

import pytest
import torch

from seqlab.padded import Batch, Padded

ROWS = [[5, 6, 7], [], [8], [9, 10]]


@pytest.fixture
def words():
    return Padded.from_rows(ROWS)


@pytest.fixture
def vectors():
    """Two features a position, with something that is not a number at every pad."""
    rows = [torch.arange(2.0 * len(row)).view(-1, 2) + 1 for row in ROWS]
    padded = Padded.from_rows(rows)
    return padded.with_values(padded.values.masked_fill(~padded.real[..., None], torch.nan))


def test_rows_are_padded_on_the_right(words):
    assert words.values.tolist() == [[5, 6, 7], [0, 0, 0], [8, 0, 0], [9, 10, 0]]
    assert words.lengths.tolist() == [3, 0, 1, 2]
    assert words.values.dtype == torch.long
    assert len(words) == 4


def test_the_pad_can_be_chosen():
    assert Padded.from_rows([[1], [2, 3]]).values.tolist() == [[1, 0], [2, 3]]


def test_rows_of_feature_vectors_keep_their_features():
    padded = Padded.from_rows([torch.ones(2, 3), torch.ones(1, 3)])
    assert padded.values.shape == (2, 2, 3)
    assert padded.values[1].sum() == 3
    assert padded.values.dtype == torch.float32


@pytest.mark.parametrize("rows", [[], [[]], [[], []]])
def test_an_empty_batch(rows):
    padded = Padded.from_rows(rows)
    assert padded.values.shape == (len(rows), 0)
    assert padded.real.shape == (len(rows), 0)
    assert padded.masked().values.shape == (len(rows), 0)
    assert padded.reversed().values.shape == (len(rows), 0)
    assert padded.last().tolist() == [0] * len(rows)
    assert [row.tolist() for row in padded.rows()] == rows


def test_the_last_value_of_empty_rows_is_zero():
    last = Padded(torch.empty(2, 0, 3), torch.tensor([0, 0])).last()
    assert last.equal(torch.zeros(2, 3))


def test_real_positions_are_inside_the_sequence(words):
    assert words.real.int().tolist() == [[1, 1, 1], [0, 0, 0], [1, 0, 0], [1, 1, 0]]


def test_rows_are_returned_without_pads(words):
    assert [row.tolist() for row in words.rows()] == ROWS


def test_pads_and_missing_values_are_not_scored(words):
    """A missing value is real, a pad is not, whatever `observed` says of it."""
    observed = torch.tensor([[1, 0, 1], [1, 1, 1], [0, 1, 1], [1, 1, 1]]).bool()
    padded = Padded(words.values, words.lengths, observed)
    assert words.scored.equal(words.real)
    assert padded.real.equal(words.real)
    assert padded.scored.int().tolist() == [[1, 0, 1], [0, 0, 0], [0, 0, 0], [1, 1, 0]]


def test_the_last_value_is_at_the_last_real_position(words, vectors):
    assert words.last().tolist() == [7, 0, 8, 10]
    assert vectors.last().tolist() == [[5, 6], [0, 0], [1, 2], [3, 4]]


def test_masking_sets_pads_to_zero(vectors):
    masked = vectors.masked()
    assert masked.values.isfinite().all()
    assert masked.values.sum() == vectors.values.nansum()
    assert masked.values[~masked.real].eq(0).all()


def test_reversing_keeps_pads_on_the_right(words):
    assert words.reversed().values.tolist() == [[7, 6, 5], [0, 0, 0], [8, 0, 0], [10, 9, 0]]
    assert words.reversed().lengths.equal(words.lengths)


def test_reversing_twice_is_the_identity(words, vectors):
    observed = torch.arange(12).view(4, 3) % 3 == 1
    padded = Padded(words.values, words.lengths, observed)
    assert padded.reversed().reversed().values.equal(padded.values)
    assert padded.reversed().reversed().observed.equal(observed)
    assert vectors.reversed().reversed().masked().values.equal(vectors.masked().values)


def test_observed_marks_are_reversed_with_their_values():
    padded = Padded(
        torch.tensor([[1, 2, 3, 0]]), torch.tensor([3]), torch.tensor([[True, False, False, False]])
    )
    assert padded.reversed().observed.tolist() == [[False, False, True, False]]


def test_other_values_keep_lengths_and_observed_marks(words):
    padded = Padded(words.values, words.lengths, words.real)
    other = padded.with_values(torch.zeros(4, 3, 2))
    assert other.values.shape == (4, 3, 2)
    assert other.lengths is padded.lengths
    assert other.observed is padded.observed


def test_a_batch_names_the_parts_it_has(words):
    target = Padded.from_rows([[1], [1], [1], [1, 2]])
    batch = Batch(torch.arange(4), source=words, target=target)
    assert list(batch.parts()) == ["source", "target"]
    assert batch.parts()["target"] is target
    assert len(batch) == 4

import pytest
import torch

from seqlab.randomness import mix, uniform

MANY = torch.arange(20_000)


def splitmix64(x):
    """The generator's published finaliser, in Python's own integers."""
    ones = (1 << 64) - 1
    x = (x + 0x9E3779B97F4A7C15) & ones
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & ones
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & ones
    return x ^ (x >> 31)


def test_a_key_of_zero_leaves_splitmix64():
    rows = [0, 1, 7, 123_456_789, 2**62]
    expected = [splitmix64(row) & (2**63 - 1) for row in rows]
    assert mix(torch.tensor(rows), 0).tolist() == expected


def test_the_same_keys_give_the_same_numbers_in_any_batch():
    together = uniform(MANY, 3, 5)
    assert uniform(MANY[[17]], 3, 5) == together[17]
    assert uniform(MANY.flip(0), 3, 5).equal(together.flip(0))
    assert uniform(MANY.view(100, 200), 3, 5).equal(together.view(100, 200))


@pytest.mark.parametrize("keys", [(4, 5), (3, 6), (5, 3), (3, 5, 0), (3,), (-3, 5)])
def test_other_keys_give_other_numbers(keys):
    assert (uniform(MANY, 3, 5) != uniform(MANY, *keys)).all()


def test_numbers_are_not_negative_and_do_not_collide():
    numbers = mix(MANY, 1, 2)
    assert (numbers >= 0).all()
    assert len(numbers.unique()) == len(MANY)


@pytest.mark.parametrize("keys", [(0,), (1, 0), (0, 1), (2**40, 7)])
def test_numbers_are_roughly_uniform(keys):
    drawn = uniform(MANY, *keys)
    assert drawn.dtype == torch.float64
    assert drawn.min() >= 0
    assert drawn.max() < 1
    counts = torch.histc(drawn, bins=20, min=0, max=1)
    chi_square = ((counts - 1000) ** 2 / 1000).sum()
    assert chi_square < 43.8  # 19 degrees of freedom, one in a thousand


def test_neighbouring_rows_and_keys_are_independent():
    drawn = torch.stack([uniform(MANY[:2000], 1, step) for step in range(4)])
    across = torch.corrcoef(torch.cat([drawn, drawn.roll(1, dims=1)]))
    assert (across - torch.eye(8)).abs().max() < 0.1

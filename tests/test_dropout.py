import pytest
import torch

from seqlab.randomness import BLOCK, Dropout, noise

B, T, D = 4, 6, 50
ROWS = torch.tensor([11, 3, 500, 7])
ONES = torch.ones(B, T, D)


def dropped(x=ONES, rows=ROWS, *, rate=0.3, name="layer", seed=1, step=2):
    with noise(seed, step, rows):
        return Dropout(rate, name=name)(x)


def test_outside_of_a_noise_block_nothing_is_dropped():
    layer = Dropout(0.9, name="layer")
    assert layer(ONES) is ONES
    with pytest.raises(RuntimeError, match="stopped"), noise(1, 2, ROWS):
        raise RuntimeError("stopped")
    assert layer(ONES) is ONES


def test_a_rate_of_zero_drops_nothing():
    assert dropped(rate=0.0) is ONES


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_rate_is_respected_and_the_mean_preserved(rate):
    x = torch.ones(64, 40, 50)
    out = dropped(x, torch.arange(64), rate=rate)
    kept = out[out != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - rate)))
    assert abs(1 - len(kept) / out.numel() - rate) < 0.01
    assert abs(out.mean() - 1) < 0.05


def test_the_same_keys_give_the_same_mask():
    assert dropped().equal(dropped())


def test_the_mask_of_a_row_does_not_depend_on_the_batch():
    together = dropped()
    assert dropped(ONES[:1], ROWS[2:3])[0].equal(together[2])
    assert dropped(ONES, ROWS.flip(0)).equal(together.flip(0))


def test_the_mask_of_a_row_does_not_depend_on_the_padding():
    assert dropped(torch.ones(B, T + 9, D))[:, :T].equal(dropped())


def test_a_mask_wider_than_a_block_of_the_pool_begins_like_a_narrow_one():
    wide = dropped(torch.ones(2, BLOCK + 10), ROWS[:2])
    assert wide[:, :100].equal(dropped(torch.ones(2, 100), ROWS[:2]))
    assert abs(wide.mean() - 1) < 0.01


@pytest.mark.parametrize("other", [{"seed": 2}, {"step": 3}, {"name": "other"}, {"rows": ROWS + 1}])
def test_another_key_gives_another_mask(other):
    agree = (dropped() == dropped(**other)).float().mean(dim=(1, 2))
    assert (agree - (0.7**2 + 0.3**2)).abs().max() < 0.15  # as often as chance would have it


def test_rows_of_a_batch_have_different_masks():
    out = dropped()
    assert all(not out[i].equal(out[j]) for i in range(B) for j in range(i))


def test_the_pattern_is_the_same_in_every_precision():
    single, double = dropped(), dropped(ONES.double())
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), single)


def test_gradients_are_masked_too():
    x = torch.ones(B, T, D, requires_grad=True)
    out = dropped(x)
    out.sum().backward()
    assert x.grad.equal(out.detach())


def test_an_empty_batch_needs_no_mask():
    assert dropped(torch.ones(B, 0, D)).shape == (B, 0, D)

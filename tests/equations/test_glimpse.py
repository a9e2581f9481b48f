import torch

from seqlab.equations.glimpse import filter_bank, place_window, read_window


def window(numbers, *, height=9, width=9, num_filters=3):
    return place_window(
        torch.tensor([numbers]), height=height, width=width, num_filters=num_filters
    )


def banks(seen, *, num_filters, height, width):
    rows = filter_bank(seen.y, seen.stride, seen.variance, num_filters=num_filters, length=height)
    columns = filter_bank(seen.x, seen.stride, seen.variance, num_filters=num_filters, length=width)
    return rows, columns


def test_zeros_give_the_window_of_the_whole_picture():
    seen = window([0.0] * 5)
    assert (seen.x.item(), seen.y.item(), seen.stride.item(), seen.intensity.item()) == (4, 4, 4, 1)
    assert seen.variance.item() == 4  # half a stride, squared
    oblong = window([0.0] * 5, height=5, width=9)
    assert (oblong.x.item(), oblong.y.item(), oblong.stride.item()) == (4, 2, 4)


def test_a_sharp_window_reads_the_pixels_under_it():
    """Stride 1, centre (5, 2), and filters so narrow that each sees one pixel: rows 1-3, columns 4-6."""
    pixels = torch.arange(63.0).reshape(1, 7, 9, 1)
    one = torch.ones(1)
    rows = filter_bank(2 * one, one, 1e-3 * one, num_filters=3, length=7)
    columns = filter_bank(5 * one, one, 1e-3 * one, num_filters=3, length=9)
    patch = read_window(pixels, rows, columns, 2 * one)
    torch.testing.assert_close(patch[0, ..., 0], 2 * pixels[0, 1:4, 4:7, 0])


def test_a_window_between_two_pixels_averages_them():
    centre, one = torch.tensor([1.5]), torch.ones(1)
    row = filter_bank(centre, one, 0.05 * one, num_filters=1, length=4)[0, 0]
    torch.testing.assert_close(row, torch.tensor([0.0, 0.5, 0.5, 0.0]), atol=1e-4, rtol=0)


def test_a_filter_sums_to_one_or_is_zero_outside_of_the_picture():
    centre, stride = torch.tensor([3.0, 500.0]), torch.tensor([2.0, 1.0])
    bank = filter_bank(centre, stride, torch.tensor([0.7, 0.7]), num_filters=5, length=8)
    torch.testing.assert_close(bank[0].sum(-1), torch.ones(5))
    assert bank[1].eq(0).all()


def test_the_window_position_has_a_gradient():
    pixels = torch.rand(2, 6, 5, 2, dtype=torch.double, generator=torch.Generator().manual_seed(1))

    def read(numbers):
        seen = place_window(numbers, height=6, width=5, num_filters=3)
        return read_window(pixels, *banks(seen, num_filters=3, height=6, width=5), seen.intensity)

    numbers = 0.3 * torch.randn(
        2, 5, dtype=torch.double, generator=torch.Generator().manual_seed(2)
    )
    assert torch.autograd.gradcheck(read, (numbers.requires_grad_(),))

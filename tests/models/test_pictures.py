import torch

from seqlab.models.glimpse import GlimpseEncoder
from seqlab.models.pictures import ConvolutionalEncoder, grid_positions
from seqlab.padded import Padded
from seqlab.recipe import Convolution, Glimpse, Image
from seqlab.trace import Trace


def rows(num, image, *, seed=1):
    values = torch.randn(num, image.height, image.width * image.channels, generator=torch.Generator().manual_seed(seed))
    return Padded(values, torch.full((num,), image.height))


def test_convolutions_leave_a_grid_and_one_vector():
    image = Image(height=20, width=12)
    encoder = ConvolutionalEncoder(Convolution(size=16, layers=2, channels=4, blocks=2), image, dropout=0.0)
    memory = encoder(rows(3, image))
    assert memory.grid == (5, 3)
    assert memory.states.values.shape == (3, 15, 16)
    assert memory.states.lengths.tolist() == [15] * 3
    assert memory.summary.shape == (3, 16)


def test_a_place_of_the_grid_sees_its_part_of_the_picture():
    """What changes in the lower right corner changes nothing in the upper left one."""
    image = Image(height=32, width=32, channels=1)
    encoder = ConvolutionalEncoder(Convolution(size=8, layers=2, channels=4), image, dropout=0.0)
    source = rows(1, image)
    changed = source.values.clone()
    changed[:, 28:, 28:] += 3
    with torch.inference_mode():
        before, after = (encoder(source.with_values(v)).states.values for v in (source.values, changed))
    apart = (before - after).abs().amax(-1).unflatten(1, (8, 8))[0]
    assert apart[:5, :5].max() == 0
    assert apart[7, 7] > 1e-3


def test_positions_tell_each_place_by_its_row_and_its_column():
    places = grid_positions(3, 4, 10).unflatten(0, (3, 4))
    assert places[1, :, :5].eq(places[1, :1, :5]).all()
    assert places[:, 2, 5:].eq(places[:1, 2, 5:]).all()
    assert len({tuple(place) for place in places.flatten(0, 1).tolist()}) == 12


def test_the_windows_are_part_of_the_trace():
    image = Image(height=10, width=14, channels=3)
    encoder = GlimpseEncoder(Glimpse(size=7, glimpses=4, window=3), image, dropout=0.0)
    trace = Trace()
    with torch.inference_mode(), trace.recording():
        memory = encoder(rows(2, image))
    assert trace["glimpse.window"].shape == (2, 4, 5)
    assert trace["glimpse.patch"].shape == (2, 4, 3, 3, 3)
    torch.testing.assert_close(trace["glimpse.window"][:, 0, :2], torch.tensor([[6.5, 4.5]] * 2))  # all of it, at first
    assert memory.states.values.shape == (2, 4, 7)
    assert memory.summary.equal(memory.states.values[:, -1])


def test_a_gradient_reaches_every_weight_of_a_glimpse():
    image = Image(height=8, width=8, channels=1)
    encoder = GlimpseEncoder(Glimpse(size=6, glimpses=3, window=3), image, dropout=0.0)
    encoder(rows(4, image)).summary.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in encoder.parameters())

import torch

from seqlab.models.image_encoders import (
    ConvolutionalEncoder,
    GlimpseEncoder,
    PictureInputs,
    grid_positions,
    jittered,
    patches,
)
from seqlab.padded import Padded
from seqlab.randomness import noise
from seqlab.recipe import ConvolutionConfig, GlimpseConfig, ImageConfig
from seqlab.trace import Trace


def rows(num, image, *, seed=1):
    values = torch.randn(
        num,
        image.height,
        image.width * image.channels,
        generator=torch.Generator().manual_seed(seed),
    )
    return Padded(values, torch.full((num,), image.height))


def test_convolutions_give_a_grid_and_a_summary():
    image = ImageConfig(height=20, width=12)
    encoder = ConvolutionalEncoder(
        ConvolutionConfig(size=16, layers=2, channels=4, blocks=2), image, dropout=0.0
    )
    memory = encoder(rows(3, image))
    assert memory.grid == (5, 3)
    assert memory.states.values.shape == (3, 15, 16)
    assert memory.states.lengths.tolist() == [15] * 3
    assert memory.summary.shape == (3, 16)


def test_a_grid_position_depends_on_its_part_of_the_picture():
    """What changes in the lower right corner changes nothing in the upper left one."""
    image = ImageConfig(height=32, width=32, channels=1)
    encoder = ConvolutionalEncoder(
        ConvolutionConfig(size=8, layers=2, channels=4), image, dropout=0.0
    )
    source = rows(1, image)
    changed = source.values.clone()
    changed[:, 28:, 28:] += 3
    with torch.inference_mode():
        before, after = (
            encoder(source.with_values(v)).states.values for v in (source.values, changed)
        )
    apart = (before - after).abs().amax(-1).unflatten(1, (8, 8))[0]
    assert apart[:5, :5].max() == 0
    assert apart[7, 7] > 1e-3


def test_positions_encode_row_and_column():
    places = grid_positions(3, 4, 10).unflatten(0, (3, 4))
    assert places[1, :, :5].eq(places[1, :1, :5]).all()
    assert places[:, 2, 5:].eq(places[:1, 2, 5:]).all()
    assert len({tuple(place) for place in places.flatten(0, 1).tolist()}) == 12


def test_the_windows_are_part_of_the_trace():
    image = ImageConfig(height=10, width=14, channels=3)
    encoder = GlimpseEncoder(GlimpseConfig(size=7, glimpses=4, window=3), image, dropout=0.0)
    trace = Trace()
    with torch.inference_mode(), trace.recording():
        memory = encoder(rows(2, image))
    assert trace["glimpse.window"].shape == (2, 4, 5)
    assert trace["glimpse.patch"].shape == (2, 4, 3, 3, 3)
    torch.testing.assert_close(
        trace["glimpse.window"][:, 0, :2], torch.tensor([[6.5, 4.5]] * 2)
    )  # all of it, at first
    assert memory.states.values.shape == (2, 4, 7)
    assert memory.summary.equal(memory.states.values[:, -1])


def test_a_gradient_reaches_every_weight_of_a_glimpse():
    image = ImageConfig(height=8, width=8, channels=1)
    encoder = GlimpseEncoder(GlimpseConfig(size=6, glimpses=3, window=3), image, dropout=0.0)
    encoder(rows(4, image)).summary.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in encoder.parameters())


def pictures(num, height=4, width=6, channels=1):
    values = torch.arange(num * height * width * channels) % 251
    return values.reshape(num, height, width, channels).to(torch.uint8)


def test_patches_go_from_left_to_right_and_down():
    picture = torch.tensor([[0.0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]])[
        None, ..., None
    ]
    assert patches(picture, 2).tolist() == [
        [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]
    ]


def test_pixels_are_scaled_by_channel_and_pads_are_ignored():
    layer = PictureInputs(
        [10.0, 20.0] * 2, [2.0, 4.0] * 2, ImageConfig(height=2, width=2, channels=3)
    )
    rows = torch.tensor([[[12, 24, 8, 16], [10, 20, 14, 28], [99, 99, 99, 99]]], dtype=torch.uint8)
    layer.settings = layer.settings.model_copy(
        update={"channels": 2}
    )  # two colours are easier to check by hand
    seen = layer(Padded(rows, torch.tensor([2])))
    assert seen.values.tolist() == [[[1, 1, -1, -1], [0, 0, 2, 2]]]
    assert seen.lengths.tolist() == [2]


def test_patches_are_positions_of_the_encoder():
    layer = PictureInputs([0.0] * 6, [1.0] * 6, ImageConfig(height=4, width=6, channels=1, patch=2))
    seen = layer(Padded(pictures(3).flatten(2), torch.tensor([4, 4, 4])))
    assert seen.values.shape == (3, 6, 4)
    assert seen.lengths.tolist() == [6, 6, 6]
    assert (layer.grid, layer.size) == ((2, 3), 4)


def test_a_picture_is_shifted_only_in_training_and_by_its_key():
    settings = ImageConfig(height=4, width=6, channels=1, shift=2, flip=True)
    pixels = pictures(40)
    assert jittered(pixels, settings).equal(pixels)
    with noise(1, 7, torch.arange(40)):
        moved = jittered(pixels, settings)
    with noise(1, 7, torch.arange(40).flip(0)):
        other_way_round = jittered(pixels.flip(0), settings)
    with noise(1, 8, torch.arange(40)):
        later = jittered(pixels, settings)
    assert other_way_round.flip(0).equal(moved)
    assert not later.equal(moved)
    same = sum(one.equal(other) for one, other in zip(moved, pixels, strict=True))
    assert 0 <= same < 10


def test_a_shifted_picture_repeats_its_edge():
    settings = ImageConfig(height=4, width=6, channels=1, shift=1)
    pixels = pictures(1).expand(200, -1, -1, -1)
    with noise(1, 1, torch.arange(200)):
        moved = {tuple(each.flatten().tolist()) for each in jittered(pixels, settings)}
    wide = torch.nn.functional.pad(pixels[:1, ..., 0].float(), (1, 1, 1, 1), mode="replicate")[
        0
    ].long()
    possible = {
        tuple(wide[y : y + 4, x : x + 6].flatten().tolist()) for y in range(3) for x in range(3)
    }
    assert moved == possible

import itertools

import numpy as np
import pytest

from seqlab.explain.palette import (
    CATEGORICAL,
    DIVERGING,
    MISSING,
    SEQUENTIAL,
    colour_of,
    colours,
    ink_on,
    levels,
    limits,
    rgb,
)

# Linear RGB as people without red, green or blue cones see it (Machado et al. 2009).
BLIND = {
    "none": np.eye(3),
    "red": np.array(
        [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]]
    ),
    "green": np.array(
        [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]]
    ),
    "blue": np.array(
        [[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]]
    ),
}
CONES = np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]])
LAB = np.array([[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]])


def oklab(colour, blind="none"):
    """Return a colour in OKLab, as a colour-blind person sees it: lightness from 0 to 1, and two hue axes."""
    share = np.array(colour) / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    return LAB @ np.cbrt(CONES @ (BLIND[blind] @ linear).clip(0, 1))


@pytest.mark.parametrize("blind", BLIND)
def test_categories_differ_for_every_kind_of_colour_vision(blind):
    colours_seen = [oklab(rgb(colour), blind) for colour in CATEGORICAL]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(colours_seen, 2)) > 0.06


def test_equal_steps_have_equal_differences_of_lightness():
    light = np.array([oklab(colour)[0] for colour in colours(SEQUENTIAL)[:255]])
    steps = np.diff(light[::16])
    assert (steps < 0).all()
    assert steps.std() < 0.15 * abs(steps.mean())


def test_the_diverging_map_is_equally_dark_at_both_ends():
    light = np.array([oklab(colour)[0] for colour in colours(DIVERGING)[:255]])
    assert (np.diff(light[::8][:16]) > 0).all()
    np.testing.assert_allclose(light, light[::-1], atol=0.05)


def test_levels_range_from_low_to_high():
    assert levels(np.array([[-1.0, 0.0, 1.0], [2.0, np.nan, 0.5]]), 0.0, 1.0).tolist() == [
        [0, 0, 254],
        [254, 255, 127],
    ]
    assert colour_of(0.0, SEQUENTIAL, 0.0, 1.0) == SEQUENTIAL[0]
    assert colour_of(1.0, SEQUENTIAL, 0.0, 1.0) == SEQUENTIAL[-1]
    assert colour_of(float("nan"), SEQUENTIAL, 0.0, 1.0) == MISSING
    assert levels(np.array([3]), 3.0, 3.0).tolist() == [0]


def test_limits():
    assert limits(np.array([0.2, 0.6, np.nan]), diverging=False) == (0.0, 0.6)
    assert limits(np.array([-2, 1]), diverging=True) == (-2.0, 2.0)
    assert limits(np.array([-2, 1]), diverging=False) == (-2.0, 1.0)
    assert limits(np.array([np.nan]), diverging=False) == (0.0, 1.0)
    assert limits(np.zeros((0, 3)), diverging=True) == (-1.0, 1.0)


def test_text_contrasts_with_its_background():
    for colour in ["#" + bytes(c).hex() for c in colours(DIVERGING)]:
        assert abs(oklab(rgb(ink_on(colour)))[0] - oklab(rgb(colour))[0]) > 0.34

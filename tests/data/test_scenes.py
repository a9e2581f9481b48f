import sys

import numpy as np
import pytest

from seqlab.data.picture_files import read_pictures
from seqlab.data.scenes import COLOURS, SIDE, make_pictures, scene
from seqlab.errors import DataError, UsageError
from seqlab.recipe import ImageConfig


def test_a_scene_depends_on_its_key_alone():
    one, same, other, elsewhere = (
        scene(3, seed=1),
        scene(3, seed=1),
        scene(4, seed=1),
        scene(3, seed=2),
    )
    assert (one.pixels == same.pixels).all()
    assert one.captions == same.captions
    assert not (one.pixels == other.pixels).all()
    assert not (one.pixels == elsewhere.pixels).all()


@pytest.mark.parametrize("row", range(12))
def test_what_is_said_is_what_is_there(row):
    made = scene(row, seed=5)
    first, second = made.boxes  # left, top, right, bottom
    words = made.captions[0].split()
    assert made.nouns == (words[2], words[-1])
    assert first[3] <= second[1] if "above" in words else first[2] <= second[0]
    for noun, colour, box in zip(made.nouns, (words[1], words[-2]), made.boxes, strict=True):
        x0, y0, x1, y1 = (round(v * SIDE) for v in box)
        inside = made.pixels[y0:y1, x0:x1].reshape(-1, 3).astype(int)
        near = np.abs(inside - COLOURS[colour]).max(1) < 45
        assert near.mean() > 0.2, noun
    opposite = {"above": "below", "left": "right"}["above" if "above" in words else "left"]
    assert opposite in made.captions[1].split()


def test_a_set_is_a_file_that_training_reads(tmp_path):
    path = tmp_path / "deep" / "shapes.npz"
    assert make_pictures("shapes", 5, path, seed=1) == 5
    examples = list(read_pictures([str(path)], ImageConfig(height=SIDE, width=SIDE), labels=False))
    assert [e.target for e in examples[4:6]] == list(scene(2, seed=1).captions)
    assert examples[4].boxes[0][0] == scene(2, seed=1).nouns[0]
    np.testing.assert_allclose(examples[4].boxes[0][1:], scene(2, seed=1).boxes[0], rtol=1e-6)


def test_what_cannot_be_made(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="there is no set of pictures 'cats'"):
        make_pictures("cats", 5, tmp_path / "x.npz", seed=1)
    with pytest.raises(UsageError, match="pictures are written into an"):
        make_pictures("shapes", 5, tmp_path / "x.png", seed=1)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(
        DataError, match="the digits come with the package scikit-learn, which is not installed"
    ):
        make_pictures("digits", 5, tmp_path / "x.npz", seed=1)

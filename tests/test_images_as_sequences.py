"""Pictures read as sequences and through windows: each encoder classifies small digits that are drawn here."""

import json

import numpy as np
import pytest
import torch
from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont

from seqlab import lab
from seqlab.trace import Trace


def digits(num, *, kinds=3, side=12):
    """Digits of Pillow's own font, moved about and noisy."""
    random, images, labels = np.random.default_rng(1), [], []
    for number in range(num):
        picture = Pillow.new("L", (side, side))
        place = tuple(random.integers(1, 4, 2).tolist())
        ImageDraw.Draw(picture).text(
            place, str(number % kinds), fill=230, font=ImageFont.load_default(10)
        )
        images.append(
            (np.asarray(picture, dtype=np.int64) + random.integers(0, 25, (side, side))).clip(
                0, 255
            )
        )
        labels.append(number % kinds)
    return np.stack(images).astype(np.uint8), np.asarray(labels)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("digits") / "digits.npz"
    images, labels = digits(240)
    np.savez(path, images=images, labels=labels)
    return path


SIZES = {
    "row-lstm": ("model.embedding=24", "model.encoder.size=24"),
    "patch-transformer": ("model.encoder.size=32", "image.patch=4", "data.max_source=16"),
    "glimpse-digits": ("model.encoder.size=32",),
}


@pytest.mark.parametrize("recipe", SIZES)
def test_each_way_of_reading_tells_digits_apart(recipe, data, tmp_path):
    settings = (
        "image.height=12",
        "image.width=12",
        "image.shift=0",
        "model.dropout=0",
        "data.validation=0.2",
    )
    settings += (
        "train.epochs=10",
        "train.batch_tokens=192",
        "train.warmup=5",
        "train.learning_rate=6e-3",
    )
    model = lab.train(
        "classify", data, recipe=recipe, settings=(*settings, *SIZES[recipe]), out=tmp_path / "m"
    ).model
    report = model.metrics["validation"]
    assert report["accuracy"] > 0.9
    assert report["baselines"]["majority class"]["accuracy"] < 0.5
    images, labels = digits(8)
    right = [
        a.output == str(label) for a, label in zip(model.predict(list(images)), labels, strict=True)
    ]
    assert sum(right) >= 7
    assert model.embed(images[0]).shape == (1, {"row-lstm": 48}.get(recipe, 32))
    if recipe == "glimpse-digits":
        trace = Trace()
        with trace.recording():
            model.predict(list(images))
        windows = trace["glimpse.window"]
        assert windows.shape == (8, 4, 5)
        assert (
            windows[:, 1:, 2].max() < 12
        )  # it looks somewhere, and not at a desert around the picture
        assert (windows[:, 0] - windows[:, 3]).abs().max() > 0.1  # and elsewhere the next time
        told = json.loads(model.explain(images[0], "glimpses").to_json())
        assert [w["x"] for w in told["windows"]] == pytest.approx(
            windows[0, :, 0].tolist(), abs=1e-3
        )
        assert told["answer"] == model.predict(images[0]).output
        torch.testing.assert_close(
            windows[:1, 0], windows[1:2, 0]
        )  # the first look is the same at every picture

"""Devices and precision. The tests need no GPU."""

import json

import numpy as np
import pytest
import torch

from seqlab import lab
from seqlab.codecs.codec import Codec, padded
from seqlab.codecs.text import TextSource, TextTarget
from seqlab.data import synthetic
from seqlab.errors import UsageError
from seqlab.kernels import products
from seqlab.machine import available_devices, use_device
from seqlab.padded import Batch, tensor_of
from seqlab.randomness import noise
from seqlab.recipe import build_recipe
from seqlab.tasks import build_model
from seqlab.text import Normaliser, learn

TRANSFORMER = {"kind": "transformer", "size": 8, "heads": 2}


def model(task, **parts):
    table = {
        "name": "t",
        "task": task,
        "train": {"steps": 1},
        "model": {"embedding": 8, "dropout": 0.1, **parts},
    }
    letters = learn("characters", ["abc"], normaliser=Normaliser())
    return build_model(
        build_recipe(table, where="test"), Codec(TextSource(letters), TextTarget(letters))
    )


def test_a_device_that_is_not_there_is_refused_with_what_is():
    if "cuda" in available_devices():
        pytest.skip("there is a GPU here")
    with pytest.raises(UsageError, match="there is no device 'cuda' here") as caught:
        use_device("cuda")
    assert caught.value.hint == f"available: {', '.join(available_devices())}."
    assert torch.get_default_device().type == "cpu"


def test_the_cpu_is_always_there():
    assert available_devices()[-1] == "cpu"
    use_device("cpu")
    assert tensor_of(np.arange(3)).device.type == "cpu"


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "learned"])
def test_a_model_and_its_batches_are_made_where_asked(positions):
    """On torch's device without memory, with which nothing that is left behind on the CPU can be computed."""
    parts = {
        "encoder": TRANSFORMER | {"positions": positions, "segments": 2, "entrance_norm": True}
    }
    at_home = model("mask", **parts)
    with torch.device("meta"):
        away = model("mask", **parts)
        batch = Batch(tensor_of(np.arange(2)), source=padded([[2, 6, 7, 3], [2, 8, 3]]))
        with noise(1, 0, batch.rows):
            reading = away.read_batch(batch, ())
            logits = away.head(reading.features)
    assert {part.device.type for part in (*away.parameters(), logits, batch.rows)} == {"meta"}
    assert [p.shape for p in away.parameters()] == [p.shape for p in at_home.parameters()]


def test_models_of_hidden_states_stay_on_the_cpu():
    with (
        torch.device("meta"),
        pytest.raises(UsageError, match="recipe 't' runs only on the CPU"),
    ):
        model("lm", hmm={"states": 2})


@pytest.mark.parametrize("kind", ["transformer", "lstm", "gru"])
def test_half_the_bits_learn_as_well(tmp_path, kind, monkeypatch):
    """bfloat16 has eight bits of mantissa: the curve is near that of float32, and not the same."""
    monkeypatch.delenv("SEQLAB_PRODUCTS")
    monkeypatch.setattr(products, "SMALL", 0)
    text = tmp_path / "text.txt"
    text.write_text(" ".join(word for word, _ in synthetic.copies(300, seed=1)))
    settings = [
        "model.embedding=16",
        "model.decoder.size=16",
        f"model.decoder.kind={kind}",
        "train.batch_rows=4",
    ]
    settings += [
        "train.bptt=12",
        "train.steps=60",
        "train.warmup=5",
        "train.learning_rate=1e-2",
        "model.dropout=0.1",
    ]
    curves = []
    for precision in ("float32", "bfloat16"):
        out = tmp_path / precision
        trained = lab.train(
            "lm",
            text,
            recipe="char-lstm",
            settings=[*settings, f"train.precision={precision}"],
            out=out,
        )
        weights = list(trained.model.bundle.model.parameters())
        assert all(weight.dtype == torch.float32 and weight.isfinite().all() for weight in weights)
        log = [
            json.loads(line) for line in (out / "run" / "metrics.jsonl").read_text().splitlines()
        ]
        curves.append([row["loss"] for row in log if "loss" in row])
    assert curves[1][-1] < curves[1][0]
    assert curves[1] == pytest.approx(curves[0], rel=0.01)
    assert curves[1] != curves[0]

"""A Transformer that begins by passing on what it gets, and by taking no token for likelier than another."""

import math

import pytest
import torch

from seqlab.assemble.model import build_model
from seqlab.assemble.vocabularies import Vocabularies, padded
from seqlab.layers.dropout import noise
from seqlab.layers.tap import listening
from seqlab.models.interface import Memory
from seqlab.padded import Batch
from seqlab.recipe import build_recipe
from seqlab.text import Normaliser, learn
from seqlab.training.objective import batch_loss

LAYERS = {"kind": "transformer", "size": 8, "heads": 2, "layers": 2, "quiet_start": True}
LETTERS = learn("characters", ["abc"], normaliser=Normaliser())
ROWS = padded([[2, 6, 7, 8, 3], [2, 7, 3]])


def model(task, **parts):
    table = {"name": "t", "task": task, "train": {"steps": 1}, "model": parts}
    return build_model(build_recipe(table, where="test"), Vocabularies(source=LETTERS, target=LETTERS))


@pytest.mark.parametrize("kind", ["transformer", "universal"])
def test_at_first_all_tokens_are_as_likely(kind):
    decoder = model("lm", decoder=LAYERS | {"kind": kind}).decoder
    logits, _ = decoder.read(ROWS.values, *decoder.start(Memory(2)))
    assert not logits.any()


def test_no_block_of_an_encoder_adds_anything():
    seen, encoder = {}, model("mask", encoder=LAYERS).encoder
    with torch.no_grad(), listening(lambda name, x: seen.setdefault(name, x)):
        encoder(ROWS)
    assert seen["encoder.0.output"].equal(seen["encoder.1.output"])


def test_an_output_that_is_the_embedding_is_left_as_it_is():
    tied = model("lm", decoder=LAYERS, tie=True)
    assert tied.decoder.embedding.weight.any()


def test_it_learns():
    language = model("lm", decoder=LAYERS)
    rule, losses = torch.optim.AdamW(language.parameters(), lr=1e-2), []
    for step in range(30):
        with noise(1, step, torch.arange(2)):
            loss = batch_loss(language, Batch(rows=torch.arange(2), target=ROWS)).to_minimise
        losses.append(float(loss.detach()))
        loss.backward()
        rule.step()
        language.zero_grad()
    assert losses[0] == pytest.approx(math.log(len(LETTERS)))
    assert losses[-1] < losses[0] / 4

"""How models begin: what a Transformer passes on, how loud a language model hears its tokens, what enters at all."""

import math

import pytest
import torch

from seqlab.codecs.codec import Codec, padded
from seqlab.codecs.text import TextSource, TextTarget
from seqlab.layers.tap import listening
from seqlab.models.build import LM_EMBEDDING_DEVIATION, embedding_of
from seqlab.models.interface import Memory
from seqlab.padded import Batch
from seqlab.randomness import Dropout, noise
from seqlab.recipe import build_recipe
from seqlab.tasks import build_model
from seqlab.text import Normaliser, learn
from seqlab.training.loss import batch_loss

LAYERS = {"kind": "transformer", "size": 8, "heads": 2, "layers": 2, "quiet_start": True}
LSTM = {"kind": "lstm", "size": 8}
LETTERS = learn("characters", ["abc"], normaliser=Normaliser())
ROWS = padded([[2, 6, 7, 8, 3], [2, 7, 3]])


def model(task, **parts):
    table = {"name": "t", "task": task, "train": {"steps": 1}, "model": parts}
    return build_model(
        build_recipe(table, where="test"), Codec(TextSource(LETTERS), TextTarget(LETTERS))
    )


@pytest.mark.parametrize("kind", ["transformer", "universal"])
def test_at_first_all_tokens_are_equally_likely(kind):
    decoder = model("lm", decoder=LAYERS | {"kind": kind}).decoder
    logits, _ = decoder.read(ROWS.values, *decoder.start(Memory(2)))
    assert not logits.any()


def test_blocks_of_an_encoder_start_as_the_identity():
    seen, encoder = {}, model("mask", encoder=LAYERS).encoder
    with torch.no_grad(), listening(lambda name, x: seen.setdefault(name, x)):
        encoder(ROWS)
    assert seen["encoder.0.output"].equal(seen["encoder.1.output"])


def test_a_tied_output_keeps_its_initial_weights():
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


class TestLoudStart:
    """What a recurrent cell reads at first: loud where there are few tokens, each seen often; soft elsewhere."""

    @staticmethod
    def loudness(made):
        return float(embedding_of(made).weight.detach().std())

    def test_embeddings_of_a_recurrent_language_model_start_large(self):
        assert self.loudness(model("lm", decoder=LSTM, embedding=64)) == pytest.approx(
            LM_EMBEDDING_DEVIATION, rel=0.15
        )

    def test_a_tied_embedding_starts_small(self):
        tied = model("lm", decoder=LSTM, embedding=64, tie=True)
        assert self.loudness(tied) == pytest.approx(1 / 8, rel=0.15)

    def test_models_with_a_source_and_transformers_start_small(self):
        pair = model("translate", encoder=LSTM, decoder=LSTM, embedding=64)
        assert self.loudness(pair.decoder) == pytest.approx(1 / 8, rel=0.15)
        assert self.loudness(model("lm", decoder=LAYERS | {"size": 64})) == pytest.approx(
            1 / 8, rel=0.15
        )


class TestEntering:
    """Dropout of what enters a network may differ from that of all that follows."""

    ATTENTION = {"score": "dot", "wiring": "luong"}  # noqa: RUF012
    SHAPES = (
        ("lm", {"decoder": LSTM}),
        ("lm", {"decoder": LAYERS}),
        ("bilm", {"encoder": LSTM, "embedding": 8}),
        ("mask", {"encoder": LAYERS}),
        ("translate", {"encoder": LSTM, "decoder": LSTM}),
        ("translate", {"encoder": LSTM, "decoder": LSTM, "attention": ATTENTION}),
    )

    @staticmethod
    def rates(task, parts, **more):
        found = model(task, dropout=0.5, **parts, **more).named_modules()
        rates = {
            name: module.rate
            for name, module in found
            if isinstance(module, Dropout) and "unseen" not in name
        }
        inner = {
            name for name in rates if any(part.isdigit() for part in name.split("."))
        }  # of a numbered layer
        return {rates[name] for name in rates.keys() - inner}, {rates[name] for name in inner}

    @pytest.mark.parametrize(("task", "parts"), SHAPES)
    def test_it_is_the_default_unless_the_recipe_changes_it(self, task, parts):
        assert self.rates(task, parts) == ({0.5}, {0.5})
        assert self.rates(task, parts, input_dropout=0.0) == ({0.0}, {0.5})

"""Text to frames with a learnt end (S30), on generated frames: each letter has its own vectors and its own length."""

import json

import numpy as np
import pytest
import torch

import seqlab
from seqlab.doctor import examine
from seqlab.errors import DataError, RecipeError, UsageError
from seqlab.laws import check
from seqlab.metrics.alignment import aligned_distance
from seqlab.padded import Batch, Padded
from seqlab.recipe import load_recipe, override
from seqlab.tasks import check_recipe

LETTERS, WIDTH = "abcd", 3
DRAWN = np.random.default_rng(0)
BASE, SLOPE = DRAWN.normal(size=(4, WIDTH)), DRAWN.normal(size=(4, WIDTH))
LONG = (2, 3, 4, 2)  # frames of each letter


def spoken(text):
    """The frames of a text without noise, in a unit of their own."""
    places = [
        (LETTERS.index(letter), k) for letter in text for k in range(LONG[LETTERS.index(letter)])
    ]
    return np.array([10 + 3 * (BASE[i] + SLOPE[i] * k / LONG[i]) for i, k in places])


def write(path, num, *, seed):
    drawn = np.random.default_rng(seed)
    texts = ["".join(drawn.choice(list(LETTERS), size=drawn.integers(2, 6))) for _ in range(num)]
    frames = [spoken(text) + drawn.normal(scale=0.15, size=spoken(text).shape) for text in texts]
    np.savez(
        path, values=np.concatenate(frames), lengths=[len(each) for each in frames], labels=texts
    )
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("speak")


@pytest.fixture(scope="module")
def model(folder):
    settings = [
        "train.steps=320",
        "train.batch_tokens=1024",
        "train.learning_rate=0.006",
        "model.dropout=0",
    ]
    data = write(folder / "train.npz", 400, seed=1)
    return seqlab.train("speak", data, settings=settings, out=folder / "model").model


def test_it_learns_the_frames_and_where_they_end(model, folder):
    report = model.evaluate(write(folder / "test.npz", 40, seed=2))
    baseline = report.baselines["mean frame of each symbol"]
    assert report.scores["error"] < 0.6 * baseline["error"]
    assert report.scores["length_error"] < 0.5 * baseline["length_error"]
    assert report.scores["ended"] > 0.95


def test_frames_are_in_the_units_of_the_data(model):
    answer = model.predict("abca")
    frames = np.array(answer.details["frames"])
    assert answer.output == f"{len(frames)} frames of {WIDTH} features"
    assert aligned_distance(frames, spoken("abca")) < aligned_distance(frames, spoken("ddd"))
    assert [each.output for each in model.predict(["abca", "b"])] == [
        answer.output,
        model.predict("b").output,
    ]


def test_a_saved_model_answers_the_same(model):
    assert seqlab.load(model.path).predict("abca").details == model.predict("abca").details


def test_it_obeys_the_laws_and_passes_the_doctor(model):
    laws = list(check(model.bundle.model, model.some_batch()))
    assert laws
    assert all(law.kept for law in laws)
    findings = {finding.question: finding for finding in examine(model)}
    assert findings["is the input used?"].well
    assert findings["is it better than its baseline?"].well


def test_reading_all_frames_equals_reading_them_one_by_one(model):
    speaker, generator = model.bundle.model, torch.Generator().manual_seed(1)
    frames = torch.randn(2, 5, WIDTH, generator=generator)
    source = Padded.from_rows([[6, 7, 8], [7, 6]])
    with torch.inference_mode():
        context, state = speaker.start(speaker.encoder(source))
        whole, _ = speaker.features(frames, context, state)
        steps = []
        for frame in frames.split(1, dim=1):
            step, state = speaker.features(frame, context, state)
            steps.append(step)
    torch.testing.assert_close(torch.cat(steps, 1), whole)


def test_padding_does_not_change_the_loss_of_a_row(model):
    """The pads of a target are no frames: neither are they predicted, nor does the end move."""
    speaker = model.bundle.model
    short, long = torch.randn(1, 4, WIDTH), torch.randn(1, 9, WIDTH)
    rows, source = torch.tensor([0]), Padded.from_rows([[6, 7, 8]])
    alone = speaker.read_batch(Batch(rows, source, Padded(short, torch.tensor([4]))))
    wide = torch.cat([short, long[:, 4:]], 1)
    beside = speaker.read_batch(Batch(rows, source, Padded(wide, torch.tensor([4]))))
    torch.testing.assert_close(alone.penalty, beside.penalty)
    torch.testing.assert_close(alone.features, beside.features[:, : 4 * WIDTH])


def test_unsupported_uses_raise_errors(model):
    with pytest.raises(UsageError, match="a 'speak' model writes no text to score"):
        model.score(["x"], ["abc"])
    with pytest.raises(UsageError, match="no tokens or labels to explain"):
        model.explain("abc", "lens")
    with pytest.raises(RecipeError, match=r"recurrent .model.decoder., and .model.attention."):
        check_recipe(override(load_recipe("speaker"), ["model.attention=none"]))
    with pytest.raises(RecipeError, match="reads tokens, not vectors"):
        check_recipe(override(load_recipe("speaker"), ["source.kind=vectors"]))


def test_frames_of_another_width_are_refused(model, folder):
    np.savez(folder / "wide.npz", values=np.zeros((4, 9)), lengths=[4], labels=["ab"])
    with pytest.raises(DataError, match="vectors of 9 features where the model was trained on 3"):
        model.evaluate(folder / "wide.npz")


def test_a_table_of_files_is_read_too(folder):
    np.save(folder / "one.npy", spoken("ab"))
    (folder / "table.tsv").write_text("one.npy\tab\n", "utf-8")
    facts = seqlab.lab.look("speak", folder / "table.tsv")
    assert facts["examples"] == 1
    assert (
        facts["first"].endswith("'ab' -> '5 frames of 3 features'")
        or "ab -> 5 frames" in facts["first"]
    )


def test_the_bundle_describes_its_target(model):
    stored = json.loads((model.path / "tokenizer.json").read_text("utf-8"))
    assert set(stored) == {"source", "frames"}
    assert len(stored["frames"]["mean"]) == WIDTH


def test_aligned_distance_by_hand():
    one, other = np.array([[0.0], [1.0]]), np.array([[0.0], [0.0], [1.0]])
    assert aligned_distance(one, other) == 0.0
    assert aligned_distance(np.array([[0.0]]), np.array([[1.0], [2.0]])) == pytest.approx(1.5)

"""Captions: training, use, scores next to baselines, and views."""

import html
import json
import re
import zipfile

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from seqlab import lab
from seqlab.corpus.examples import held_out, open_examples
from seqlab.data.example import Example, Picture
from seqlab.data.png import png
from seqlab.data.scenes import make_pictures
from seqlab.errors import DataError, UsageError
from seqlab.explain.attention import alignment
from seqlab.model import RUN, STORES
from seqlab.tasks import subject
from seqlab.tasks.caption import pointing, shuffled, word_maps
from tests.scoring import evaluate_examples

SHADES = {
    "red": (210, 20, 20),
    "green": (20, 200, 20),
    "blue": (20, 20, 220),
    "white": (250, 250, 250),
}
TINY = (
    *("image.height=8", "image.width=8", "image.shift=0", "image.flip=false", "target.min_count=1"),
    *(
        "model.embedding=12",
        "model.encoder.size=16",
        "model.encoder.layers=2",
        "model.encoder.channels=8",
    ),
    *(
        "model.decoder.size=16",
        "model.dropout=0",
        "train.batch_tokens=128",
        "train.warmup=1",
        "train.average=none",
    ),
    *("train.label_smoothing=0", "train.learning_rate=2e-2"),
)


def colours(num):
    """Pictures of one colour each, with two captions that name it."""
    random, names = np.random.default_rng(1), list(SHADES)
    for number in range(num):
        name = names[number % len(names)]
        pixels = np.asarray(SHADES[name]) + random.integers(-20, 20, (8, 8, 3))
        yield pixels.clip(0, 255).astype(np.uint8), (f"a {name} square", f"{name} & <nothing>")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("colours")
    with (folder / "captions.tsv").open("w") as table:
        for number, (pixels, captions) in enumerate(colours(120)):
            (folder / f"{number}.png").write_bytes(png(pixels))
            table.writelines(
                f"{number}.png#{place}\t{text}\n" for place, text in enumerate(captions)
            )
    return folder


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    settings = (
        *TINY,
        "train.steps=80",
        "data.validation=0.2",
        "model.attention.doubly_stochastic=0.01",
    )
    out = tmp_path_factory.mktemp("runs") / "m"
    return lab.train("caption", data, settings=settings, out=out).model


def test_it_learns_and_is_compared_with_baselines(trained):
    report = trained.metrics["validation"]
    assert report["examples"] == 24  # pictures, not captions
    assert report["exact"] == 1
    assert report["baselines"]["most frequent caption"]["exact"] < 0.5
    assert report["baselines"]["shuffled pictures"]["exact"] < 0.5
    assert report["baselines"]["shuffled pictures"]["loss"] - report["loss"] == pytest.approx(
        report["likelihood_gap"]
    )
    assert report["likelihood_gap"] > 0.5
    assert report["bootstrap_p"] < 0.01
    assert report["bleu_1"] > report["baselines"]["most frequent caption"]["bleu_1"]


def test_a_picture_is_held_out_with_all_its_captions(trained, data):
    stores = trained.path / RUN / STORES
    names = [e.source.name for e in held_out(stores)]
    assert sorted(names) == sorted(name for name in set(names) for _ in range(2))
    corpus = open_examples(trained.recipe, trained.bundle.codec, stores)
    assert corpus.size["pictures_rows"] == 120  # each is stored once
    assert corpus.size["train_target_rows"] == 2 * (120 - 24)
    batch = corpus.train.batch(0, 0)
    assert batch.source.values.dtype == torch.uint8
    assert batch.source.values.shape[1:] == (8, 24)


def test_path_array_and_archive_give_the_same_caption(trained, data, tmp_path):
    pixels, captions = next(colours(1))
    np.savez(tmp_path / "all.npz", images=pixels[None])
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.write(data / "0.png", "0.png")
    paths = [str(data / "0.png"), f"{tmp_path}/all.npz/images/0", f"{tmp_path}/all.zip/0.png"]
    answers = trained.predict([*paths, pixels])
    assert {answer.output for answer in answers} <= set(captions)
    assert len({answer.output for answer in answers}) == 1
    assert answers[0].input == paths[0]
    assert trained.predict(pixels).output == answers[0].output
    with pytest.raises(DataError, match=r"nowhere.png: there is no such picture"):
        trained.predict("nowhere.png")


def test_other_files_are_scored_as_well(trained, data):
    report = trained.evaluate(data)
    assert report.num_examples == 120
    captioned = report.page.args[0]
    assert len(captioned) == 120
    assert captioned[3].references == ("a white square", "white & <nothing>")
    assert not report.baseline_note


def test_each_word_has_a_map_of_attention(trained, data):
    words, maps = zip(*trained.word_maps(str(data / "1.png"), "a green square"), strict=True)
    assert words == ("a", "green", "square")
    assert all(each.shape == (2, 2) for each in maps)
    torch.testing.assert_close(torch.stack([each.sum() for each in maps]), torch.ones(3))
    looked = subject(trained.bundle, str(data / "1.png"), output="a green square")
    aligned = torch.from_numpy(alignment(looked))
    torch.testing.assert_close(aligned[:3].unflatten(-1, (2, 2)), torch.stack(maps))
    assert looked.source == ("1", "2", "3", "4")
    many = word_maps(
        trained.bundle, [str(data / "0.png"), str(data / "1.png")], ["a", "a green square"]
    )
    torch.testing.assert_close(many[1][2][1], maps[2])


def test_the_maps_of_a_caption_as_a_view(trained, data, tmp_path):
    seen = trained.explain(str(data / "1.png"), "maps", output="a green square")
    told = json.loads(seen.to_json())
    assert told["words"] == ["a", "green", "square"]
    assert np.asarray(told["maps"]).shape == (3, 2, 2)
    assert seen.save(tmp_path / "maps.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UsageError, match="in glimpses"):
        trained.explain(str(data / "1.png"), "glimpses")


def test_attention_on_object_is_the_share_of_named_objects(trained, data):
    [each] = [c for c in trained.evaluate(data).page.args[0] if c.picture.name == "1.png"]
    maps = dict(word_maps(trained.bundle, [each.picture], [each.output])[0])
    row, column = divmod(int(maps["green"].argmax()), 2)
    there = ("green", column / 2, row / 2, (column + 1) / 2, (row + 1) / 2)
    elsewhere = ("green", 1 - (column + 1) / 2, 0.0, 1 - column / 2, 1.0)
    unnamed = ("cat", 0.0, 0.0, 1.0, 1.0)
    rated = [
        pointing(trained.bundle, [type(each)(each.picture, each.output, each.references, boxes)])
        for boxes in ((there, unnamed), (elsewhere,), (there, elsewhere))
    ]
    assert rated == [1, 0, 0.5]


def test_a_shuffle_moves_every_picture():
    for num in (2, 3, 10, 101):
        other = shuffled(num)
        assert sorted(other) == list(range(num))
        assert all(place != there for place, there in enumerate(other))


def test_a_model_that_ignores_its_input_gains_nothing(trained, data):
    """Pictures that are all the same: the baseline with shuffled pictures is then the model itself."""
    grey = np.full((8, 24), 128, dtype=np.uint8)
    examples = [
        Example(Picture(str(n), grey), f"a {name} square", "") for n, name in enumerate(SHADES)
    ]
    report = evaluate_examples(trained.bundle, examples, None)
    assert report.scores["likelihood_gap"] == 0
    assert report.scores["bootstrap_p"] > 0.5
    assert "most frequent caption needs the training part" in report.baseline_note
    alone = evaluate_examples(trained.bundle, examples[:1], None)
    assert "a single picture cannot be shuffled" in alone.baseline_note
    assert "likelihood_gap" not in alone.scores


def test_the_page_of_pictures_is_self_contained(trained, data):
    report = trained.evaluate(data)
    page = report.page("colours <1>")
    assert page.count("<figure>") == 20
    assert len(re.findall(r'src="data:image/png;base64,[A-Za-z0-9+/=]+"', page)) == 20
    assert "<h1>colours &lt;1&gt;</h1>" in page
    assert html.escape("red & <nothing>") in page
    assert "<nothing>" not in page
    assert not re.search(r"https?://", page)


@pytest.mark.parametrize("recipe", ["show-and-tell", "caption-transformer"])
def test_the_other_decoders(recipe, data, tmp_path):
    heads = (
        ("model.decoder.layers=1", "model.decoder.heads=2")
        if recipe == "caption-transformer"
        else ()
    )
    settings = (*TINY, *heads, "train.steps=4")
    model = lab.train("caption", data, recipe=recipe, settings=settings, out=tmp_path / "m").model
    assert model.predict(str(data / "0.png"), beam=2, max_length=5).details["tokens"] is not None
    if recipe == "show-and-tell":
        with pytest.raises(UsageError, match="this model does not attend to its source"):
            model.word_maps(str(data / "0.png"), "a red square")
    else:
        assert model.word_maps(str(data / "0.png"), "a red square")[1][1].shape == (2, 2)


def test_boxes_of_objects_are_kept_in_the_held_out_part(tmp_path):
    make_pictures("shapes", 40, tmp_path / "shapes.npz", seed=1)
    small = (
        "model.encoder.size=16",
        "model.encoder.channels=4",
        "model.decoder.size=16",
        "train.steps=2",
    )
    model = lab.train(
        "caption", tmp_path / "shapes.npz", recipe="shapes", settings=small, out=tmp_path / "m"
    ).model
    assert 0 <= model.metrics["validation"]["attention_on_object"] <= 1
    [one, *_] = held_out(tmp_path / "m" / RUN / STORES)
    assert {box[0] for box in one.boxes} <= set(one.target.split())


def test_features_of_another_network_are_captioned(tmp_path):
    """One vector for each place, in a .safetensors; the model is asked with an array, or with a file of one."""
    random, tensors, lines = np.random.default_rng(2), {}, []
    for number in range(60):
        name = list(SHADES)[number % 4]
        tensors[f"{number}"] = (np.eye(4)[number % 4] + 0.1 * random.normal(size=(3, 4))).astype(
            np.float32
        )
        lines.append(f"{number}\ta {name} square\n")
    save_file(tensors, tmp_path / "f.safetensors")
    (tmp_path / "c.tsv").write_text("".join(lines))
    small = (
        "model.embedding=12",
        "model.encoder.size=16",
        "model.decoder.size=16",
        "model.dropout=0",
    )
    small += (
        "train.steps=60",
        "train.batch_tokens=128",
        "train.learning_rate=1e-2",
        "train.average=none",
        "train.warmup=1",
    )
    paths = [tmp_path / "c.tsv", tmp_path / "f.safetensors"]
    settings = (*small, "target.min_count=1", "data.validation=0.2")
    model = lab.train(
        "caption", paths, recipe="caption-features", settings=settings, out=tmp_path / "m"
    ).model
    assert model.metrics["validation"]["exact"] == 1
    np.save(tmp_path / "one.npy", tensors["2"])
    assert model.predict(str(tmp_path / "one.npy")).output == "a blue square"
    assert model.predict(tensors["1"]).output == "a green square"
    assert [len(word_map) for _, word_map in model.word_maps(tensors["1"], "a")] == [
        1
    ]  # three places are no square


def test_a_classifier_starts_from_the_encoder_of_a_captioner(trained, tmp_path):
    pictures = [pixels for pixels, _ in colours(80)]
    labels = [list(SHADES)[number % 4] for number in range(80)]
    np.savez(tmp_path / "c.npz", images=np.stack(pictures), labels=labels)
    settings = (
        "train.steps=30",
        "data.validation=0.2",
        "model.pooling=mean",
        "train.warmup=1",
        "train.learning_rate=1e-2",
    )
    model = lab.train(
        "classify", tmp_path / "c.npz", start=trained.path, settings=settings, out=tmp_path / "m"
    ).model
    assert model.recipe.image == trained.recipe.image
    assert model.recipe.model.encoder == trained.recipe.model.encoder
    assert model.metrics["validation"]["accuracy"] == 1


def test_a_bad_picture_is_refused_before_anything_is_written(data, tmp_path):
    (tmp_path / "pets").mkdir()
    (tmp_path / "pets" / "a.png").write_bytes(b"no picture")
    (tmp_path / "pets" / "captions.tsv").write_text("a.png\ta cat\n")
    with pytest.raises(
        DataError, match=r"captions.tsv:1 \(a.png\): this cannot be read as a picture"
    ):
        lab.train("caption", tmp_path / "pets", settings=TINY, out=tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_augmentation_is_reproducible(data, tmp_path):
    """Augmentation is keyed: two runs are equal bit for bit."""
    settings = (*TINY, "train.steps=3", "image.shift=2", "image.flip=true")
    one, other = (
        lab.train("caption", data, settings=settings, out=tmp_path / name).model for name in "ab"
    )
    assert json.dumps(one.metrics["validation"]) == json.dumps(other.metrics["validation"])

"""Pictures with captions or labels: all formats, and messages about damaged files."""

import warnings
import zipfile

import numpy as np
import pytest
from safetensors.numpy import save_file

from seqlab.data.picture_files import load_picture, read_pictures
from seqlab.data.png import png
from seqlab.errors import DataError, SeqlabError, SeqlabWarning, UsageError
from seqlab.recipe import ImageConfig

SMALL, SKIP = ImageConfig(height=4, width=4), ImageConfig(height=4, width=4, bad="skip")


def pixels(shade, side=4):
    return np.full((side, side, 3), shade, dtype=np.uint8)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def folder(here):
    """Two pictures, three captions, in a directory."""
    (here / "pets" / "deep").mkdir(parents=True)
    (here / "pets" / "cat.png").write_bytes(png(pixels(10)))
    (here / "pets" / "deep" / "dog.png").write_bytes(png(pixels(20)))
    (here / "pets" / "captions.tsv").write_text(
        "cat.png#0\ta cat\ndog.png#0\ta dog\ncat.png#1\tone cat\n"
    )
    return here / "pets"


def found(paths, image=SMALL, **options):
    examples = read_pictures([str(path) for path in paths], image, **({"labels": False} | options))
    return [(e.source.name, int(e.source.values[0, 0]), e.target) for e in examples]


def refusal(*args, **options):
    with pytest.raises(SeqlabError) as caught:
        found(*args, **options)
    return str(caught.value), caught.value.hint


PETS = [("cat.png", 10, "a cat"), ("cat.png", 10, "one cat"), ("dog.png", 20, "a dog")]


class TestForms:
    def test_a_directory_with_its_captions(self, folder):
        """All captions of a picture are read together, and it is decoded once."""
        assert found(["pets"]) == PETS
        first, second, _ = read_pictures(["pets"], SMALL, labels=False)
        assert first.source is second.source
        assert first.where == "pets/captions.tsv:1 (cat.png)"

    def test_a_table_beside_its_pictures(self, folder):
        (folder / "some.csv").write_text("id,caption,image\n1,a cat,cat.png\n")
        with pytest.warns(
            SeqlabWarning, match=r"1 picture has no caption or label and is not used: deep/dog.png"
        ):
            assert found([folder / "some.csv"]) == PETS[:1]

    @pytest.mark.parametrize("order", [1, -1])
    def test_a_table_and_a_zip(self, folder, order):
        with zipfile.ZipFile("all.zip", "w") as archive:
            archive.write(folder / "cat.png", "pictures/cat.png")
            archive.write(folder / "deep" / "dog.png", "dog.png")
        assert found(["pets/captions.tsv", "all.zip"][::order]) == PETS

    def test_a_zip_with_its_captions(self, folder):
        with zipfile.ZipFile("all.zip", "w") as archive:
            for path in ("cat.png", "deep/dog.png", "captions.tsv"):
                archive.write(folder / path, path)
        assert found(["all.zip"]) == PETS
        [first, *_] = read_pictures(["all.zip"], SMALL, labels=False)
        assert first.where == "all.zip/captions.tsv:1 (cat.png)"

    def test_a_directory_for_each_label(self, here):
        for label, shade in (("cats", 10), ("dogs", 20)):
            (here / "pets" / label).mkdir(parents=True)
            (here / "pets" / label / "one.png").write_bytes(png(pixels(shade)))
        assert found(["pets"], labels=True) == [
            ("cats/one.png", 10, "cats"),
            ("dogs/one.png", 20, "dogs"),
        ]

    def test_labels_in_a_table(self, folder):
        (folder / "labels.tsv").write_text("image\tlabel\ncat.png\tcat\ndeep/dog.png\tdog\n")
        assert found(["pets"], labels=True) == [("cat.png", 10, "cat"), ("deep/dog.png", 20, "dog")]

    def test_arrays_with_several_captions_and_boxes(self, here):
        captions = [["a cat", "one cat"], ["a dog", ""]]
        boxes = np.asarray([[[0, 0, 0.5, 0.5]], [[0.5, 0.5, 1, 1]]])
        images = np.stack([pixels(10), pixels(20)])
        np.savez(
            "pets.npz", images=images, captions=captions, nouns=[["cat"], ["dog"]], boxes=boxes
        )
        assert found(["pets.npz"]) == [
            ("images/0", 10, "a cat"),
            ("images/0", 10, "one cat"),
            ("images/1", 20, "a dog"),
        ]
        *_, last = read_pictures(["pets.npz"], SMALL, labels=False)
        assert (last.where, last.boxes) == ("pets.npz[1]", (("dog", 0.5, 0.5, 1.0, 1.0),))

    def test_a_table_that_names_entries_of_arrays(self, here):
        np.savez(
            "art.npz", one=np.stack([pixels(1), pixels(2)]), other=np.stack([pixels(3), pixels(4)])
        )
        (here / "t.tsv").write_text("other/1\ta cat\none/0\ta dog\n")
        assert found(["t.tsv", "art.npz"]) == [("other/1", 4, "a cat"), ("one/0", 1, "a dog")]

    def test_features_in_place_of_pixels(self, here):
        save_file(
            {"cat": np.full((2, 3, 5), 7, np.float32), "dog": np.full((6, 5), 8, np.float32)},
            "f.safetensors",
        )
        (here / "t.tsv").write_text("cat\ta cat\ndog\ta dog\n")
        examples = list(read_pictures(["t.tsv", "f.safetensors"], None, labels=False))
        assert [e.source.values.shape for e in examples] == [(6, 5), (6, 5)]
        np.save("cat.npy", np.arange(5.0))
        (here / "u.tsv").write_text("cat.npy\ta cat\n")
        [one] = read_pictures(["u.tsv"], None, labels=False)
        assert one.source.values.tolist() == [[0, 1, 2, 3, 4]]


class TestOne:
    def test_a_picture_by_its_path_alone_or_inside_something(self, folder):
        with zipfile.ZipFile("all.zip", "w") as archive:
            archive.write(folder / "cat.png", "cat.png")
        np.savez("all.npz", images=pixels(30)[None])
        shades = {
            "pets/cat.png": 10,
            "all.zip/cat.png": 10,
            "all.npz/images/0": 30,
            str(folder / "cat.png"): 10,
        }
        for path, shade in shades.items():
            assert (load_picture(path, SMALL) == shade).all()

    @pytest.mark.parametrize(
        "path", ["pets/cow.png", "cow.png", "all.npz/images/1", "all.npz/images/x", "none/a.png"]
    )
    def test_one_that_is_not_there(self, folder, path):
        np.savez("all.npz", images=pixels(30)[None])
        with pytest.raises(DataError, match=f"{path}: there is no such picture"):
            load_picture(path, SMALL)


class TestWhatIsWrong:
    def test_a_caption_without_a_picture(self, folder):
        (folder / "captions.tsv").write_text("cat.png\ta cat\ncow.png\ta cow\ndog.png\ta dog\n")
        said, hint = refusal(["pets"])
        assert said == "pets/captions.tsv:2 (cow.png): there is no such picture"
        assert hint == "there is no 'cow.png' in pets."
        with pytest.warns(
            SeqlabWarning, match=r"captions.tsv:2 \(cow.png\): there is no such picture; skipped"
        ):
            assert found(["pets"], SKIP) == [PETS[0], PETS[2]]

    def test_a_picture_without_a_caption(self, folder):
        (folder / "cow.png").write_bytes(png(pixels(30)))
        with pytest.warns(
            SeqlabWarning, match=r"pets: 1 picture has no caption or label and is not used: cow.png"
        ):
            assert found(["pets"]) == PETS

    def test_a_caption_that_is_empty(self, folder):
        (folder / "captions.tsv").write_text("cat.png\t \ndog.png\ta dog\n")
        assert (
            refusal(["pets"])[0]
            == "pets/captions.tsv:1 (cat.png): this picture has an empty caption or label"
        )

    def test_many_bad_files_are_named_and_then_counted(self, folder):
        lines = [f"{number}.png\ta cat\n" for number in range(9)]
        (folder / "captions.tsv").write_text("".join(lines) + "cat.png\ta cat\ndog.png\ta dog\n")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert found(["pets"], SKIP) == [PETS[0], PETS[2]]
        said = [str(each.message) for each in caught]
        assert [text.partition("(")[2].partition(")")[0] for text in said[:5]] == [
            f"{n}.png" for n in range(5)
        ]
        assert said[5:] == ["and 4 more pictures skipped"]

    def test_nothing_left(self, folder):
        (folder / "captions.tsv").write_text("cow.png\ta cow\n")
        with pytest.warns(SeqlabWarning):
            assert refusal(["pets"], SKIP)[0] == "pets: no picture was found that can be used"

    @pytest.mark.parametrize("name", ["../secret.png", "/etc/secret.png", "deep/../../secret.png"])
    def test_a_table_does_not_lead_out_of_its_directory(self, folder, here, name):
        (here / "secret.png").write_bytes(png(pixels(30)))
        (folder / "captions.tsv").write_text(f"{name}\ta secret\n")
        assert refusal(["pets"])[0] == f"pets/captions.tsv:1 ({name}): this path is outside pets"

    def test_no_table(self, folder):
        (folder / "captions.tsv").unlink()
        assert refusal(["pets"])[0] == "pets: there is no captions.tsv in it"
        said = refusal(["pets"], labels=True)[0]
        assert said == "pets: there is no labels.tsv, and no sub-directory for each label in it"

    def test_features_of_different_networks(self, here):
        save_file(
            {"cat": np.zeros((2, 5), np.float32), "dog": np.zeros((2, 6), np.float32)},
            "f.safetensors",
        )
        (here / "t.tsv").write_text("cat\ta cat\ndog\ta dog\n")
        assert (
            refusal(["t.tsv", "f.safetensors"], None)[0]
            == "t.tsv:2 (dog): 6 features where those before have 5"
        )

    def test_features_without_a_table(self, here):
        save_file({"cat": np.zeros((2, 5), np.float32)}, "f.safetensors")
        message, hint = refusal(["f.safetensors"], None)
        assert message == "f.safetensors: features without captions or labels"
        assert "a table of files and captions" in hint

    @pytest.mark.parametrize("kind", ["zip", "npz", "safetensors"])
    def test_something_else_by_that_name(self, here, kind):
        (here / f"x.{kind}").write_bytes(b"not at all")
        (here / "t.tsv").write_text("a\tb\n")
        said = {"safetensors": "not a safetensors file"}.get(kind, "cannot be read")
        assert refusal(["t.tsv", f"x.{kind}"])[0].startswith(f"x.{kind}: {said}")

    def test_a_zip_with_a_file_that_is_too_large(self, here, monkeypatch):
        monkeypatch.setattr("seqlab.data.image_archives.MAX_BYTES", 1000)
        with zipfile.ZipFile("all.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.png", b"0" * 5000)
        (here / "t.tsv").write_text("a.png\tb\n")
        assert (
            refusal(["t.tsv", "all.zip"])[0]
            == "t.tsv:1 (a.png): a file of 5,000 bytes, more than 1,000"
        )

    def test_captions_that_are_not_as_many_as_pictures(self, here):
        np.savez("pets.npz", images=np.stack([pixels(10)] * 3), captions=["a", "b"])
        assert refusal(["pets.npz"])[0] == "pets.npz: 3 pictures but captions of shape (2,)"

    def test_too_many_files(self):
        with pytest.raises(UsageError, match="3 files where a table and its pictures are needed"):
            found(["a", "b", "c"])

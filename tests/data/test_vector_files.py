import gzip
import io
import re
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqlab.data import arrays
from seqlab.data.proposal import holds_vectors
from seqlab.data.vector_files import load_vectors, read_vectors
from seqlab.errors import DataError, SeqlabError, UsageError

ONE = np.array([[0.5, 1.0], [1.5, 2.0], [2.5, 3.0]], dtype=np.float32)
TWO = np.array([[4.5, 5.0]], dtype=np.float32)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty directory that is the current one, so that messages name files as a user would."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def recordings(place):
    """Two sequences of frames, of which tables can speak."""
    (place / "a").mkdir()
    np.save("a/one.npy", ONE)
    np.save("two.npy", TWO)
    return place


def found(examples):
    return [(example.source.tolist(), example.target, example.where) for example in examples]


def refusal(examples):
    with pytest.raises(SeqlabError) as caught:
        list(examples)
    return str(caught.value), caught.value.hint


def header(shape, descr="<f4", *, by_columns=False):
    """The beginning of an .npy file that declares an array of this shape."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": descr, "fortran_order": by_columns, "shape": shape}
    )
    return stream.getvalue()


class TestTable:
    BOTH = ((ONE.tolist(), "yes"), (TWO.tolist(), "no"))

    @pytest.mark.parametrize(
        ("name", "text", "lines"),
        [
            ("labels.tsv", "a/one.npy\tyes\ntwo.npy\tno \n", (1, 2)),
            ("labels.tsv", "label\tfile\nyes\ta/one.npy\n\nno\ttwo.npy\n", (2, 4)),
            ("all.csv", "id,Label,File\n1,yes,a/one.npy\n2,no,two.npy \n", (2, 3)),
            ("all.csv", "path,class\na/one.npy,yes\ntwo.npy,no\n", (2, 3)),
            (
                "all.jsonl",
                '{"label": "yes", "file": "a/one.npy"}\n{"label": "no", "file": "two.npy"}\n',
                (1, 2),
            ),
        ],
    )
    @pytest.mark.filterwarnings("ignore:.*not used. id")
    def test_paths_and_labels(self, recordings, name, text, lines):
        (recordings / name).write_text(text)
        places = (f"{name}:{lines[0]} (a/one.npy)", f"{name}:{lines[1]} (two.npy)")
        examples = list(read_vectors([name]))
        assert found(examples) == [
            (*both, where) for both, where in zip(self.BOTH, places, strict=True)
        ]
        assert all(example.source.dtype == np.float32 for example in examples)

    def test_compressed_and_elsewhere(self, recordings, monkeypatch):
        """Paths are relative to the table, wherever one stands."""
        (recordings / "all.tsv.gz").write_bytes(gzip.compress(b"a/one.npy\tyes\n"))
        monkeypatch.chdir(recordings / "a")
        assert found(read_vectors(["../all.tsv.gz"])) == [
            (ONE.tolist(), "yes", "../all.tsv.gz:1 (a/one.npy)")
        ]

    def test_the_target_by_number_and_by_name(self, recordings):
        (recordings / "n.tsv").write_text("a/one.npy\tyes\tonce upon a time\n")
        (recordings / "n.csv").write_text("file,label,text\na/one.npy,yes,once upon a time\n")
        for name, target in (("n.tsv", "3"), ("n.csv", "3"), ("n.csv", "text")):
            assert next(read_vectors([name], target=target)).target == "once upon a time"

    def test_a_label_for_each_frame(self, recordings):
        (recordings / "n.tsv").write_text("a/one.npy\tsil ah  sil\ntwo.npy\tah\n")
        assert [example.target for example in read_vectors(["n.tsv"], words=True)] == [
            ("sil", "ah", "sil"),
            ("ah",),
        ]

    def test_many_texts_are_refused_only_as_labels(self, recordings):
        (recordings / "n.tsv").write_text(
            "".join(f"a/one.npy\the said {number}\n" for number in range(30))
        )
        assert len(list(read_vectors(["n.tsv"]))) == 30
        assert len({example.target for example in read_vectors(["n.tsv"], words=True)}) == 30
        assert "these are texts, not labels" in refusal(read_vectors(["n.tsv"], few_labels=True))[0]

    def test_labels_of_frames_must_match_in_number(self, recordings):
        (recordings / "n.tsv").write_text("a/one.npy\tsil ah\n")
        assert refusal(read_vectors(["n.tsv"], words=True)) == (
            "n.tsv:1 (a/one.npy): 3 frames but 2 labels: 'sil ah'",
            "each frame needs one label; in a table they are separated by spaces.",
        )

    def test_several_tables_are_read_one_after_the_other(self, recordings):
        (recordings / "n.tsv").write_text("a/one.npy\tyes\n")
        (recordings / "m.tsv").write_text("two.npy\tno\n")
        assert [example.target for example in read_vectors(["n.tsv", "m.tsv"])] == ["yes", "no"]

    @pytest.mark.parametrize("path", ["/etc/x.npy", "../x.npy", "a/../../x.npy", "a/.."])
    def test_a_path_outside_the_directory_is_refused(self, recordings, path):
        (recordings / "n.tsv").write_text(f"{path}\tyes\n")
        message, hint = refusal(read_vectors(["n.tsv"]))
        assert message == f"n.tsv:1 ({path}): this path is outside the table's directory"
        assert "relative to the table" in hint

    def test_a_file_that_is_not_there(self, recordings):
        (recordings / "sub").mkdir()
        (recordings / "sub" / "n.tsv").write_text("a/one.npy\tyes\n")
        message, hint = refusal(read_vectors(["sub/n.tsv"]))
        assert message == "sub/n.tsv:1 (a/one.npy): there is no such file"
        assert "'sub/a/one.npy'" in hint
        (recordings / "n.jsonl").write_text('{"file": "\\u0000", "label": "a"}\n')
        assert "there is no such file" in refusal(read_vectors(["n.jsonl"]))[0]

    def test_an_empty_label(self, recordings):
        (recordings / "n.tsv").write_text("two.npy\t \n")
        assert refusal(read_vectors(["n.tsv"]))[0] == "n.tsv:1 (two.npy): the label is empty"

    def test_another_number_of_features_than_the_first(self, recordings):
        np.save("turned.npy", ONE.T)
        (recordings / "n.tsv").write_text("two.npy\tyes\nturned.npy\tno\n")
        message, hint = refusal(read_vectors(["n.tsv"]))
        assert message == "n.tsv:2 (turned.npy): 3 features where n.tsv:1 (two.npy) has 2"
        assert "transposed" in hint

    def test_a_header_and_nothing_else(self, place):
        (place / "n.tsv").write_text("file\tlabel\n")
        assert refusal(read_vectors(["n.tsv"]))[0] == "n.tsv: no example was found"

    def test_one_at_a_time(self, recordings):
        """What is wrong further down does not keep the first from being read."""
        (recordings / "n.tsv").write_text("two.npy\tyes\nnone.npy\tno\n")
        examples = read_vectors(["n.tsv"])
        assert next(examples).target == "yes"
        with pytest.raises(DataError, match="no such file"):
            next(examples)


class TestDirectory:
    @pytest.mark.parametrize(
        ("name", "text"), [("labels.tsv", "one.npy\tyes\n"), ("labels.csv", "f,l\none.npy,yes\n")]
    )
    def test_with_a_table_of_labels(self, recordings, name, text):
        (recordings / "a" / name).write_text(text)
        assert found(read_vectors(["a"])) == [
            (ONE.tolist(), "yes", f"a/{name}:{1 + (name == 'labels.csv')} (one.npy)")
        ]

    def test_with_a_directory_for_each_label(self, place):
        for name in (
            "data/no/2",
            "data/no/1",
            "data/yes/1",
            "data/.cache/1",
            "data/no/.hidden",
            "data/top/deeper/1",
        ):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            np.save(f"{name}.npy", TWO)
        (place / "data" / "no" / "notes.txt").write_text("not frames")
        assert [(example.target, example.where) for example in read_vectors(["data"])] == [
            ("no", "data/no/1.npy"),
            ("no", "data/no/2.npy"),
            ("yes", "data/yes/1.npy"),
        ]
        assert refusal(read_vectors(["data"], target="text"))[0] == (
            "column 'text' was requested, but data has no labels.tsv"
        )

    def test_with_nothing(self, place):
        message, hint = refusal(read_vectors(["."]))
        assert message == ".: no example was found"
        assert "sub-directory of .npy files for each label" in hint


class TestArchive:
    VALUES = np.concatenate([ONE, TWO])

    def save(self, save=np.savez, **arrays):
        save("d.npz", **arrays)
        return ["d.npz"]

    @pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
    @pytest.mark.parametrize(
        ("labels", "expected"),
        [
            (["yes", "nö"], ("yes", "nö")),
            ([3, -1], ("3", "-1")),
            ([b"yes", "nö".encode()], ("yes", "nö")),
        ],
    )
    def test_frames_end_to_end(self, place, save, labels, expected):
        paths = self.save(save, values=self.VALUES, lengths=[3, 1], labels=labels)
        assert found(read_vectors(paths)) == [
            (ONE.tolist(), expected[0], "d.npz[0]"),
            (TWO.tolist(), expected[1], "d.npz[1]"),
        ]

    @pytest.mark.parametrize("lengths", [{}, {"lengths": np.array([3, 2], dtype=np.uint8)}])
    @pytest.mark.parametrize("order", [np.ascontiguousarray, np.asfortranarray])
    def test_frames_side_by_side(self, place, lengths, order):
        values = order(np.arange(12, dtype=">f8").reshape(2, 3, 2))
        examples = list(read_vectors(self.save(values=values, labels=["a", "b"], **lengths)))
        kept = lengths.get("lengths", [3, 3])
        assert [example.source.tolist() for example in examples] == [
            values[i, :length].tolist() for i, length in enumerate(kept)
        ]
        assert [example.target for example in examples] == ["a", "b"]

    def test_pads_may_hold_anything(self, place):
        values = np.full((1, 3, 2), np.nan)
        values[0, :2] = 1
        assert (
            len(next(read_vectors(self.save(values=values, lengths=[2], labels=["a"]))).source) == 2
        )

    def test_a_label_for_each_frame(self, place):
        ends = [("0", "1", "2"), ("3",)]
        paths = self.save(values=self.VALUES, lengths=[3, 1], labels=[0, 1, 2, 3])
        assert [example.target for example in read_vectors(paths, words=True)] == ends
        padded = np.zeros((2, 3, 2))
        paths = self.save(values=padded, lengths=[3, 1], labels=[["0", "1", "2"], ["3", "", ""]])
        assert [example.target for example in read_vectors(paths, words=True)] == ends

    def test_single_numbers(self, place):
        paths = self.save(values=np.arange(4), lengths=[3, 1], labels=["a", "b"])
        assert [example.source.tolist() for example in read_vectors(paths)] == [
            [[0], [1], [2]],
            [[3]],
        ]

    def test_another_array_of_labels(self, place):
        paths = self.save(values=self.VALUES, lengths=[3, 1], labels=[0, 1], speaker=["x", "y"])
        assert [example.target for example in read_vectors(paths, target="speaker")] == ["x", "y"]

    @given(
        lengths=st.lists(st.integers(1, 5), min_size=1, max_size=6),
        width=st.integers(1, 3),
        by_columns=st.booleans(),
    )
    def test_what_is_saved_is_read(self, tmp_path_factory, lengths, width, by_columns):
        path = str(tmp_path_factory.getbasetemp() / "saved.npz")
        values = np.random.default_rng(0).normal(size=(sum(lengths), width)).astype(np.float32)
        saved = np.asfortranarray(values) if by_columns else values
        np.savez(path, values=saved, lengths=lengths, labels=np.arange(len(lengths)))
        examples = list(read_vectors([path]))
        assert [len(example.source) for example in examples] == lengths
        assert np.array_equal(np.concatenate([example.source for example in examples]), values)

    @pytest.mark.parametrize(
        ("change", "words", "message"),
        [
            ({"values": None}, False, "d.npz: there is no array 'values'"),
            ({"lengths": None}, False, "d.npz: there is no array 'lengths'"),
            ({"labels": None}, False, "d.npz: there is no array 'labels'"),
            (
                {"lengths": [3, 2]},
                False,
                "d.npz: the lengths add up to 5 frames where 'values' has 4",
            ),
            (
                {"lengths": [3, 0, 1]},
                False,
                "d.npz: length 1 is 0 where 1 to 4 frames are possible",
            ),
            (
                {"lengths": [3, 99]},
                False,
                "d.npz: length 1 is 99 where 1 to 4 frames are possible",
            ),
            (
                {"lengths": [3.0, 1.0]},
                False,
                "d.npz: 'lengths': an array of dtype float64 where integers are needed",
            ),
            ({"values": np.zeros((3, 4, 2))}, False, "d.npz: 2 lengths for 3 sequences"),
            ({"labels": ["a"]}, False, "d.npz: 'labels' has shape (1,) where (2,) is needed"),
            (
                {"labels": list("abcd")},
                False,
                "d.npz: 'labels' has shape (4,) where (2,) is needed",
            ),
            ({}, True, "d.npz: 'labels' has shape (2,) where (4,) is needed"),
            ({"labels": ["a", ""]}, False, "d.npz[1]: the label is empty"),
            (
                {"labels": np.array(["a", 1], dtype=object)},
                False,
                "d.npz: 'labels': an array of dtype object where numbers or strings are needed",
            ),
            (
                {"values": np.zeros((4, 2), dtype="M8[s]")},
                False,
                "d.npz: 'values': an array of dtype datetime64[s] where numbers are needed",
            ),
            (
                {"values": np.zeros((0, 2))},
                False,
                "d.npz: 'values': nothing in an array of shape (0, 2)",
            ),
            ({"values": np.zeros(())}, False, "d.npz: 'values': nothing in an array of shape ()"),
            (
                {"values": np.array([[0, 0], [0, 0], [0, 0], [0, np.nan]])},
                False,
                "d.npz[1]: frame 0, feature 1 is nan where a finite number is needed",
            ),
            (
                {"values": np.zeros((4, 2, 2, 2))},
                False,
                "d.npz[0]: an array of shape (3, 2, 2, 2) where (frames, features) is needed",
            ),
        ],
    )
    def test_what_does_not_fit(self, place, change, words, message):
        arrays = {"values": self.VALUES, "lengths": [3, 1], "labels": ["a", "b"]} | change
        paths = self.save(**{name: array for name, array in arrays.items() if array is not None})
        seen, hint = refusal(read_vectors(paths, words=words))
        assert seen == message
        assert hint

    def test_what_is_there_instead(self, place):
        assert refusal(read_vectors(self.save(x=[1], y=[2])))[1].endswith("there are: x, y.")

    def test_an_archive_that_is_not_there(self, place):
        assert refusal(read_vectors(["d.npz"]))[0] == "d.npz: there is no such file"

    def test_not_an_archive(self, place):
        (place / "d.npz").write_bytes(b"not a zip")
        assert (
            refusal(read_vectors(["d.npz"]))[0]
            == "d.npz: this cannot be read as NumPy writes it: File is not a zip file"
        )

    def test_an_array_that_unpacks_to_too_much(self, place, monkeypatch):
        """A few hundred bytes of a zip file can unpack to terabytes: what is declared is looked at first."""
        paths = self.save(
            np.savez_compressed, values=np.zeros((100_000, 2)), lengths=[100_000], labels=["a"]
        )
        assert (place / "d.npz").stat().st_size < 10_000
        monkeypatch.setattr(arrays, "MAX_ARRAY_BYTES", 1_000_000)
        message, hint = refusal(read_vectors(paths))
        assert message == "d.npz: 'values' unpacks to 1,600,128 bytes, more than 1,000,000"
        assert "split" in hint

    def test_an_array_that_lies_about_its_size(self, place):
        """What the zip file declares is all that is ever unpacked."""
        with zipfile.ZipFile("d.npz", "w") as archive:
            archive.writestr("values.npy", header((1_000_000, 2)) + bytes(16))
        assert (
            refusal(read_vectors(["d.npz"]))[0]
            == "d.npz: 'values': 16 bytes where its header declares 8,000,000"
        )

    def test_a_damaged_archive(self, place):
        """Any byte turned gives the same examples or a refusal, never another error."""
        paths = self.save(
            np.savez_compressed, values=self.VALUES, lengths=[3, 1], labels=["a", "b"]
        )
        whole, expected = (place / "d.npz").read_bytes(), found(read_vectors(paths))
        for at in range(len(whole)):
            (place / "d.npz").write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
            try:
                assert found(read_vectors(paths)) == expected
            except DataError as error:
                assert re.match(r"d\.npz.*: (?!.*Type-check)", str(error))  # noqa: PT017


class TestOneFile:
    @pytest.mark.parametrize("dtype", ["float16", "float64", ">f4", "int8", "uint64", "bool"])
    @pytest.mark.parametrize("order", [np.ascontiguousarray, np.asfortranarray])
    def test_any_numbers_become_float32(self, place, dtype, order):
        values = order(np.array([[0, 1], [1, 0], [1, 1]]).astype(dtype))
        np.save("a.npy", values)
        loaded = load_vectors("a.npy")
        assert (loaded.dtype, loaded.tolist()) == (np.float32, values.tolist())
        assert loaded.flags.c_contiguous
        assert loaded.flags.writeable

    def test_single_numbers(self, place):
        np.save("a.npy", np.arange(3))
        assert load_vectors("a.npy").tolist() == [[0], [1], [2]]

    def test_the_second_version_of_the_format(self, place):
        with open("a.npy", "wb") as stream:
            np.lib.format.write_array(stream, ONE, version=(2, 0))
        assert np.array_equal(load_vectors("a.npy"), ONE)

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            (
                np.array([[0, 0], [0, np.inf]]),
                "a.npy: frame 1, feature 1 is inf where a finite number is needed",
            ),
            (
                np.array([0.0, 1e300]),
                "a.npy: frame 1, feature 0 is 1e+300 where a finite number is needed",
            ),
            (np.zeros((0, 13)), "a.npy: nothing in an array of shape (0, 13)"),
            (np.zeros((3, 0)), "a.npy: nothing in an array of shape (3, 0)"),
            (
                np.zeros((2, 3, 4)),
                "a.npy: an array of shape (2, 3, 4) where (frames, features) is needed",
            ),
            (np.array([{}]), "a.npy: an array of dtype object where numbers are needed"),
            (np.array(["x"]), "a.npy: an array of dtype <U1 where numbers are needed"),
            (
                np.zeros(2, dtype="f4,f4"),
                "a.npy: an array of dtype [('f0', '<f4'), ('f1', '<f4')] where numbers are needed",
            ),
            (
                np.zeros(2, dtype=complex),
                "a.npy: an array of dtype complex128 where numbers are needed",
            ),
        ],
    )
    def test_what_is_not_a_sequence_of_frames(self, place, values, message):
        np.save("a.npy", values, allow_pickle=True)
        with pytest.raises(DataError) as caught:
            load_vectors("a.npy")
        assert str(caught.value) == message
        assert caught.value.hint

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (
                header((1 << 20, 1 << 20)),
                "a.npy: 1,099,511,627,776 numbers, more than 2,147,483,648",
            ),
            (header((10, 2)) + bytes(79), "a.npy: 79 bytes where its header declares 80"),
            (header((-1, 2)) + bytes(8), "a.npy: nothing in an array of shape (-1, 2)"),
            (b"", "a.npy: this cannot be read as NumPy writes it: EOF"),
            (
                b"PK\x03\x04, an archive",
                "a.npy: this cannot be read as NumPy writes it: the magic string",
            ),
            (b"\x93NUMPY\x09\x00", "a.npy: this cannot be read as NumPy writes it"),
            (
                b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + b"{" * 100_000,
                "a.npy: this cannot be read as NumPy writes it: EOF",
            ),
            (
                b"\x93NUMPY\x01\x00" + struct.pack("<H", 9000) + b"(" * 9000,
                "a.npy: this cannot be read as NumPy writes it",
            ),
        ],
    )
    def test_what_a_forged_file_says(self, place, content, message):
        (place / "a.npy").write_bytes(content)
        with pytest.raises(DataError) as caught:
            load_vectors("a.npy")
        assert str(caught.value).startswith(message)

    def test_not_there_or_a_directory(self, place):
        for name in ("a.npy", "."):
            with pytest.raises(DataError, match="there is no such file"):
                load_vectors(name)

    def test_alone_it_has_no_label(self, recordings):
        message, hint = refusal(read_vectors(["two.npy"]))
        assert message == "two.npy: frames with labels are not read from this kind of file"
        assert ".npz with values, lengths and labels" in hint

    def test_a_directory_of_labels_takes_no_column(self, recordings):
        with pytest.raises(UsageError, match="column '2' was requested"):
            list(read_vectors(["."], target="2"))


@pytest.mark.parametrize(
    ("names", "shape", "frames"),
    [
        (("X", "y"), (6, 5, 3), (5, 3)),
        (("x_train", "y_train"), (6, 5, 3), (5, 3)),
        (("data", "target"), (6, 5), (5, 1)),  # each row is a series of single numbers
        (("arr_0", "arr_1"), (6, 4, 4), (4, 4)),
    ],
)
def test_arrays_under_the_names_that_people_give_them(tmp_path, names, shape, frames):
    path = str(tmp_path / "a.npz")
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    np.savez(path, **{names[0]: values, names[1]: np.arange(6).reshape(6, 1) % 2})
    examples = list(read_vectors([path]))
    assert [each.target for each in examples] == list("010101")
    assert examples[2].source.shape == frames
    assert examples[2].source.ravel().tolist() == values[2].ravel().tolist()
    assert holds_vectors([path])

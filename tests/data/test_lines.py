import gzip
import io
import os
import sys

import pytest

from seqlab.data.lines import lines, read_text, spool
from seqlab.errors import DataError


def refusal(path):
    with pytest.raises(DataError) as caught:
        list(lines(str(path)))
    return str(caught.value), caught.value.hint


def test_lines_are_numbered_from_one_and_lose_their_ends(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\n\ntwo \r x\nlast")
    assert list(lines(str(path))) == [(1, "one"), (2, ""), (3, "two \r x"), (4, "last")]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c"])
def test_only_a_newline_ends_a_line(tmp_path, separator):
    path = tmp_path / "a.txt"
    path.write_text(f"one{separator}still one\ntwo\n", encoding="utf-8", newline="")
    assert list(lines(str(path))) == [(1, f"one{separator}still one"), (2, "two")]


def test_gzip_is_read_as_if_it_were_plain(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress("Grüße\nwelt\n".encode()))
    assert list(lines(str(path))) == [(1, "Grüße"), (2, "welt")]


def test_a_dash_is_stdin(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n")))
    assert list(lines("-")) == [(1, "one"), (2, "two")]


def test_stdin_can_be_spooled_and_then_read_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n")))
    path = spool("-", str(tmp_path / "run"))
    assert list(lines(path)) == list(lines(path)) == [(1, "one"), (2, "two")]
    assert spool("pairs.tsv", str(tmp_path)) == "pairs.tsv"


def test_reading_is_a_stream(tmp_path):
    """The first lines of a file are there although a later one is damaged."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\ntwo\n\xff\n")
    stream = lines(str(path))
    assert [next(stream), next(stream)] == [(1, "one"), (2, "two")]
    with pytest.raises(DataError, match=r"a\.txt:3: not valid UTF-8"):
        next(stream)


def test_text_keeps_its_newlines_and_files_do_not_run_into_each_other(tmp_path):
    (tmp_path / "a").write_text("one\n\ntwo")
    (tmp_path / "b").write_text("three\n")
    assert "".join(read_text([str(tmp_path / "a"), str(tmp_path / "b")])) == "one\n\ntwo\nthree\n"


def test_a_missing_file_and_the_one_that_was_probably_meant(tmp_path, monkeypatch):
    (tmp_path / "pairs.tsv").write_text("a\tb\n")
    monkeypatch.chdir(tmp_path)
    assert refusal("pair.tsv") == ("pair.tsv: there is no such file", "did you mean 'pairs.tsv'?")
    assert refusal("quite-other") == (
        "quite-other: there is no such file",
        "'.' contains pairs.tsv.",
    )
    assert refusal("nowhere/pairs.tsv")[1] == "there is no directory 'nowhere' either."


def test_a_directory_is_no_file(tmp_path):
    for name in "gfedcba":
        (tmp_path / name).write_text("x")
    message, hint = refusal(tmp_path)
    assert message == f"{tmp_path}: this is a directory, not a file"
    assert hint == f"'{tmp_path}' contains a, b, c, d, e and 2 more."
    (tmp_path / "empty").mkdir()
    assert refusal(tmp_path / "empty")[1].endswith("contains no files.")


@pytest.mark.parametrize("content", [b"", b"\n", b" \n\t\r\n\n", b"\xef\xbb\xbf"])
def test_an_empty_file(tmp_path, content):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    assert refusal(path)[0] == f"{path}: the file is empty"


def test_bytes_that_are_not_utf8_are_named_and_the_way_out_too(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes("fine\nchâteau\n".encode("latin-1"))
    message, hint = refusal(path)
    assert message == f"{path}:2: not valid UTF-8: byte 0xe2 at position 3"
    assert (
        hint
        == "as windows-1252 it contains 'château'; if that is right: --set data.encoding=windows-1252"
    )
    assert list(lines(str(path), "windows-1252")) == [(1, "fine"), (2, "château")]


def test_a_line_that_is_damaged_is_named_with_a_way_to_drop_its_bytes(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(
        "Grüße aus Köln, schöne Tage überall, früh und spät, für Mädchen\n".encode() * 5 + b"\xff\n"
    )
    message, hint = refusal(path)
    assert message == f"{path}:6: not valid UTF-8: byte 0xff at position 1"
    assert "iconv -c -t UTF-8" in hint


def test_a_compressed_file_under_a_plain_name(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(gzip.compress(b"text", mtime=0).replace(b"\0", b"\1"))
    assert refusal(path)[1] == "the file is compressed: give it a name that ends in .gz."


def test_a_binary_file(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"ab\0c\n")
    message, hint = refusal(path)
    assert message == f"{path}:1: a NUL byte at position 3"
    assert "looks like a binary file" in hint


@pytest.mark.parametrize(
    "damage",
    [lambda whole: whole[:-12], lambda whole: b"no gzip", lambda whole: whole[:-8] + b"8" * 8],
)
def test_a_damaged_gzip_file(tmp_path, damage):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(damage(gzip.compress(b"one\ntwo\n" * 1000)))
    message, hint = refusal(path)
    assert message.startswith(f"{path}: cannot be read past line ")
    assert "gzip -t" in hint


@pytest.mark.skipif(os.name != "posix" or os.getuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("secret")
    path.chmod(0)
    assert refusal(path) == (
        f"{path}: cannot be opened: Permission denied",
        "check its permissions.",
    )

"""The task that is proposed for a file."""

import os
import shlex

import numpy as np
import pytest

from seqlab.data.proposal import holds_vectors, propose
from seqlab.errors import DataError, UsageError

TEXTS = [
    f"this is {word} film number {n}, I think" for n in range(15) for word in ("a fine", "no good")
]
DAYS = [str(day) for day in np.arange("2024-01-01", "2024-01-31", dtype="datetime64[D]")]
FILES = {
    "label.tsv": (
        [f"{'pn'[n % 2]}\t{text}" for n, text in enumerate(TEXTS)],
        "classify",
        "30 lines of a label and a text",
    ),
    "text.tsv": (
        [f"{text}\t{'pn'[n % 2]}" for n, text in enumerate(TEXTS)],
        "classify",
        "30 lines of a text and a label",
    ),
    "names.txt": (
        [f"Name{n}\t{'pn'[n % 2]}" for n in range(30)],
        "classify",
        "30 lines of a text and a label",
    ),
    "stars.csv": (
        ["id,review,stars", *(f'{n},"{t}",{n % 5}' for n, t in enumerate(TEXTS))],
        "classify",
        "30 lines",
    ),
    "pairs.tsv": (
        [f"{text}\tc'est le film {n}" for n, text in enumerate(TEXTS)],
        "translate",
        "30 lines of two texts",
    ),
    "pairs.csv": (
        ["en,fr", *(f'"{t}",c\'est le film {n}' for n, t in enumerate(TEXTS))],
        "translate",
        "30 lines of two",
    ),
    "ner.conll": (["EU B-ORG", "rejects O", "", "Peter B-PER"], "tag", "2 sentences"),
    "ner.txt": (["EU NNP O", "rejects VBZ O", "", "Peter NNP B"] * 9, "tag", "10 sentences"),
    "brown.txt": (
        [f"the/DT {n}{word}/NN sees/VBZ ./." for n in range(15) for word in ("cat", "dog")],
        "tag",
        "30 sentences of words with their tags",
    ),
    "excel.csv": (
        [
            "sep=;",
            "Datum;Umsatz",
            *(f"01.{1 + n % 12:02}.20{n // 12:02};1.{n:03},5" for n in range(40)),
        ],
        "forecast",
        "40 numbers, monthly",
    ),
    "shares.csv": (
        ["Date,Close,Volume", *(f'{day},${n + 0.5},"{n + 1},000"' for n, day in enumerate(DAYS))],
        "forecast",
        "2 series of 30 numbers, daily",
    ),
    "seconds.csv": (
        ["ts,load", *(f"{1600000000 + 3600 * n},{n % 7}" for n in range(40))],
        "forecast",
        "a series of 40 numbers, hourly",
    ),
    "tags.tsv": (
        [f"the cat sees word{n}\tDET NOUN VERB NOUN" for n in range(30)],
        "tag",
        "30 sentences with a tag",
    ),
    "kaggle.csv": (
        ["Sentence #,Word,Tag", "Sentence: 1,EU,B", ",is,O", "Sentence: 2,It,O", ",is,O"],
        "tag",
        "2 sentences",
    ),
    "sales.csv": (
        ["Month,Sales", *(f"19{60 + n // 12}-{1 + n % 12:02},{n}" for n in range(40))],
        "forecast",
        "40 numbers, monthly",
    ),
    "odd.csv": (
        ["When,Sales", *(f"{1 + n // 12}-{1 + n % 12:02},{n}" for n in range(40))],
        "forecast",
        "40 numbers, monthly",
    ),
    "shops.csv": (
        ["day,shop,y", *(f"{d},{s},{n}" for s in "AB" for n, d in enumerate(DAYS))],
        "forecast",
        "2 series of 30",
    ),
    "wide.csv": (
        ["id," + ",".join(DAYS), *(f"{s}," + ",".join("123456" * 5) for s in "AB")],
        "forecast",
        "2 series of 30",
    ),
    "numbers.txt": ([f"{n * 1.5}" for n in range(40)], "forecast", "a series of 40 numbers"),
    "matrix.tsv": ([f"{n * 1.5}\t{n}" for n in range(40)], "forecast", "2 series of 40 numbers"),
    "book.txt": (
        ["It was the best of times, it was the worst of times,", "and so on.", "", "The end"],
        "lm",
        "3 lines of text",
    ),
    "files.tsv": (
        [f"{'ab'[n % 2]}\tf{n}.npy" for n in range(30)],
        "classify",
        "30 .npy files with a label each",
    ),
    "captions.tsv": (
        [f"p{n}.jpg\t{text}" for n, text in enumerate(TEXTS)],
        "caption",
        "30 pictures with a text each",
    ),
    "rows.jsonl": (
        [f'{{"a": "{text}", "b": "{"pn"[n % 2]}"}}' for n, text in enumerate(TEXTS)],
        "classify",
        "30 lines",
    ),
}


def command(proposal):
    return shlex.join(("seqlab", *proposal.arguments))


@pytest.mark.parametrize("name", FILES)
def test_the_task_follows_from_the_content_of_the_file(tmp_path, monkeypatch, name):
    rows, task, reason = FILES[name]
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text("\n".join(rows) + "\n")
    proposal = propose([name])
    assert (proposal.task, command(proposal).split(" --")[0]) == (
        task,
        f"seqlab train {task} {name}",
    )
    assert proposal.reason.startswith(f"{name}: ")
    assert reason in proposal.reason


def test_a_command_can_be_copied(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my files.tsv").write_text("\n".join(FILES["files.tsv"][0]))
    assert command(propose(["my files.tsv"])) == "seqlab train classify 'my files.tsv'"


def test_a_table_of_vectors_is_distinguished_from_one_of_texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("files.tsv", "label.tsv", "captions.tsv"):
        (tmp_path / name).write_text("\n".join(FILES[name][0]))
    np.savez("frames.npz", values=np.zeros((4, 2)), lengths=[2, 2], labels=["a", "b"])
    assert [
        holds_vectors([name]) for name in ("files.tsv", "label.tsv", "captions.tsv", "frames.npz")
    ] == [1, 0, 0, 1]
    assert not holds_vectors(["a.en", "a.fr"])


def test_parallel_files_folders_and_archives(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.en").write_text("\n".join(TEXTS))
    (tmp_path / "a.fr").write_text("\n".join(f"le film {n}" for n in range(30)))
    (tmp_path / "a.lab").write_text("\n".join("pn" * 15))
    (tmp_path / "a.tag").write_text(
        "\n".join(" ".join("AB"[n % 2] for n in range(len(t.split()))) for t in TEXTS)
    )
    assert [propose(["a.en", other]).task for other in ("a.fr", "a.lab", "a.tag")] == [
        "translate",
        "classify",
        "tag",
    ]
    np.savez("frames.npz", values=np.zeros((4, 2)), lengths=[2, 2], labels=["a", "b"])
    np.savez("pictures.npz", images=np.zeros((2, 4, 4)), captions=["a", "b"])
    os.makedirs("folder/a")
    np.save("folder/a/1.npy", np.zeros((2, 2)))
    assert command(propose(["frames.npz"])) == "seqlab train classify frames.npz"
    assert propose(["pictures.npz"]).task == "caption"
    assert command(propose(["folder"])) == "seqlab train classify folder"


def test_a_file_that_fits_no_task_is_refused_with_a_hint(tmp_path):
    path = tmp_path / "prices.csv"
    path.write_text(
        "\n".join(["text,price", *(f'"{text}",{n * 1.37}' for n, text in enumerate(TEXTS))])
    )
    with pytest.raises(
        DataError, match="30 lines of a text and a number, which is regression"
    ) as refused:
        propose([str(path)])
    assert "ranges" in refused.value.hint
    with pytest.raises(UsageError, match="3 files"):
        propose(["a", "b", "c"])


@pytest.mark.parametrize("name", ["a.npz", "a.zip"])
def test_a_damaged_archive(tmp_path, name):
    (tmp_path / name).write_bytes(b"PK and no more")
    with pytest.raises(DataError, match="this is not an archive"):
        propose([str(tmp_path / name)])

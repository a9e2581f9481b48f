"""Texts in many formats: each is read as intended, or refused with a hint."""

import csv
import io
import json

import pytest

from seqlab.data.proposal import propose
from seqlab.data.text_pairs import read_labelled, read_pairs
from seqlab.errors import DataError, SeqlabWarning

TEXTS = [
    f"this is {word} film, number {n} I saw" for n in range(15) for word in ("a fine", "no good")
]
LONG_LABEL = "loans, mortgages and other things that are "
LABELS = ["good", "bad"] * 15
ROWS = list(zip(TEXTS, LABELS, strict=True))
PAIRS = [(text, text.replace("film", 'the "film"')) for text in TEXTS]


def as_csv(rows, **options):
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n", **options).writerows(rows)
    return stream.getvalue()


TABLE = as_csv([("text", "label"), *ROWS])
FORMS = {
    "old_mac.csv": TABLE.replace("\n", "\r"),
    "comments.csv": "# collected in 2004, by hand\n# source: somewhere\n" + TABLE,
    "commented_names.tsv": "# made by us\n# label\ttext\n" + "".join(f"{b}\t{a}\n" for a, b in ROWS),
    "title.csv": "Report of the year\nGenerated 2021-03-01\n\n" + TABLE,
    "blank_before_quotes.csv": "label, text\n" + "".join(f'{b}, "{a}"\n' for a, b in ROWS),
    "backslashes.csv": "text,label\n" + "".join(f'"{a} \\"indeed\\"",{b}\n' for a, b in ROWS),
    "no_quotes_last.csv": "text,label\n" + "".join(f"{a}, yes, yes,{b}\n" for a, b in ROWS),
    "no_quotes_first.csv": "label,text\n" + "".join(f'{b},"so" they say, {a}\n' for a, b in ROWS),
    "types.tab": "text\tcategory\nstring\tdiscrete\nmeta\tclass\n" + "".join(f"{a}\t{b}\n" for a, b in ROWS),
    "data_below_a_key.json": json.dumps({"version": 1, "data": [{"text": a, "label": b} for a, b in ROWS]}),
    "columns.json": json.dumps({"text": TEXTS, "label": LABELS}),
    "pandas.json": json.dumps(
        {"text": dict(enumerate(TEXTS)), "label": dict(enumerate(LABELS))}, indent=1
    ),
    "arrays.json": json.dumps(ROWS),
    "by_label.json": json.dumps({"good": TEXTS[::2], "bad": TEXTS[1::2]}),
    "nested.jsonl": "".join(
        json.dumps({"id": n, "data": {"text": a}, "meta": {"by": {"label": b}}}) + "\n"
        for n, (a, b) in enumerate(ROWS)
    ),
    "numbers_first.txt": "".join(f"{int(b == 'good')} {a}\n" for a, b in ROWS),
    "trec.txt": "".join(f"{b.upper()}:x {a}\n" for a, b in ROWS),
    "long_cell.csv": as_csv([("text", "label"), (TEXTS[0], LABELS[0]), ("so " * 60_000, "bad"), *ROWS]),
    "tweets.csv": as_csv(
        ((b, n, f"Mon Apr 06 22:19:{n} PDT 2009", "NO_QUERY", a) for n, (a, b) in enumerate(ROWS, 10)),
        quoting=csv.QUOTE_ALL,
    ),
    "long_labels.csv": as_csv([("complaint", "product"), *((a, LONG_LABEL + b) for a, b in ROWS)]),
}  # fmt: skip
LABEL_OF = {"numbers_first.txt": "1", "trec.txt": "GOOD:x"} | {
    "long_labels.csv": LONG_LABEL + "good"
}
ADDED = {"backslashes.csv": ("", ' "indeed"'), "no_quotes_last.csv": ("", ", yes, yes")} | {
    "no_quotes_first.csv": ('"so" they say, ', "")
}


@pytest.mark.filterwarnings("ignore::seqlab.errors.SeqlabWarning")
@pytest.mark.parametrize("name", FORMS)
def test_texts_with_labels_in_many_forms(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(FORMS[name], newline="")
    before, after = ADDED.get(name, ("", ""))
    first, *_ = read_labelled([name])
    assert (first.source, first.target) == (
        before + TEXTS[0] + after,
        LABEL_OF.get(name, LABELS[0]),
    )
    assert propose([name]).task == "classify"


def test_a_folder_of_texts_for_each_label(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for part in ("train", "test"):
        for n, (text, label) in enumerate(ROWS):
            folder = tmp_path / "reviews" / part / label
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{n:02}.txt").write_text(f"{text}\nand so on\n")
    proposal = propose(["reviews"])
    assert proposal.arguments == ("train", "classify", "reviews/train")
    assert "texts with labels" in proposal.reason
    first, *rest = read_labelled(["reviews/train"])
    assert (first.source, first.target) == (f"{TEXTS[1]}\nand so on", "bad")
    assert len(rest) == 29


def test_a_folder_of_a_file_for_each_label(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "names").mkdir()
    for label, names in {"Irish": "Adam\nAhearn\n", "Greek": "Adamidis\n\n"}.items():
        (tmp_path / "names" / f"{label}.txt").write_text(names)
    pairs = [(each.source, each.target, each.where) for each in read_labelled(["names"])]
    assert pairs == [
        ("Adamidis", "Greek", "names/Greek.txt:1"),
        ("Adam", "Irish", "names/Irish.txt:1"),
        ("Ahearn", "Irish", "names/Irish.txt:2"),
    ]
    assert propose(["names"]).task == "classify"


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "sounds" / "a").mkdir(parents=True)
    (tmp_path / "sounds" / "a" / "1.wav").write_bytes(b"RIFF")
    with pytest.raises(DataError, match=r"but \.wav") as refused:
        propose([str(tmp_path / "sounds")])
    assert "a sub-folder of .txt" in refused.value.hint


def test_a_few_rows_without_a_label_are_left_out_with_a_warning(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(as_csv([("text", "label"), *ROWS, ("who knows, who knows", "")]))
    with pytest.warns(SeqlabWarning, match=r"1 row has no label and is left out, .*a\.csv:32"):
        assert len(list(read_labelled([str(path)]))) == 30


@pytest.mark.filterwarnings("ignore::seqlab.errors.SeqlabWarning")
@pytest.mark.parametrize(
    ("name", "content"),
    {
        "bars.txt": "".join(f"{a} ||| {b}\n" for a, b in PAIRS),
        "hf.json": json.dumps([{"translation": {"en": a, "fr": b}} for a, b in PAIRS]),
        "alpaca.json": json.dumps([{"instruction": a, "input": "", "output": b} for a, b in PAIRS]),
        "quality.csv": as_csv([("id", "en", "fr", "quality"), *((n, a, b, n % 5) for n, (a, b) in enumerate(PAIRS))]),
    }.items(),
)  # fmt: skip
def test_pairs_in_many_forms(tmp_path, monkeypatch, name, content):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(content)
    first, *_ = read_pairs([name])
    assert (first.source, first.target) == PAIRS[0]
    assert propose([name]).task == "translate"


@pytest.mark.parametrize(
    ("start", "what", "hint"),
    [
        (b"PK\x03\x04\0\0", "this is not text", "save the sheet as CSV"),
        (b"%PDF-1.4\n%\xe2\xe3", "this is not text", "save its text"),
        (b"\x80\x04\x95\0", "this is not text", "to_csv"),
        (b"\xd0\xcf\x11\xe0\0", "this is not text", "save it as CSV"),
        (b"<?xml version='1.0'?>\n<a/>\n", "this is XML or HTML, not a table", "JSONL"),
        (b"@relation r\n@data\n1,2\n", "this is ARFF, not a table", "@data"),
        (b"@problemName p\n@data\n1,2:a\n", "this is a .ts file of series", "np.savez"),
        (b">seq1\nACGT\n", "this is FASTA", "a sequence and its label"),
    ],
)
def test_a_file_that_is_not_a_table_is_refused_with_a_hint(tmp_path, start, what, hint):
    path = tmp_path / "a.dat"
    path.write_bytes(start)
    with pytest.raises(DataError, match=what) as refused:
        propose([str(path)])
    assert hint in refused.value.hint


def test_measurements_of_flowers_are_not_sequences(tmp_path):
    path = tmp_path / "iris.csv"
    rows = [(4 + n % 9 / 10, 2 + n % 7 / 5, 1 + n % 5 / 10, "ab"[n % 2]) for n in range(60)]
    path.write_text(as_csv([("length", "width", "height", "species"), *rows]))
    with pytest.raises(DataError, match="neither a text nor a series") as refused:
        propose([str(path)])
    assert "np.savez" in refused.value.hint

"""Tables of all kinds: delimiter, header, choice of columns, and warnings."""

import csv
import io
import json
import warnings

import numpy as np
import pytest

from seqlab.data.text_pairs import read_labelled, read_pairs
from seqlab.data.vector_files import read_vectors
from seqlab.errors import DataError, SeqlabWarning

TEXTS = [
    f"this is {adjective} film number {n}, I think"
    for n in range(10)
    for adjective in ("a fine", "no good")
]
LABELS = ["pos", "neg"] * 10
PAIRS = list(zip(TEXTS, LABELS, strict=True))


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(name, rows, delimiter="\t", **options):
        text = io.StringIO()
        csv.writer(text, delimiter=delimiter, lineterminator="\n", **options).writerows(rows)
        (tmp_path / name).write_text(text.getvalue(), "utf-8")
        return name

    return write


def read(reader, path, **columns):
    """Return the pairs in a file, and the warning, if any."""
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        examples = [(example.source, example.target) for example in reader([path], **columns)]
    assert len(notes) <= 1
    return examples, str(notes[0].message) if notes else ""


@pytest.mark.parametrize("delimiter", ["\t", ",", ";", "|"])
@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.txt"])
@pytest.mark.parametrize("header", [[], [["text", "label"]], [["Kommentar", "Wertung"]]])
def test_delimiter_and_header_are_detected_for_any_file_name(write, name, delimiter, header):
    path = write(name, [*header, *PAIRS], delimiter)
    assert read(read_labelled, path)[0] == PAIRS


def test_swapped_columns_are_read_with_a_warning(write):
    examples, note = read(read_labelled, write("a.tsv", PAIRS))
    assert examples == PAIRS
    assert note == (
        "a.tsv: reading the text from column 1 and the label from column 2 "
        "(--set data.source=... and data.target=... choose others)"
    )
    examples, note = read(read_labelled, write("b.tsv", [pair[::-1] for pair in PAIRS]))
    assert (examples, note) == (PAIRS, "")


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
@pytest.mark.parametrize(
    "texts", [TEXTS, [f"Name{n}" for n in range(20)], ["".join(f"{n:05b}") for n in range(20)]]
)
def test_labels_are_repeated_and_texts_are_not(write, texts, order):
    pairs = list(zip(texts, LABELS, strict=True))
    assert (
        read(read_labelled, write("a.tsv", [[pair[place] for place in order] for pair in pairs]))[0]
        == pairs
    )


def test_two_columns_of_a_few_rows_are_label_and_text_unless_only_one_can_be_a_text(write):
    assert read(read_labelled, write("a.tsv", [["yes", "x"], ["no", "yy"]]))[0] == [
        ("x", "yes"),
        ("yy", "no"),
    ]
    assert read(read_labelled, write("a.tsv", [["a fine film", "pos"], ["dull film", "neg"]]))[
        0
    ] == [
        ("a fine film", "pos"),
        ("dull film", "neg"),
    ]


def test_unused_columns_are_named(write):
    rows = [
        [str(n), f"2024-01-{n + 1:02}", label, text, str(n * 1.5)]
        for n, (text, label) in enumerate(PAIRS)
    ]
    examples, note = read(
        read_labelled, write("a.csv", [["nr", "when", "verdict", "what", "score2"], *rows], ",")
    )
    assert examples == PAIRS
    assert note.startswith(
        "a.csv: reading the text from 'what' and the label from 'verdict'; not used: nr, when, score2 (--set"
    )
    examples, note = read(read_labelled, write("b.tsv", rows))
    assert examples == PAIRS
    assert "reading the text from column 4 and the label from column 3; not used: 1, 2, 5" in note
    assert read(read_labelled, "a.csv", text="what", label="when")[0][0] == (TEXTS[0], "2024-01-01")


def test_an_index_column_without_a_name(write):
    rows = [["", "review", "stars"], *([n, text, 1 + n % 5] for n, text in enumerate(TEXTS))]
    examples, note = read(read_labelled, write("a.csv", rows, ","))
    assert examples == [(text, str(1 + n % 5)) for n, text in enumerate(TEXTS)]
    assert "not used: ''" in note


def test_of_two_label_columns_the_one_with_words_is_used(write):
    rows = [[label, 1 + n % 7, f"id_{n}x", text] for n, (text, label) in enumerate(PAIRS)]
    examples, note = read(read_labelled, write("a.tsv", rows))
    assert examples == PAIRS
    assert "not used: 2, 3" in note


def test_a_label_column_has_several_values_and_few_empty_cells(write):
    rows = [
        ["NO_QUERY", "gold" if n == 3 else "", 0.5 + n, label, text]
        for n, (text, label) in enumerate(PAIRS)
    ]
    assert read(read_labelled, write("a.tsv", rows))[0] == PAIRS
    named = [
        ["query", "sentiment_gold", "sentiment_confidence", "airline_sentiment", "text"],
        *rows,
    ]
    examples, note = read(read_labelled, write("a.csv", named, ","))
    assert examples == PAIRS
    assert "reading the text from 'text' and the label from 'airline_sentiment'" in note


def test_quoted_cells_hold_delimiters_newlines_and_quotation_marks(write):
    pairs = [(f'{text}\nand a "second" line; or\tmore', label) for text, label in PAIRS]
    for name, delimiter in (("a.csv", ","), ("a.csv", ";"), ("a.tsv", "\t"), ("a.txt", "|")):
        path = write(name, [["text", "label"], *pairs], delimiter)
        assert read(read_labelled, path)[0] == pairs
        path = write(name, [["text", "label"], *pairs], delimiter, quoting=csv.QUOTE_ALL)
        assert read(read_labelled, path)[0] == pairs


def test_quotation_marks_in_tab_separated_text_are_kept(write, tmp_path):
    (tmp_path / "a.tsv").write_text('"Run" he said\trun "now"\nfind . -name "*"\t"x" | "y"\n')
    assert read(read_pairs, "a.tsv")[0] == [
        ('"Run" he said', 'run "now"'),
        ('find . -name "*"', '"x" | "y"'),
    ]


def test_labels_that_are_texts_are_refused_with_a_command(write):
    path = write("a.tsv", [[f"word {n}", f"mot {n}"] for n in range(30)])
    with pytest.raises(DataError) as refused:
        list(read_labelled([path]))
    assert str(refused.value) == (
        "a.tsv: 30 of the first 30 labels are different, for instance 'word 0': these are texts, not labels"
    )
    assert "seqlab train translate a.tsv" in refused.value.hint
    assert len(list(read_labelled([path], text="1", label="2"))) == 30  # who names them has them


def test_labels_that_are_measurements_are_refused_with_a_hint(write):
    path = write(
        "a.csv", [["text", "price"], *([text, n * 1.37] for n, text in enumerate(TEXTS))], ","
    )
    with pytest.raises(
        DataError, match=r"20 of the first 20 labels are different numbers.*regression"
    ) as refused:
        list(read_labelled([path]))
    assert "ranges" in refused.value.hint
    assert "data.target=COLUMN" in refused.value.hint


def test_pairs_ignore_row_numbers(write):
    rows = [[n, f"a house {n} x", f"une maison {n} x"] for n in range(30)]
    examples, note = read(read_pairs, write("a.tsv", rows))
    assert examples[2] == ("a house 2 x", "une maison 2 x")
    assert "not used: 1" in note
    examples, note = read(
        read_pairs, write("a.csv", [["English", "French"], *(row[1:] for row in rows)], ",")
    )
    assert (examples[0], note) == (("a house 0 x", "une maison 0 x"), "")
    examples, note = read(
        read_pairs, write("b.tsv", [["English", "French"], *(row[1:] for row in rows)])
    )
    assert examples[0] == ("a house 0 x", "une maison 0 x")
    assert "the first line names the columns: English, French" in note


def test_a_first_row_like_the_others_is_not_a_header(write):
    for name, delimiter in (("a.csv", ","), ("a.tsv", "\t")):
        assert read(read_labelled, write(name, PAIRS, delimiter))[0] == PAIRS
        assert (
            len(
                read(
                    read_labelled, write(name, [(n % 2, t) for n, t in enumerate(TEXTS)], delimiter)
                )[0]
            )
            == 20
        )


def test_fasttext_lines(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("".join(f"__label__{label} {text}\n" for text, label in PAIRS))
    assert read(read_labelled, "a.txt")[0] == [(text, f"__label__{label}") for text, label in PAIRS]


def test_json_in_one_array_and_with_any_keys(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"nr": n, "was": text, "wie": label} for n, (text, label) in enumerate(PAIRS)]
    (tmp_path / "a.json").write_text(json.dumps(rows, indent=1))
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for path in ("a.json", "b.jsonl"):
        examples, note = read(read_labelled, path)
        assert examples == PAIRS
        assert "reading the text from 'was' and the label from 'wie'; not used: nr" in note


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_a_table_of_vector_files_in_either_order(write, tmp_path, order):
    for n in range(20):
        np.save(tmp_path / f"f{n}.npy", np.full((2, 3), n, dtype=np.float32))
    rows = [(f"f{n}.npy", label) for n, label in enumerate(LABELS)]
    path = write("a.tsv", [[row[place] for place in order] for row in rows])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeqlabWarning)
        examples = list(read_vectors([path]))
    assert [example.target for example in examples] == LABELS
    assert examples[3].source.tolist() == [[3, 3, 3], [3, 3, 3]]


@pytest.mark.parametrize(
    ("name", "count", "first"),
    [
        ("foreign/trec_train.tsv", 5452, "DESC"),
        ("foreign/waimai_train.csv.gz", 9987, "0"),
        ("sst2/train.tsv.gz", 60614, "1"),
    ],
)
def test_real_tables(shared_data, name, count, first):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        examples = list(read_labelled([str(shared_data(name))]))
    assert len(examples) == count
    assert examples[0].target == first

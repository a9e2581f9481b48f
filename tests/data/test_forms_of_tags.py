"""Tagged words in many formats."""

import json

import pytest

from seqlab.data.proposal import propose
from seqlab.data.tagged import read_tagged
from seqlab.errors import DataError

WORDS = ["Anna", "saw", "#", "word0", "in", "Paris", "."]
TAGS = ["B-PER", "O", "O", "O", "O", "B-LOC", "O"]
SENTENCES = [[*WORDS[:3], f"word{n}", *WORDS[4:]] for n in range(30)]


def lines(form, between="\n", count=30):
    """Format a word on each line."""
    written = [
        "".join(
            form(place, word, tag) + "\n"
            for place, (word, tag) in enumerate(zip(words, TAGS, strict=True), 1)
        )
        for words in SENTENCES[:count]
    ]
    return between.join(written)


FORMS = {
    "blanks.txt": lines(lambda n, word, tag: f"{word} {tag}"),
    "tags_first.txt": lines(lambda n, word, tag: f"{tag} {word}"),
    "trailing.txt": lines(lambda n, word, tag: f"{word} {tag} ").replace("\n", "\r\n"),
    "comments.txt": "# id = 0\n" + lines(lambda n, word, tag: f"{word} {tag}", "\n# id = 1\n"),
    "docstart.txt": "-DOCSTART- -X- O\n\n" + lines(lambda n, word, tag: f"{word} NN {tag}"),
    "names.txt": "word\ttag\n" + lines(lambda n, word, tag: f"{word}\t{tag}"),
    "tabs.tsv": lines(lambda n, word, tag: f"{word}\t{tag}"),
    "tab_between.tsv": lines(lambda n, word, tag: f"{word}\t{tag}", "\t\n"),
    "no_blank_lines.tsv": lines(lambda n, word, tag: f"{word}\t{tag}", "") * 4,
    "documents.conll": "#begin document (x); part 0\n"
    + lines(lambda n, word, tag: f"bc/x 0 {n} {word} NN {tag}"),
    "bars.txt": "".join(
        " ".join(f"{w}|NN|{t}" for w, t in zip(words, TAGS, strict=True)) + "\n" for words in SENTENCES
    ),
    "semicolons.csv": "Token;Tag\n" + lines(lambda n, word, tag: f"{word};{tag}", ";\n"),
    "numbered.csv": "sentence_id,words,labels\n" + "".join(
        f"{n},{w},{t}\n" for n, words in enumerate(SENTENCES) for w, t in zip(words, TAGS, strict=True)
    ),
    "lists.csv": "Sentence,Tags\n" + "".join(f'{" ".join(words)},"{TAGS}"\n' for words in SENTENCES),
    "both_lists.csv": "tokens,ner_tags\n" + "".join(f'"{words}","{TAGS}"\n' for words in SENTENCES),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::seqlab.errors.SeqlabWarning")
@pytest.mark.parametrize("name", FORMS)
def test_words_and_tags_in_many_forms(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(FORMS[name], newline="")
    sentences = list(read_tagged([name]))
    assert (list(sentences[0].source), list(sentences[0].target)) == (WORDS, TAGS)
    assert len(sentences) in (30, 120)
    assert propose([name]).task == "tag"


def test_letters_are_tagged_if_there_are_no_spaces(tmp_path):
    path = tmp_path / "proteins.csv"
    rows = [("ACDEFGHIKL" * 4)[n : n + 20 + n % 5] for n in range(20)]
    states = ["".join("HEC"[ord(letter) % 3] for letter in row) for row in rows]
    path.write_text(
        "id,seq,sst3\n"
        + "".join(f"{n}ABC,{a},{b}\n" for n, (a, b) in enumerate(zip(rows, states, strict=True)))
    )
    assert propose([str(path)]).task == "tag"


def test_spans_of_characters_are_refused_with_a_hint(tmp_path):
    path = tmp_path / "spans.jsonl"
    path.write_text(
        "".join(
            json.dumps({"text": f"in Paris {n}", "label": [[3, 8, "LOC"]]}) + "\n"
            for n in range(20)
        )
    )
    with pytest.raises(DataError, match="'label' holds spans or nested lists, such as") as refused:
        list(read_tagged([str(path)]))
    assert "a tag for each" in refused.value.hint

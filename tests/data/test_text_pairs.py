import gzip
import json
from typing import ClassVar

import pytest

from seqlab.data.example import Example
from seqlab.data.tagged import read_tagged
from seqlab.data.text_pairs import read_labelled, read_pairs
from seqlab.errors import DataError, SeqlabError, SeqlabWarning, UsageError


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Return a function that writes a file and returns its name, as a user would type it."""
    monkeypatch.chdir(tmp_path)

    def write(name, text):
        (tmp_path / name).write_text(text, encoding="utf-8", newline="")
        return name

    return write


def found(examples):
    return [(example.source, example.target) for example in examples]


def refusal(examples):
    with pytest.raises(SeqlabError) as caught:
        list(examples)
    return str(caught.value), caught.value.hint


class TestPairs:
    def test_tab_separated_with_line_numbers(self, write):
        path = write("pairs.tsv", "Go.\tVa !\tnote\n\nRun!\tCours\u202f!\n")
        with pytest.warns(SeqlabWarning, match="not used: 3"):
            pairs = list(read_pairs([path]))
        assert pairs == [
            Example("Go.", "Va !", "pairs.tsv:1"),
            Example("Run!", "Cours\u202f!", "pairs.tsv:3"),
        ]

    def test_any_other_name_is_tab_separated_too(self, write):
        assert found(read_pairs([write("fra.txt", 'a "quoted\tb\n')])) == [('a "quoted', "b")]

    def test_compressed(self, tmp_path):
        path = tmp_path / "p.jsonl.gz"
        path.write_bytes(gzip.compress(b'{"target": "b", "source": "a"}\n'))
        assert found(read_pairs([str(path)])) == [("a", "b")]

    def test_columns_by_number(self, write):
        path = write("p.tsv", "1\ta\tb\n2\tc\td\n")
        assert found(read_pairs([path], source="2", target="3")) == [("a", "b"), ("c", "d")]
        assert found(read_pairs([path], source="2")) == [("a", "1"), ("c", "2")]
        assert found(read_pairs([path], target="3")) == [("1", "b"), ("2", "d")]

    def test_columns_by_name(self, write):
        path = write("p.tsv", "id\ten\tfr\n1\ta\tb\n")
        assert found(read_pairs([path], source="fr", target="en")) == [("b", "a")]
        assert found(read_pairs([path], source="fr", target="2")) == [("b", "a")]

    def test_csv_takes_the_usual_names_else_the_first_two(self, write):
        for table in ("id,Target,Source\n1,t,s\n", "en,fr,id\ns,t,1\n"):
            with pytest.warns(SeqlabWarning, match="not used: id"):
                assert found(read_pairs([write("a.csv", table)])) == [("s", "t")]
        assert found(read_pairs([write("c.csv", "en,fr\ns,t\n")], source="fr")) == [("t", "s")]
        assert found(read_pairs([write("c.csv", "en,fr\ns,t\n")], target="en")) == [("t", "s")]

    def test_a_tsv_header_with_the_usual_names_is_a_header(self, write):
        assert found(read_pairs([write("a.tsv", "target\tsource\nt\ts\n")])) == [("s", "t")]

    def test_csv_cells_may_hold_newlines_and_lines_are_still_counted(self, write):
        path = write("a.csv", 'source,target\r\n"one\r\ntwo, three",x\r\n\r\n"a ""b""",y\r\n')
        assert list(read_pairs([path])) == [
            Example("one\ntwo, three", "x", "a.csv:2"),
            Example('a "b"', "y", "a.csv:5"),
        ]

    def test_jsonl_by_key(self, write):
        path = write("a.jsonl", '{"en": "a", "fr": "b", "n": [1]}\n\n{"fr": "d", "en": "c"}\n')
        assert found(read_pairs([path], source="en", target="fr")) == [("a", "b"), ("c", "d")]

    def test_two_parallel_files(self, write):
        paths = [write("a.en", "one\n\ntwo\n"), write("a.fr", "un\n\n\n\n\n")]
        assert list(read_pairs(paths)) == [
            Example("one", "un", "a.en:1"),
            Example("two", "", "a.en:3"),
        ]

    def test_a_line_with_one_column(self, write):
        path = write("pairs.tsv", "a\tb\nBonjour tout le monde\n")
        assert refusal(read_pairs([path])) == (
            "pairs.tsv:2: 1 column where 2 are needed: 'Bonjour tout le monde'",
            "columns are separated by a tab; this line has none.",
        )

    def test_a_line_with_too_few_columns(self, write):
        message, hint = refusal(read_pairs([write("p.tsv", "a\tb\n")], source="1", target="3"))
        assert message == "p.tsv:1: 2 columns where 3 are needed: 'a\\tb'"
        assert hint == "columns are separated by a tab; this line has 1."
        message, hint = refusal(read_pairs([write("p.csv", "en,fr\na\n")]))
        assert message == "p.csv:2: 1 column where 2 are needed: 'a'"
        assert hint == "columns are separated by a comma; this line has none."

    def test_a_column_that_does_not_exist(self, write):
        path = write("p.csv", "english,french\na,b\n")
        assert refusal(read_pairs([path], source="englsh")) == (
            "p.csv:2: there is no column 'englsh'",
            "did you mean 'english'?",
        )
        assert refusal(read_pairs([path], source="3"))[0] == "p.csv:2: there is no column '3'"

    def test_a_column_that_must_be_named(self, write):
        message, hint = refusal(read_pairs([write("p.csv", "de,en,fr\n1,a,b\n")], source="en"))
        assert message == "p.csv:2: there is no column 'target'"
        assert (
            hint == "choose the column of the target by name or by number; there are: de, en, fr."
        )
        assert found(read_pairs([write("p.csv", "id,en,fr\n1,a,b\n")], source="en")) == [("a", "b")]

    def test_columns_are_numbered_from_one(self, write):
        assert (
            refusal(read_pairs([write("p.tsv", "a\tb\n")], source="0"))[0] == "there is no column 0"
        )

    @pytest.mark.parametrize("text", ['source,target\na,"b\nc,d\n', 'source,target\na,"b"x\n'])
    def test_broken_csv(self, write, text):
        message, hint = refusal(read_pairs([write("p.csv", text)]))
        assert message.startswith("p.csv:2: this is not CSV: ")
        assert "never closed" in hint

    def test_broken_json(self, write):
        good = '{"source": "a", "target": "b"}\n'
        assert refusal(read_pairs([write("p.jsonl", good + "{'source'}\n")]))[0] == (
            "p.jsonl:2: this line is not JSON: \"{'source'}\""
        )
        message, hint = refusal(read_pairs([write("p.json", "[1]\n")]))
        assert message == "p.json:1: a JSON int where an object is needed: '1'"
        assert "one array of objects" in hint
        assert refusal(read_pairs([write("q.jsonl", '{"source": "a", "target": null}\n')]))[0] == (
            "q.jsonl:1: 'target' holds no text"
        )
        assert refusal(read_pairs([write("r.jsonl", good + '{"source": "a"}\n')]))[0] == (
            "r.jsonl:2: 'target' holds no text"
        )

    def test_parallel_files_of_unequal_length(self, write):
        paths = [write("a.en", "one\ntwo\nthree\n"), write("a.fr", "un\ndeux\n")]
        message, hint = refusal(read_pairs(paths))
        assert message == "a.en has 3 lines and a.fr has 2"
        assert "same number of lines" in hint
        assert refusal(read_pairs(paths[::-1]))[0] == "a.fr has 2 lines and a.en has 3"

    def test_two_tables_are_not_parallel_files(self, write):
        paths = [write("a.tsv", "a\tb\n"), write("b.tsv", "c\td\n")]
        with pytest.raises(UsageError, match=r"a\.tsv: a table where a parallel file"):
            list(read_pairs(paths))

    def test_parallel_files_have_no_columns(self, write):
        paths = [write("a.en", "a\n"), write("a.fr", "b\n")]
        with pytest.raises(UsageError, match="column 'en' was requested"):
            list(read_pairs(paths, source="en"))

    def test_three_files_are_too_many(self):
        with pytest.raises(UsageError, match="3 files where one"):
            list(read_pairs(["a", "b", "c"]))

    def test_a_header_and_nothing_else(self, write):
        assert (
            refusal(read_pairs([write("p.csv", "source,target\n")]))[0]
            == "p.csv: no example was found"
        )
        assert (
            refusal(read_pairs([write("p.tsv", "source\ttarget\n")]))[0]
            == "p.tsv: no example was found"
        )


class TestLabelled:
    def test_tsv_is_label_then_text(self, write):
        assert found(read_labelled([write("a.tsv", "pos\tfine film\nneg \tdull\n")])) == [
            ("fine film", "pos"),
            ("dull", "neg"),
        ]

    @pytest.mark.parametrize("header", ["Text\tLABEL", "text\tlabel"])
    def test_tsv_with_the_usual_header(self, write, header):
        assert found(read_labelled([write("a.tsv", f"{header}\nfine film\tpos\n")])) == [
            ("fine film", "pos")
        ]

    def test_columns_by_number_and_by_name(self, write):
        path = write("a.tsv", "pos\t9\tid\tfine film\n")
        assert found(read_labelled([path], text="4")) == [("fine film", "pos")]
        path = write("b.tsv", "sentence\tlabel\nfine film\t1\n")
        assert found(read_labelled([path], text="sentence")) == [("fine film", "1")]

    def test_csv_and_jsonl(self, write):
        with pytest.warns(SeqlabWarning, match="not used: id"):
            labelled = found(read_labelled([write("a.csv", "id,label,text\n7,pos,fine\n")]))
        assert labelled == [("fine", "pos")]
        path = write("a.jsonl", '{"text": "fine", "label": 1}\n{"text": "dull", "label": false}\n')
        assert found(read_labelled([path])) == [("fine", "1"), ("dull", "false")]

    def test_a_file_of_texts_and_a_file_of_labels(self, write):
        paths = [write("texts", "fine film\ndull\n"), write("labels", "pos\nneg\n")]
        assert found(read_labelled(paths)) == [("fine film", "pos"), ("dull", "neg")]

    def test_csv_with_other_usual_names(self, write):
        assert found(read_labelled([write("a.csv", "stars,review\n5,fine\n")])) == [("fine", "5")]

    def test_an_empty_label(self, write):
        assert refusal(read_labelled([write("a.tsv", "pos\tx\n \tfine film\n")]))[0] == (
            "a.tsv:2: the label of 'fine film' is empty"
        )


CONLLU = """# text = I don't
1\tI\tI\tPRON\tPRP\t_\t2\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t0\troot\t_\t_
3\tn't\tnot\tPART\tRB\t_\t2\tadvmod\t_\t_
3.1\tgo\tgo\tVERB\tVB\t_\t_\t_\t_\t_

1\tNo\tno\tINTJ\tUH\t_\t0\troot\t_\t_
"""


class TestTagged:
    def test_conllu_without_multiword_tokens_and_empty_nodes(self, write):
        assert list(read_tagged([write("a.conllu", CONLLU)])) == [
            Example(("I", "do", "n't"), ("PRON", "AUX", "PART"), "a.conllu:2"),
            Example(("No",), ("INTJ",), "a.conllu:8"),
        ]

    @pytest.mark.parametrize(
        ("tag", "first"), [("xpos", "PRP"), ("LEMMA", "I"), ("deprel", "nsubj"), ("5", "PRP")]
    )
    def test_conllu_has_many_tags(self, write, tag, first):
        assert next(read_tagged([write("a.conllu", CONLLU)], tag=tag)).target[0] == first

    def test_conll_takes_the_last_column_or_another(self, write):
        path = write(
            "a.conll", "-DOCSTART- -X- O\n\nEU NNP B-ORG\nrejects VBZ O\n\n\nPeter NNP B-PER\n"
        )
        assert found(read_tagged([path])) == [
            (("EU", "rejects"), ("B-ORG", "O")),
            (("Peter",), ("B-PER",)),
        ]
        assert found(read_tagged([path], tag="2")) == [
            (("EU", "rejects"), ("NNP", "VBZ")),
            (("Peter",), ("NNP",)),
        ]

    def test_conll_words_may_hold_spaces_between_tabs(self, write):
        assert found(read_tagged([write("a.conll", "New York\tB-LOC\n# \tO\n")])) == [
            (("New York", "#"), ("B-LOC", "O"))
        ]

    def test_two_parallel_files(self, write):
        paths = [write("a.words", "the cat\nsleeps\n"), write("a.tags", "DET NOUN\nVERB\n")]
        assert list(read_tagged(paths)) == [
            Example(("the", "cat"), ("DET", "NOUN"), "a.words:1"),
            Example(("sleeps",), ("VERB",), "a.words:2"),
        ]

    @pytest.mark.parametrize(
        ("name", "content", "columns"),
        [
            ("a.tsv", "the cat\tDET NOUN\nsleeps\tVERB\n", {}),
            ("a.tsv", "words\ttags\nthe cat\tDET NOUN\nsleeps\tVERB\n", {}),
            (
                "a.tsv",
                "n\ttext\tpos\n1\tthe cat\tDET NOUN\n2\tsleeps\tVERB\n",
                {"words": "text", "tag": "pos"},
            ),
            ("a.tsv", "1\tthe cat\tDET NOUN\n2\tsleeps\tVERB\n", {"words": "2", "tag": "3"}),
            ("a.csv", "tags,words\nDET NOUN,the cat\nVERB,sleeps\n", {}),
            (
                "a.jsonl",
                '{"words": "the cat", "tags": "DET NOUN"}\n{"words": "sleeps", "tags": "VERB"}\n',
                {},
            ),
        ],
    )
    def test_two_columns_of_a_table(self, write, name, content, columns):
        expected = [(("the", "cat"), ("DET", "NOUN")), (("sleeps",), ("VERB",))]
        assert found(read_tagged([write(name, content)], **columns)) == expected

    def test_a_tsv_with_a_word_a_row_is_conll(self, write):
        path = write("a.tsv", "The\tDET\ncat\tNOUN\n\nsleeps\tVERB\n")
        assert found(read_tagged([path])) == [
            (("The", "cat"), ("DET", "NOUN")),
            (("sleeps",), ("VERB",)),
        ]
        assert found(read_tagged([write("b.tsv", "I\tPRON\ncat\tNOUN\n")])) == [
            (("I", "cat"), ("PRON", "NOUN"))
        ]

    def test_without_spaces_each_character_is_tagged(self, write):
        """Proteins: amino acids and their secondary structure."""
        path = write("a.tsv", "MKV\tCHH\nAC\tCE\nG\tC\n")
        assert found(read_tagged([path])) == [
            (tuple("MKV"), tuple("CHH")),
            (tuple("AC"), tuple("CE")),
            (("G",), ("C",)),
        ]
        pair = [write("a.seq", "MKV\nAC\n"), write("a.ss", "CHH\nCE\n")]
        assert found(read_tagged(pair)) == [
            (tuple("MKV"), tuple("CHH")),
            (tuple("AC"), tuple("CE")),
        ]
        path = write("b.csv", "seq,ss\nMKV,CHH\nAC,CE\nACD,CE\n")
        message, hint = refusal(read_tagged([path], words="seq", tag="ss"))
        assert message == "b.csv:4: 3 characters but 2 tags: 'ACD'"
        assert "line 4 of b.csv has 'CE'" in hint

    def test_words_and_tags_of_a_row_must_match_in_number(self, write):
        path = write("a.tsv", "words\ttags\nthe cat\tDET NOUN\nthe cat\tDET\n")
        assert refusal(read_tagged([path]))[0] == "a.tsv:3: 2 words but 1 tags: 'the cat'"

    def test_words_and_tags_must_match_in_number(self, write):
        paths = [write("a.words", "ok\nthe cat\n"), write("a.tags", "X\nDET\n")]
        message, hint = refusal(read_tagged(paths))
        assert message == "a.words:2: 2 words but 1 tags: 'the cat'"
        assert "line 2 of a.tags has 'DET'" in hint

    def test_a_word_without_a_tag(self, write):
        message, hint = refusal(read_tagged([write("a.conll", "EU NNP\nrejects\n")]))
        assert message == "a.conll:2: 1 column where 2 are needed: 'rejects'"
        assert hint.endswith("here: 1 'rejects'.")
        message, hint = refusal(read_tagged([write("a.conll", "EU NNP\n")], tag="3"))
        assert message == "a.conll:1: 2 columns where 3 are needed: 'EU NNP'"
        assert hint.endswith("here: 1 'EU', 2 'NNP'.")
        assert (
            refusal(read_tagged([write("b.conll", "EU\t\n")]))[0]
            == "b.conll:1: an empty tag: 'EU '"
        )

    def test_conllu_has_ten_columns(self, write):
        assert refusal(read_tagged([write("a.conllu", "1\tI\tPRON\n")]))[0] == (
            "a.conllu:1: 3 columns where 10 are needed: '1 I PRON'"
        )

    def test_a_tag_column_that_does_not_exist(self, write):
        with pytest.raises(
            UsageError, match="there is no column 'upso' in a CoNLL-U file"
        ) as caught:
            read_tagged([write("a.conllu", CONLLU)], tag="upso")
        assert caught.value.hint == "did you mean 'upos'?"
        with pytest.raises(UsageError, match="'ner' is not a column of tags in a CoNLL file"):
            read_tagged([write("a.conll", "a B\n")], tag="ner")

    def test_comments_and_nothing_else(self, write):
        with pytest.raises(DataError, match=r"a\.conllu: no example was found"):
            list(read_tagged([write("a.conllu", "# only this\n")]))


@pytest.mark.parametrize(
    ("name", "sentences", "words"),
    [
        ("ud-en-ewt/en_ewt-ud-dev.conllu.gz", 2001, 25147),
        ("wnut17/emerging.dev.conll.gz", 1009, 15733),
    ],
)
def test_real_treebanks_have_their_published_size(shared_data, name, sentences, words):
    examples = list(read_tagged([str(shared_data(name))]))
    assert (len(examples), sum(len(example.source) for example in examples)) == (sentences, words)


class TestTaggedByStrangers:
    """Files of tagged words in other formats than CoNLL."""

    SENTENCES: ClassVar = [
        (("EU", "rejects", "it"), ("B-ORG", "O", "O")),
        (("Peter", "B."), ("B-PER", "I-PER")),
    ] * 3

    def rows(self):
        for number, (words, tags) in enumerate(self.SENTENCES, start=1):
            for place, (word, tag) in enumerate(zip(words, tags, strict=True)):
                yield number, place, word, tag

    def test_a_word_a_row_and_a_column_that_numbers_the_sentences(self, write):
        first = [
            f"{'' if place else f'Sentence: {n}'},{word},X,{tag}"
            for n, place, word, tag in self.rows()
        ]
        every = [f"{n},{word},X,{tag}" for n, _, word, tag in self.rows()]
        for lines in (first, every):
            path = write("ner.csv", "\n".join(["Sentence #,Word,POS,Tag", *lines]))
            with pytest.warns(
                SeqlabWarning, match="of the columns POS, Tag the last is read as the tag"
            ):
                assert found(read_tagged([path])) == self.SENTENCES
            assert found(read_tagged([path], words="Word", tag="POS"))[1] == (
                ("Peter", "B."),
                ("X", "X"),
            )

    def test_a_word_a_row_and_blank_lines(self, write):
        lines = [
            "" * place or ("\n" if n > 1 and not place else "") + f"{word},{tag}"
            for n, place, word, tag in self.rows()
        ]
        assert (
            found(read_tagged([write("a.csv", "word,tag\n" + "\n".join(lines))])) == self.SENTENCES
        )

    def test_a_column_that_counts_the_words_is_left_out(self, write):
        lines = [
            f"{'' if place or n == 1 else chr(10)}{place + 1}\t{word}\t{tag}"
            for n, place, word, tag in self.rows()
        ]
        assert found(read_tagged([write("a.conll", "\n".join(lines))])) == self.SENTENCES

    def test_comments(self, write):
        text = "# id = 1\nEU\tB-ORG\nrejects\tO\n\n# id = 2\nPeter\tB-PER\n"
        assert found(read_tagged([write("a.conll", text)])) == [
            (("EU", "rejects"), ("B-ORG", "O")),
            (("Peter",), ("B-PER",)),
        ]

    def test_conllu_under_another_name(self, write):
        assert found(read_tagged([write("a.txt", CONLLU)])) == found(
            read_tagged([write("a.conllu", CONLLU)])
        )

    def test_tags_before_the_words(self, write):
        lines = [f"{'NV'[n % 2]} word{n}" + "\n" * (n % 5 == 4) for n in range(60)]
        with pytest.warns(
            SeqlabWarning, match="the words are read from column 2 and the tags from column 1"
        ):
            examples = found(read_tagged([write("a.conll", "\n".join(lines))]))
        assert examples[0] == (
            ("word0", "word1", "word2", "word3", "word4"),
            ("N", "V", "N", "V", "N"),
        )

    def test_lists_in_json(self, write):
        rows = [
            {"id": n, "tokens": words, "ner_tags": [3, *(0 for _ in words[1:])]}
            for n, (words, _) in enumerate(self.SENTENCES)
        ]
        path = write("a.jsonl", "\n".join(map(json.dumps, rows)))
        with pytest.warns(SeqlabWarning, match="not used: id"):
            assert found(read_tagged([path]))[0] == (("EU", "rejects", "it"), ("3", "0", "0"))

    @pytest.mark.parametrize("mark", "/_")
    def test_words_joined_to_their_tags(self, write, mark):
        line = f"the{mark}DT 1/2{mark}CD dog{mark}NN barks{mark}VBZ"
        text = "\n".join([line, line.replace("dog", "cat"), line.replace("barks", "runs"), line])
        sentences = found(read_tagged([write("a.txt", text + "\n")]))
        assert sentences[1] == (("the", "1/2", "cat", "barks"), ("DT", "CD", "NN", "VBZ"))
        assert len(sentences) == 4

    def test_a_joined_word_without_a_tag_is_refused(self, write):
        rows = ["the/DT dog/NN barks/VBZ a/DT cat/NN runs/VBZ"] * 1000
        path = write("a.txt", "\n".join([*rows, "the/DT dog barks/VBZ"]) + "\n")
        message, hint = refusal(read_tagged([path]))
        assert message == "a.txt:1001: 'dog' has no tag"
        assert "word/TAG" in hint

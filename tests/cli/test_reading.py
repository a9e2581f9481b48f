"""Reading at the command line: starting from a model, filling blanks, vectors of texts."""

import json
import re

import numpy as np
import pytest

from seqlab import lab
from seqlab.recipes import default_recipes

LINES = b"the cat sat\n\na dog ran\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty directory that we stand in, so that messages name files as a user does."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


class TestStarting:
    def test_a_classifier_begins_with_another_model(self, run, models, files, here):
        words = ["-s", "train.steps=2", "-q", "-o", "m"]
        said = run("train", "classify", files["classify"], "--from", models["mask"], *words)
        assert said.code == 0, said.stderr
        assert "use it: seqlab predict m" in said.stdout
        facts = json.loads(run("info", "m", "--json").stdout)
        assert facts["recipe"] == "tuned-classifier"
        assert (
            facts["vocabulary"]["source"]
            == json.loads(run("info", models["mask"], "--json").stdout)["vocabulary"]["source"]
        )
        assert run("predict", "m", "0 1 1").stdout.strip() in ("odd", "even")

    @pytest.mark.parametrize(
        ("words", "error", "hint"),
        [
            (
                ["classify", "{classify}", "--from", "nothing"],
                "nothing: there is no such model",
                "`seqlab train` makes one",
            ),
            (
                ["translate", "{translate}", "--from", "{lm}"],
                "a 'translate' model cannot start from a 'lm' model",
                "class",
            ),
            (
                ["classify", "{classify}", "--from", "{mask}", "-s", "source.kind=words"],
                "the tokenizer of the model to start from ('bpe') cannot change",
                "leave out --set source.*",
            ),
        ],
    )
    def test_what_cannot_be_started_is_refused_and_nothing_is_written(
        self, run, models, files, here, words, error, hint
    ):
        places = {"{classify}": files["classify"], "{translate}": files["translate"]}
        places |= {"{lm}": models["lm"], "{mask}": models["mask"]}
        said = run("train", *(places.get(word, word) for word in words), "-o", "m")
        assert said.code == 1
        assert said.error[0] == error
        assert said.error[1].startswith(hint)
        assert list(here.iterdir()) == []


class TestBlanks:
    def test_a_line_in_a_line_out(self, run, models):
        said = run("predict", models["mask"], stdin=b"the [MASK] sat\n\nthe cat sat\n")
        assert said.code == 0
        first, second, third = said.stdout.splitlines()
        assert re.fullmatch(r"the .*\S.* sat", first)
        assert "[MASK]" not in first
        assert (second, third) == ("", "the cat sat")
        assert said.stderr.startswith("warning: line 3: there is no [MASK] to fill")

    def test_as_json_with_candidates(self, run, models):
        said = json.loads(run("predict", models["mask"], "the [MASK] [MASK]", "--json").stdout)
        assert said["input"] == "the [MASK] [MASK]"
        assert [len(guesses) for guesses in said["blanks"]] == [5, 5]
        assert set(said["blanks"][0][0]) == {"token", "probability"}

    def test_its_score_stands_beside_guessing_by_frequency(self, run, models):
        scores = json.loads(run("evaluate", models["mask"], "--json").stdout)
        assert set(scores["baselines"]) == {"by frequency"}
        assert {"loss", "token_accuracy", "bits_per_token"} <= set(scores)

    def test_a_model_of_both_directions_has_no_answers(self, run, models):
        said = run("predict", models["bilm"], "the cat")
        assert said.code == 2
        assert "has no answers of its own" in said.error[0]
        assert "--embed" in said.error[1]
        assert said.stdout == ""


class TestEmbedding:
    @pytest.mark.parametrize("task", ["lm", "mask", "bilm", "classify", "tag", "translate"])
    def test_prints_one_object_a_line(self, run, models, task):
        said = run("predict", models[task], "--embed", stdin=LINES)
        assert (said.code, said.stderr) == (0, "")
        rows = [json.loads(line) for line in said.stdout.splitlines()]
        assert [row["input"] for row in rows] == ["the cat sat", "", "a dog ran"]
        expected = lab.load(models[task]).embed(["the cat sat", "", "a dog ran"])
        assert np.asarray([row["vector"] for row in rows]) == pytest.approx(expected, abs=1e-6)

    def test_words_on_the_command_line_are_texts(self, run, models):
        said = run("predict", models["mask"], "the cat", "a dog", "--embed")
        assert [json.loads(line)["input"] for line in said.stdout.splitlines()] == [
            "the cat",
            "a dog",
        ]

    def test_into_an_array(self, run, models, here):
        said = run("predict", models["mask"], "--embed", "-o", "v.npy", "--normalise", stdin=LINES)
        assert (said.code, said.stdout) == (0, "")
        vectors = np.load("v.npy")
        assert vectors.shape == (3, 12)
        assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 0, 1], abs=1e-5)

    def test_into_lines_of_json_as_they_would_be_printed(self, run, models, here):
        said = run("predict", models["mask"], "--embed", "--out", "v.jsonl", stdin=LINES)
        assert (said.code, said.stdout) == (0, "")
        assert (here / "v.jsonl").read_text("utf-8") == run(
            "predict", models["mask"], "--embed", stdin=LINES
        ).stdout

    def test_into_a_file_of_another_kind_is_refused(self, run, models, here):
        said = run("predict", models["mask"], "--embed", "--out", "v.csv", stdin=LINES)
        assert said.code == 2
        assert said.error[0] == "v.csv: vectors go into a .npy or a .jsonl file"
        assert list(here.iterdir()) == []

    def test_a_file_is_for_vectors_alone(self, run, models, here):
        said = run("predict", models["mask"], "the [MASK]", "--out", "v.jsonl")
        assert said.code == 2
        assert said.error[0] == "--out is where --embed puts its vectors, and a forecast its rows"
        assert (said.stdout, list(here.iterdir())) == ("", [])

    def test_nothing_in_nothing_out(self, run, models):
        said = run("predict", models["mask"], "--embed", stdin=b"")
        assert (said.code, said.stdout, said.stderr) == (0, "", "")


class TestFilesToTag:
    def test_a_column_that_is_not_there(self, run, here):
        (here / "x.conllu").write_text("1\tshe\t_\tPRON" + "\t_" * 6 + "\n")
        said = run("train", "tag", "x.conllu", "--set", "data.target=nosuch", "-o", "m")
        assert said.code == 2
        assert said.error[0] == "there is no column 'nosuch' in a CoNLL-U file"
        assert all(name in said.error[1] for name in ("upos", "xpos", "deprel", "misc"))
        assert sorted(path.name for path in here.iterdir()) == ["x.conllu"]

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("x.conllu", "# sent_id = 1\n\n# sent_id = 2\n\n"),
            ("x.conllu", "1-2\tdon't\t_\t_" + "\t_" * 6 + "\n\n"),
            ("x.conll", "-DOCSTART- -X- O\n\n"),
        ],
    )
    def test_sentences_without_tokens(self, run, here, name, text):
        (here / name).write_text(text)
        said = run("train", "tag", name, "-o", "m")
        assert said.code == 1
        assert said.error[0] == f"{name}: no example was found"
        assert sorted(path.name for path in here.iterdir()) == [name]

    def test_scores_of_entities_are_shares(self, run, here, small):
        (here / "x.conll").write_text("".join(f"n{i} O\nAda B-PER\n\n" for i in range(20)))
        said = run(
            "train", "tag", "x.conll", "-o", "m", "-q", *small("tag"), "-s", "data.validation=0.3"
        )
        assert said.code == 0
        rows = [line for line in said.stdout.splitlines() if line.startswith("│ entity")]
        assert len(rows) == 3
        assert all("%" in row for row in rows)


@pytest.mark.parametrize("text", ["", "\n  \n"])
@pytest.mark.parametrize("task", ["mask", "bilm"])
def test_a_text_with_nothing_in_it(run, here, task, text):
    (here / "t.txt").write_text(text)
    said = run("train", task, "t.txt", "-o", "m")
    assert said.code == 1
    assert said.error[0] == "t.txt: the file is empty"
    assert sorted(path.name for path in here.iterdir()) == ["t.txt"]


def test_the_help_names_all_tasks_and_how_to_start_from_a_model(run):
    said = run("train", "--help").stdout
    *names, last = default_recipes()
    assert f"{', '.join(names)} or {last}" in " ".join(said.split())
    assert "--from" in said
    assert "--embed" in run("predict", "--help").stdout

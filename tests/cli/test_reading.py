"""`train --from`, filling [MASK], `predict --embed`, and files to tag."""

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
    def test_a_classifier_starts_from_another_model(self, run, models, files, here):
        words = ["-s", "train.steps=2", "-q", "-o", "m"]
        result = run("train", "classify", files["classify"], "--from", models["mask"], *words)
        assert result.code == 0, result.stderr
        assert "use it: seqlab predict m" in result.stdout
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
    def test_a_model_that_does_not_fit_is_refused(
        self, run, models, files, here, words, error, hint
    ):
        places = {"{classify}": files["classify"], "{translate}": files["translate"]}
        places |= {"{lm}": models["lm"], "{mask}": models["mask"]}
        result = run("train", *(places.get(word, word) for word in words), "-o", "m")
        assert result.code == 1
        assert result.error[0] == error
        assert result.error[1].startswith(hint)
        assert list(here.iterdir()) == []


class TestBlanks:
    def test_a_line_in_a_line_out(self, run, models):
        result = run("predict", models["mask"], stdin=b"the [MASK] sat\n\nthe cat sat\n")
        assert result.code == 0
        first, second, third = result.stdout.splitlines()
        assert re.fullmatch(r"the .*\S.* sat", first)
        assert "[MASK]" not in first
        assert (second, third) == ("", "the cat sat")
        assert result.stderr.startswith("warning: line 3: there is no [MASK] to fill")

    def test_as_json_with_candidates(self, run, models):
        result = json.loads(run("predict", models["mask"], "the [MASK] [MASK]", "--json").stdout)
        assert result["input"] == "the [MASK] [MASK]"
        assert [len(guesses) for guesses in result["blanks"]] == [5, 5]
        assert set(result["blanks"][0][0]) == {"token", "probability"}

    def test_the_baseline_is_guessing_by_frequency(self, run, models):
        scores = json.loads(run("evaluate", models["mask"], "--json").stdout)
        assert set(scores["baselines"]) == {"by frequency"}
        assert {"loss", "token_accuracy", "bits_per_token"} <= set(scores)

    def test_a_model_of_both_directions_has_no_answers(self, run, models):
        result = run("predict", models["bilm"], "the cat")
        assert result.code == 2
        assert "has no answers of its own" in result.error[0]
        assert "--embed" in result.error[1]
        assert result.stdout == ""


class TestEmbedding:
    @pytest.mark.parametrize("task", ["lm", "mask", "bilm", "classify", "tag", "translate"])
    def test_prints_one_object_a_line(self, run, models, task):
        result = run("predict", models[task], "--embed", stdin=LINES)
        assert (result.code, result.stderr) == (0, "")
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        assert [row["input"] for row in rows] == ["the cat sat", "", "a dog ran"]
        expected = lab.load(models[task]).embed(["the cat sat", "", "a dog ran"])
        assert np.asarray([row["vector"] for row in rows]) == pytest.approx(expected, abs=1e-6)

    def test_arguments_are_texts(self, run, models):
        result = run("predict", models["mask"], "the cat", "a dog", "--embed")
        assert [json.loads(line)["input"] for line in result.stdout.splitlines()] == [
            "the cat",
            "a dog",
        ]

    def test_into_an_array(self, run, models, here):
        result = run(
            "predict", models["mask"], "--embed", "-o", "v.npy", "--normalise", stdin=LINES
        )
        assert (result.code, result.stdout) == (0, "")
        vectors = np.load("v.npy")
        assert vectors.shape == (3, 12)
        assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 0, 1], abs=1e-5)

    def test_into_lines_of_json_as_they_would_be_printed(self, run, models, here):
        result = run("predict", models["mask"], "--embed", "--out", "v.jsonl", stdin=LINES)
        assert (result.code, result.stdout) == (0, "")
        assert (here / "v.jsonl").read_text("utf-8") == run(
            "predict", models["mask"], "--embed", stdin=LINES
        ).stdout

    def test_into_a_file_of_another_kind_is_refused(self, run, models, here):
        result = run("predict", models["mask"], "--embed", "--out", "v.csv", stdin=LINES)
        assert result.code == 2
        assert result.error[0] == "v.csv: vectors are written as .npy or .jsonl"
        assert list(here.iterdir()) == []

    def test_out_needs_embed(self, run, models, here):
        result = run("predict", models["mask"], "the [MASK]", "--out", "v.jsonl")
        assert result.code == 2
        assert result.error[0] == "--out is only for forecasts and for vectors (--embed)"
        assert (result.stdout, list(here.iterdir())) == ("", [])

    def test_empty_input_gives_empty_output(self, run, models):
        result = run("predict", models["mask"], "--embed", stdin=b"")
        assert (result.code, result.stdout, result.stderr) == (0, "", "")


class TestFilesToTag:
    def test_a_missing_column(self, run, here):
        (here / "x.conllu").write_text("1\tshe\t_\tPRON" + "\t_" * 6 + "\n")
        result = run("train", "tag", "x.conllu", "--set", "data.target=nosuch", "-o", "m")
        assert result.code == 2
        assert result.error[0] == "there is no column 'nosuch' in a CoNLL-U file"
        assert all(name in result.error[1] for name in ("upos", "xpos", "deprel", "misc"))
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
        result = run("train", "tag", name, "-o", "m")
        assert result.code == 1
        assert result.error[0] == f"{name}: no example was found"
        assert sorted(path.name for path in here.iterdir()) == [name]

    def test_scores_of_entities_are_shares(self, run, here, small):
        (here / "x.conll").write_text("".join(f"n{i} O\nAda B-PER\n\n" for i in range(20)))
        result = run(
            "train", "tag", "x.conll", "-o", "m", "-q", *small("tag"), "-s", "data.validation=0.3"
        )
        assert result.code == 0
        rows = [line for line in result.stdout.splitlines() if line.startswith("│ entity")]
        assert len(rows) == 3
        assert all("%" in row for row in rows)


@pytest.mark.parametrize("text", ["", "\n  \n"])
@pytest.mark.parametrize("task", ["mask", "bilm"])
def test_an_empty_text(run, here, task, text):
    (here / "t.txt").write_text(text)
    result = run("train", task, "t.txt", "-o", "m")
    assert result.code == 1
    assert result.error[0] == "t.txt: the file is empty"
    assert sorted(path.name for path in here.iterdir()) == ["t.txt"]


def test_the_help_names_all_tasks_and_how_to_start_from_a_model(run):
    result = run("train", "--help").stdout
    *names, last = default_recipes()
    assert f"{', '.join(names)} or {last}" in " ".join(result.split())
    assert "--from" in result
    assert "--embed" in run("predict", "--help").stdout

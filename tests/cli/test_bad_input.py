"""Wrong input: a message, a hint, exit code 1, and no files written."""

import gzip
import shutil

import pytest

BAD_FILES = {
    "empty": ("pairs.tsv", b"", "pairs.tsv: the file is empty"),
    "blank": ("pairs.tsv", b"\n  \n", "pairs.tsv: the file is empty"),
    "not UTF-8": (
        "pairs.tsv",
        b"a\tb\nc\td\ncaf\xe9\te\n",
        "pairs.tsv:3: not valid UTF-8: byte 0xe9 at position 4",
    ),
    "one column": (
        "pairs.tsv",
        b"a\tb\n\nBonjour\n",
        "pairs.tsv:3: 1 column where 2 are needed: 'Bonjour'",
    ),
    "binary": ("pairs.tsv", b"a\tb\n\0\0\n", "pairs.tsv:2: a NUL byte at position 1"),
    "not JSON": (
        "pairs.jsonl",
        b'{"source": "a", "target": "b"}\n{',
        "pairs.jsonl:2: this line is not JSON: '{'",
    ),
    "cut off": (
        "pairs.tsv.gz",
        gzip.compress(b"a\tb\n" * 99)[:-9],
        "pairs.tsv.gz: cannot be read past line",
    ),
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty directory that we stand in, so that messages name files as a user does."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_file_that_cannot_be_used(run, here, case):
    name, content, message = BAD_FILES[case]
    (here / name).write_bytes(content)
    result = run("train", "translate", name, "-o", "deep/out")
    assert result.code == 1
    assert result.error[0].startswith(message)
    assert result.stdout == ""
    assert names(here) == [name]

    assert run("data", "look", "translate", name).error[0].startswith(message)


def test_a_missing_file(run, here):
    (here / "pairs.tsv").write_text("a\tb\n")
    result = run("train", "translate", "pears.tsv", "-o", "out")
    assert result.code == 1
    assert result.error == ("pears.tsv: there is no such file", "did you mean 'pairs.tsv'?")
    assert names(here) == ["pairs.tsv"]


def test_standard_input_is_named_stdin(run, here):
    result = run("train", "translate", "-", "-o", "out", stdin=b"a\tb\nc\n")
    assert result.code == 1
    assert result.error[0] == "stdin:2: 1 column where 2 are needed: 'c'"
    assert names(here) == []


def test_parallel_files_of_unequal_length(run, here):
    (here / "a.en").write_text("one\ntwo\nthree\n")
    (here / "a.fr").write_text("un\ndeux\n")
    result = run("train", "translate", "a.en", "a.fr", "-o", "out")
    assert result.code == 1
    assert result.error[0] == "a.en has 3 lines and a.fr has 2"
    assert names(here) == ["a.en", "a.fr"]


def test_a_bad_validation_file(run, here, files):
    (here / "v.tsv").write_text("only one column\n")
    result = run("train", "translate", files["translate"], "--valid", "v.tsv", "-o", "out")
    assert result.code == 1
    assert result.error[0].startswith("v.tsv:1: 1 column where 2 are needed")
    assert names(here) == ["v.tsv"]


@pytest.mark.parametrize(
    ("text", "message"), [("h", "the vocabulary would be empty"), ("hi", "has nothing to predict")]
)
def test_a_text_too_short_to_learn_from(run, here, text, message):
    (here / "b.txt").write_text(text)
    refused = run("train", "lm", "b.txt", "-o", "out")
    assert refused.code == 1
    assert message in refused.error[0]
    assert names(here) == ["b.txt"]


def test_all_examples_are_too_long(run, here):
    (here / "p.tsv").write_text("".join(f"abcdef{i}\tx\n" for i in range(9)))
    words = ["-s", "source.kind=characters", "-s", "shared=false", "-s", "data.max_source=3"]
    result = run("train", "translate", "p.tsv", "-o", "out", "-s", "data.too_long=skip", *words)
    assert result.code == 1
    assert result.error[0].startswith("p.tsv:")
    assert result.error[0].endswith("part: none is left")
    refused = run("train", "translate", "p.tsv", "-o", "out", "-s", "data.too_long=refuse", *words)
    assert refused.error[0].endswith(": 7 source and 3 target tokens, more than 3 and 200")
    assert names(here) == ["p.tsv"]


class TestRecipes:
    @pytest.mark.parametrize(
        ("words", "error", "hint"),
        [
            (
                ["-s", "train.stepz=3"],
                "recipe 'transformer-small' with --set: there is no 'train.stepz'",
                "did you mean 'steps'?",
            ),
            (
                ["-s", "trian.steps=3"],
                "--set trian.steps=3: there is no section 'trian'",
                "did you mean 'train'?",
            ),
            (
                ["-s", "train.steps"],
                "--set train.steps: not of the form key=value",
                "for example --set train.steps=500",
            ),
            (
                ["-r", "seq2seq", "-s", "train.steps=many"],
                "recipe 'seq2seq' with --set: 'train.steps': ",
                "`seqlab recipes NAME` shows",
            ),
            (["-r", "seq3seq"], "there is no recipe 'seq3seq'", "did you mean 'seq2seq'?"),
            (
                ["-r", "char-lstm"],
                "recipe 'char-lstm' is for 'lm', not for 'translate'",
                "`seqlab recipes` lists",
            ),
            (
                ["-r", "mine.toml"],
                "mine.toml: there is no such recipe file",
                "give the path of a file",
            ),
        ],
    )
    def test_an_unknown_setting_or_recipe(self, run, here, files, words, error, hint):
        result = run("train", "translate", files["translate"], "-o", "out", *words)
        assert result.code == 1
        assert result.error[0].startswith(error)
        assert result.error[1].startswith(hint)
        assert names(here) == []

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"\xff\xfe", "not valid UTF-8"),
            (b"name = ", "not valid TOML"),
            (b'name = "x"', "'task'"),
        ],
    )
    def test_a_file_that_is_not_a_recipe(self, run, here, content, message):
        (here / "r.toml").write_bytes(content)
        refused = run("recipes", "r.toml")
        assert refused.code == 1
        assert refused.error[0].startswith("r.toml: ")
        assert message in refused.error[0]


class TestModels:
    @pytest.mark.parametrize("verb", ["predict", "evaluate", "info"])
    def test_a_missing_model(self, run, here, verb):
        result = run(verb, "runs/nothing")
        assert result.code == 1
        assert result.error[0] == "runs/nothing: there is no such model"

    def test_a_missing_file_of_a_model(self, run, here, models):
        shutil.copytree(models["tag"], here / "m")
        (here / "m" / "tokenizer.json").unlink()
        result = run("predict", "m", "a")
        assert result.code == 1
        assert result.error[0] == "m/tokenizer.json: this file of the model is missing"

    @pytest.mark.parametrize(
        "harm", [lambda b: b[:-1], lambda b: b[:-1] + bytes([b[-1] ^ 1]), lambda b: b""]
    )
    def test_a_truncated_or_changed_file_of_a_model(self, run, here, models, harm):
        shutil.copytree(models["tag"], here / "m")
        weights = here / "m" / "model.safetensors"
        weights.write_bytes(harm(weights.read_bytes()))
        for verb in ("predict", "evaluate", "info"):
            result = run(verb, "m")
            assert result.code == 1
            assert result.error[0] == "m/model.safetensors: this file was changed or truncated"
            assert result.stdout == ""


class TestDirectories:
    @pytest.fixture
    def finished(self, here, models):
        shutil.copytree(models["translate"], here / "out")
        return here / "out"

    def test_a_directory_with_a_run_is_not_changed(self, run, here, files, finished, untouched):
        before = untouched(finished)
        result = run("train", "translate", files["translate"], "-o", "out")
        assert result.code == 1
        assert result.error[0] == "out: this directory already holds a run"
        assert "--resume" in result.error[1]
        assert "--overwrite" in result.error[1]
        assert untouched(finished) == before
        assert names(here) == ["out"]

    def test_overwriting_with_bad_data_changes_nothing(self, run, here, finished, untouched):
        before = untouched(finished)
        (here / "bad.tsv").write_text("one column\n")
        assert run("train", "translate", "bad.tsv", "-o", "out", "--overwrite").code == 1
        assert untouched(finished) == before

    def test_a_run_can_be_overwritten(self, run, here, files, small, finished):
        result = run(
            "train",
            "translate",
            files["translate"],
            "-o",
            "out",
            "--overwrite",
            "-q",
            *small("translate"),
        )
        assert result.code == 0
        assert "after 4 steps" in run("info", "out").stdout
        assert names(here) == ["out"]

    def test_a_link_to_a_run_stays_a_link(self, run, here, files, small, finished):
        (here / "link").symlink_to("out")
        run(
            "train",
            "translate",
            files["translate"],
            "-o",
            "link",
            "--overwrite",
            "-q",
            *small("translate"),
        )
        assert (here / "link").is_symlink()
        assert "after 4 steps" in run("info", "out").stdout

    def test_a_directory_with_other_files_is_not_changed(self, run, here, files, untouched):
        (here / "out").mkdir()
        (here / "out" / "thesis.tex").write_text("irreplaceable")
        before = untouched(here)
        for words in ([], ["--overwrite"]):
            result = run("train", "translate", files["translate"], "-o", "out", *words)
            assert result.code == 1
            assert result.error[0] == "out: this directory holds other files"
        assert untouched(here) == before

    def test_a_file(self, run, here, files):
        (here / "out").write_text("mine")
        result = run("train", "translate", files["translate"], "-o", "out", "--overwrite")
        assert result.code == 1
        assert result.error[0] == "out: this is a file"
        assert (here / "out").read_text() == "mine"

    def test_a_directory_that_cannot_be_created(self, run, here, files):
        (here / "file").write_text("mine")
        result = run("train", "translate", files["translate"], "-o", "file/out")
        assert result.code == 1
        assert "file" in result.error[0]
        assert names(here) == ["file"]

    @pytest.mark.parametrize("made", [False, True])
    def test_a_directory_without_a_run_cannot_be_resumed(self, run, here, made):
        if made:
            (here / "out").mkdir()
        result = run("train", "--resume", "-o", "out")
        assert result.code == 1
        assert result.error == ("out: there is no run here to resume", "train without --resume.")
        assert names(here) == (["out"] if made else [])

    def test_a_finished_run_cannot_be_resumed(self, run, finished):
        before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
        for words in ([], ["-s", "train.steps=20"]):
            result = run("train", "--resume", "-o", "out", *words)
            assert result.code == 1
            assert result.error[0].startswith("out: this run has finished all ")
        assert {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()} == before

    def test_a_finished_run_can_be_resumed_with_more_steps(self, run, finished):
        assert run("train", "--resume", "-o", "out", "-q", "-s", "train.steps=32").code == 0
        assert "after 32 steps" in run("info", "out").stdout
        assert (
            run("train", "--resume", "-o", "out").error[0]
            == "out: this run has finished all 32 steps"
        )

    @pytest.mark.parametrize(
        "setting", ["model.dropout=0.5", "data.max_source=9", "source.lower=true", "shared=true"]
    )
    def test_a_run_keeps_its_model_and_its_data(self, run, finished, untouched, setting):
        before = untouched(finished)
        result = run("train", "--resume", "-o", "out", "-s", "train.steps=60", "-s", setting)
        assert result.code == 1
        assert (
            result.error[0]
            == "out: the model and the data of a run cannot change when it is resumed"
        )
        assert untouched(finished) == before

    def test_a_run_keeps_its_task_and_its_recipe(self, run, finished):
        for words in (["lm"], ["translate", "-r", "dates"]):
            result = run("train", *words, "--resume", "-o", "out")
            assert result.code == 1
            assert result.error[0] == "out: this run has the recipe 'seq2seq' for 'translate'"

    @pytest.mark.parametrize(
        "file", ["tokenizer.json", "recipe.toml", "last.safetensors", "data/train_target.json"]
    )
    def test_a_damaged_run(self, run, finished, file):
        (finished / "run" / file).write_text("{")
        result = run("train", "--resume", "-o", "out", "-s", "train.steps=60")
        assert result.code == 1
        assert result.error[0].startswith(f"out/run/{file}: ")


def test_a_file_without_a_task_gets_a_proposed_command(run, here):
    (here / "trec.tsv").write_text(
        "".join(f"{'AB'[n % 2]}\tWhat is this, number {n} ?\n" for n in range(40))
    )
    result = run("train", "trec.tsv")
    assert result.code == 2
    assert result.error[0].startswith("no task is named; 'classify' fits trec.tsv: 40 lines of")
    assert result.error[1].endswith(" train classify trec.tsv")
    assert "data look classify trec.tsv` shows" in result.stderr
    (here / "a.csv").write_text("".join(f"{n}.5\n" for n in range(40)))
    assert run("train", "a.csv").error[1].endswith(" train forecast a.csv")
    assert names(here) == ["a.csv", "trec.tsv"]


def test_a_note_about_a_file_is_printed_once(run, here):
    rows = [f"What is this, number {n} ?\t{'AB'[n % 2]}\n" for n in range(40)]
    (here / "swapped.tsv").write_text("".join(rows))
    result = run("data", "look", "classify", "swapped.tsv")
    assert result.code == 0
    assert result.stderr.count("reading the text from column 1 and the label from column 2") == 1


def test_an_encoding_can_be_named(run, here):
    (here / "a.tsv").write_bytes("x\tcafé\ny\tthé\n".encode("windows-1252"))
    result = run("data", "look", "classify", "a.tsv")
    assert result.code == 1
    assert result.error[1].endswith("--set data.encoding=windows-1252")
    assert run("data", "look", "classify", "a.tsv", "--set", "data.encoding=windows-1252").code == 0

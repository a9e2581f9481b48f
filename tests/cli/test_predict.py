import gzip
import json
import random

import pytest

from seqlab import lab
from seqlab.errors import UsageError

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(scope="module")
def many():
    """10,000 lines: words, nothing, blanks, and characters that no model of ours has seen."""
    keyed = random.Random(3)
    rare = ["", "", "   ", "\t", "日本", "ab\u2028cd", "e\u0301", "\U0001f600 !", "\x7f", "a\rb"]
    draw = [
        lambda: keyed.choice(rare),
        lambda: "".join(keyed.choices(LETTERS, k=keyed.randint(1, 6))),
    ]
    return [keyed.choices(draw, weights=(1, 4))[0]() for _ in range(10_000)]


@pytest.mark.parametrize("task", ["translate", "classify", "tag"])
def test_many_lines_are_answered_in_order_and_like_single_lines(run, models, many, task):
    piped = "".join(line + "\n" for line in many).encode()
    result = run("predict", models[task], stdin=piped)
    assert result.code == 0
    answers = result.stdout.split("\n")
    assert len(answers) == len(many) + 1
    assert answers.pop() == ""

    for place in (*range(40), 1999, 2000, 2001, 9999):
        if many[place] and "\r" not in many[place]:
            alone = run("predict", models[task], "--", many[place]).stdout
            assert alone == answers[place] + "\n", many[place]
    if task != "classify":
        assert all(
            answer == "" for line, answer in zip(many, answers, strict=True) if not line.strip()
        )
    if task == "tag":
        counts = [
            (len(line.split()), len(tags.split())) for line, tags in zip(many, answers, strict=True)
        ]
        assert all(words == tags for words, tags in counts)


def test_a_language_model_answers_each_line_on_one_line(run, models):
    prompts = ["the cat", "", "   ", "日本", "a dog ran\\n"] * 50
    result = run(
        "predict",
        models["lm"],
        "--max-length",
        60,
        stdin="".join(p + "\n" for p in prompts).encode(),
    )
    assert result.stdout.count("\n") == len(prompts)
    assert (
        "\\n" in result.stdout
    )  # the book's lines are short, so the answers have ends of lines in them


def test_a_prompt_on_the_command_line_keeps_line_breaks(run, models):
    result = run("predict", models["lm"], "the cat", "--max-length", 60)
    assert result.stdout.count("\n") > 1


def test_stdin_a_file_and_a_compressed_file_give_the_same(run, models, tmp_path):
    text = b"abc\n\nxyz\nlast line without an end"
    (tmp_path / "lines.txt").write_bytes(text)
    (tmp_path / "lines.txt.gz").write_bytes(gzip.compress(text))
    answers = [
        run("predict", models["translate"], stdin=text),
        run("predict", models["translate"], "-i", "-", stdin=text),
        run("predict", models["translate"], "-", stdin=text),
        run("predict", models["translate"], "--input", tmp_path / "lines.txt"),
        run("predict", models["translate"], "--input", tmp_path / "lines.txt.gz"),
    ]
    assert {result.code for result in answers} == {0}
    assert len({result.stdout for result in answers}) == 1
    assert answers[0].stdout.count("\n") == 4
    assert answers[0].stdout.split("\n")[1] == ""


def test_empty_input_gives_empty_output(run, models):
    assert run("predict", models["translate"], stdin=b"").stdout == ""


def test_several_arguments_are_several_inputs(run, models):
    one, other = (run("predict", models["translate"], word).stdout for word in ("abc", "xyz"))
    assert run("predict", models["translate"], "abc", "xyz").stdout == one + other


@pytest.mark.parametrize(
    ("task", "keys"),
    [
        ("lm", {"input", "output", "log_probability", "tokens"}),
        ("translate", {"input", "output", "log_probability", "tokens"}),
        ("classify", {"input", "output", "probability", "probabilities"}),
        ("tag", {"input", "output", "words", "tags"}),
    ],
)
def test_json_is_one_object_a_line(run, models, task, keys):
    result = run("predict", models[task], "--json", stdin=b"0 1 1\na b\n")
    objects = [json.loads(line) for line in result.stdout.splitlines()]
    assert [each["input"] for each in objects] == ["0 1 1", "a b"]
    assert all(keys <= set(each) for each in objects)
    if task == "classify":
        assert sum(objects[0]["probabilities"].values()) == pytest.approx(1)
        assert objects[0]["probability"] == max(objects[0]["probabilities"].values())


def test_streaming_equals_predicting(run, models):
    for options in (("--greedy",), ("--temperature", 1, "--seed", 3)):
        whole = run("predict", models["lm"], "the", "--max-length", 20, *options).stdout
        assert (
            run("predict", models["lm"], "the", "--max-length", 20, "--stream", *options).stdout
            == whole
        )
    whole = run("predict", models["translate"], "abc", "--greedy").stdout
    assert run("predict", models["translate"], "abc", "--greedy", "--stream").stdout == whole
    result = run("predict", models["classify"], "abc", "--stream")
    assert result.code == 2
    assert "writes no text" in result.error[0]


def test_reported_scores_equal_rescoring(models):
    model = lab.load(models["translate"])
    best = model.predict("abc", beam=3)
    ended = next(h for h in best.details["hypotheses"] if h["ended"])
    assert model.score([ended["output"]], ["abc"])[0] == pytest.approx(
        ended["log_probability"], abs=1e-4
    )
    with pytest.raises(UsageError, match="writes no text"):
        lab.load(models["classify"]).score(["abc"])


class TestBeam:
    def test_hypotheses_are_sorted_by_score(self, run, models):
        result = json.loads(
            run("predict", models["translate"], "abc", "--beam", 4, "--json").stdout
        )
        scores = [hypothesis["score"] for hypothesis in result["hypotheses"]]
        assert len(scores) == 4
        assert scores == sorted(scores, reverse=True)
        assert result["output"] == result["hypotheses"][0]["output"]
        assert result["log_probability"] == pytest.approx(sum(result["log_probabilities"]))

    def test_a_beam_of_one_equals_greedy(self, run, models):
        lines = b"abc\nba\n\ncab\n"
        beam = run("predict", models["translate"], "--beam", 1, stdin=lines).stdout
        assert beam == run("predict", models["translate"], "--greedy", stdin=lines).stdout

    def test_every_answer_begins_with_the_prefix(self, run, models):
        for search in ("--greedy", "--beam=3", "--temperature=1"):
            answers = run(
                "predict", models["translate"], "--prefix", "ca", search, stdin=b"abc\nb\n"
            ).stdout
            assert all(line.startswith("ca") for line in answers.splitlines())
            assert len(answers.splitlines()) == 2

    def test_a_prefix_with_unknown_tokens(self, run, models):
        result = run("predict", models["translate"], "abc", "--prefix", "a☃")
        assert result.code == 2
        assert "'a☃'" in result.error[0]

    @pytest.mark.parametrize(
        "option", ["--beam=0", "--length-penalty=-1", "--no-repeat=0", "--min-length=-1"]
    )
    def test_an_option_out_of_range(self, run, models, option):
        result = run("predict", models["translate"], "abc", option)
        assert result.code == 2
        assert result.error[0].startswith(option[2:].split("=")[0].replace("-", "_"))

    def test_a_long_source_is_cut_with_a_warning(self, run, models):
        result = run("predict", models["translate"], "ab" * 2000, "--beam", 2)
        assert result.code == 0
        assert "line 1: 4000 tokens" in result.stderr


class TestSampling:
    def test_the_seed_determines_the_sample(self, run, models):
        first, again, other = (
            run("predict", models["lm"], "the", "--temperature", 1, "--seed", seed).stdout
            for seed in (1, 1, 2)
        )
        assert first == again
        assert first != other

    def test_equal_lines_get_different_samples(self, run, models):
        answers = run(
            "predict", models["lm"], "--temperature", 1, stdin=b"the\n" * 5
        ).stdout.splitlines()
        assert len(set(answers)) > 1

    def test_samples_do_not_depend_on_batches(self, run, models):
        prompts = ["the", "a dog ran and", "", "the time traveller"] * 10
        together = run(
            "predict",
            models["lm"],
            "--temperature",
            1,
            stdin="".join(p + "\n" for p in prompts).encode(),
        )
        fewer = run(
            "predict",
            models["lm"],
            "--temperature",
            1,
            stdin="".join(p + "\n" for p in prompts[:3]).encode(),
        )
        assert together.stdout.splitlines()[:3] == fewer.stdout.splitlines()

    def test_top_k_of_one_equals_greedy(self, run, models):
        greedy = run("predict", models["lm"], "the", "--greedy").stdout
        assert run("predict", models["lm"], "the", "--top-k", 1, "--seed", 5).stdout == greedy
        assert run("predict", models["lm"], "the", "--top-p", 1e-9, "--seed", 5).stdout == greedy

    def test_no_answer_exceeds_max_length(self, run, models):
        result = run("predict", models["lm"], "the", "--max-length", 3, "--json")
        assert len(json.loads(result.stdout)["tokens"]) == 3

    @pytest.mark.parametrize(
        ("option", "value", "name"),
        [
            ("--temperature", "0", "temperature"),
            ("--temperature", "-1", "temperature"),
            ("--temperature", "nan", "temperature"),
            ("--temperature", "inf", "temperature"),
            ("--top-k", "0", "top_k"),
            ("--top-p", "2", "top_p"),
            ("--top-p", "0", "top_p"),
            ("--max-length", "0", "max_length"),
        ],
    )
    def test_an_option_out_of_range(self, run, models, option, value, name):
        result = run("predict", models["lm"], "the", option, value)
        assert result.code == 2
        assert name in result.error[0]
        assert result.stdout == ""


class TestLongLines:
    def test_are_cut_with_a_warning_that_names_the_first(self, run, models):
        result = run(
            "predict",
            models["translate"],
            stdin=b"abc\n" + b"abc" * 20 + b"\n" + b"xyz" * 20 + b"\n",
        )
        assert result.code == 0
        assert result.stdout.count("\n") == 3
        assert result.stderr == (
            "warning: line 2: 60 tokens, more than the 30 of data.max_source; the rest was not read (and 1 more)\n"
        )

    def test_of_a_tagger_keep_a_tag_for_each_word(self, run, files, small, tmp_path):
        run(
            "train",
            "tag",
            files["tag"],
            "-o",
            tmp_path / "m",
            "-q",
            *small("tag"),
            "-s",
            "data.max_source=3",
        )
        result = run("predict", tmp_path / "m", "A b 1 c D 2")
        assert len(result.stdout.split()) == 6
        assert "more than the 3 of data.max_source" in result.stderr


def test_invalid_utf8_is_reported_with_its_line(run, models):
    result = run("predict", models["translate"], stdin=b"abc\nxyz\nb\xe9d\n")
    assert result.code == 1
    assert result.error[0] == "stdin:3: not valid UTF-8: byte 0xe9 at position 2"


def test_a_missing_file(run, models, tmp_path):
    result = run("predict", models["translate"], "-i", tmp_path / "lines.txt")
    assert result.code == 1
    assert result.error[0] == f"{tmp_path / 'lines.txt'}: there is no such file"

import json
import re
import sys
from pathlib import Path

import pytest

from seqlab.data.catalogue import datasets
from seqlab.data.synthetic import reversals
from seqlab.held_out import compare_with_baseline
from seqlab.recipe import load_recipe, parse_recipe
from seqlab.recipes import default_recipes, recipe_names
from seqlab.tasks import task_named

TASKS = sorted(default_recipes())


@pytest.mark.parametrize("task", TASKS)
def test_training_prints_scores_and_the_next_command(run, files, small, tmp_path, task):
    result = run("train", task, files[task], "-o", tmp_path / "m", *small(task))

    assert result.code == 0
    assert "held out" in result.stdout
    assert f"use it: seqlab predict {tmp_path / 'm'}" in result.stdout
    assert "parameters, 4 steps: about" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m"]


def test_training_as_json(run, files, small, tmp_path):
    result = run(
        "train",
        "translate",
        files["translate"],
        "-o",
        tmp_path / "m",
        "-q",
        "--json",
        *small("translate"),
    )
    summary = json.loads(result.stdout)
    assert summary["stopped"] is False
    assert summary["steps"] == 4
    assert summary["path"] == str(tmp_path / "m")
    assert result.stderr == ""


def test_without_out_the_directory_is_named_after_task_and_file(
    run, files, small, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    result = run("train", "classify", files["classify"], "-q", *small("classify"))
    assert result.code == 0
    assert (tmp_path / "runs" / "classify-bits" / "manifest.json").is_file()


def test_out_may_be_the_current_directory(run, files, small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert (
        run("train", "classify", files["classify"], "-o", ".", "-q", *small("classify")).code == 0
    )
    assert (tmp_path / "manifest.json").is_file()


def test_training_and_validating_on_standard_input(run, files, small, tmp_path):
    piped = files["classify"].read_bytes()
    for place, words in enumerate((["-"], [files["classify"], "--valid", "-"])):
        out = tmp_path / str(place)
        result = run("train", "classify", *words, "-o", out, "-q", *small("classify"), stdin=piped)
        assert result.code == 0, result.stderr
    assert run("evaluate", tmp_path / "1").stdout.startswith("bilstm-classifier on 300 examples")


def test_another_recipe_by_name_or_file(run, files, small, tmp_path):
    (tmp_path / "mine.toml").write_text(
        run("recipes", "char-gru").stdout.replace("char-gru", "mine")
    )
    for recipe in ("char-gru", str(tmp_path / "mine.toml")):
        out = tmp_path / Path(recipe).stem
        assert (
            run("train", "lm", files["lm"], "-r", recipe, "-o", out, "-q", *small("lm")).code == 0
        )
    assert json.loads(run("info", tmp_path / "mine", "--json").stdout)["recipe"] == "mine"


@pytest.mark.parametrize("task", TASKS)
def test_info_of_a_model(run, models, task):
    facts = json.loads(run("info", models[task], "--json").stdout)
    assert facts["task"] == task
    assert facts["parameters"] > 0
    assert facts["metrics"]["steps"] == 30
    assert "held out, after 30 steps" in run("info", models[task]).stdout


def test_info_of_the_installation(run):
    facts = json.loads(run("info", "--json").stdout)
    assert facts["python"] == sys.version.split()[0]
    assert facts["native kernels"] == "turned off by SEQLAB_NATIVE=0"
    assert "serve" in facts["extras"]
    assert "torch" in run("info").stdout


def test_kernels_prints_whether_they_are_in_use(run):
    assert run("kernels").stdout == "native kernels: turned off by SEQLAB_NATIVE=0\n"
    facts = json.loads(run("kernels", "--json").stdout)
    assert facts["ready"] is False
    assert facts["library"].endswith(".so")
    assert run("kernels", "biuld").error == (
        "there is no action 'biuld'",
        "`seqlab kernels build` compiles the kernels.",
    )


def test_built_kernels_are_in_use(run, kernels):
    assert run("kernels", "build").stdout.startswith("native kernels: built by ")
    assert json.loads(run("info", "--json").stdout)["native kernels"].startswith("built by ")


def test_kernels_need_a_compiler(run, tmp_path, monkeypatch):
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", "no-such-compiler")
    result = run("kernels", "build")
    assert result.code == 1
    assert result.error[0] == "there is no C++ compiler on this machine"


def test_recipes_are_listed_with_the_default_of_each_task(run):
    listed = json.loads(run("recipes", "--json").stdout)
    assert sorted(each["name"] for each in listed) == recipe_names()
    assert run("recipes").stdout.count("(default)") == len(TASKS)


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_is_shown_as_toml_to_copy_and_change(run, name):
    result = run("recipes", name)
    assert parse_recipe(result.stdout, where="stdout").name == name
    assert json.loads(run("recipes", name, "--json").stdout)["name"] == name


def test_public_data_is_listed(run):
    assert [each["name"] for each in json.loads(run("data", "list", "--json").stdout)] == [
        d.name for d in datasets()
    ]
    assert "tinyshakespeare" in run("data", "list").stdout


def test_synthetic_data_is_made_on_stdout(run):
    result = run("data", "make", "reversals", "-n", 5, "--seed", 7)
    assert result.stdout == "".join(
        f"{source}\t{target}\n" for source, target in reversals(5, seed=7)
    )


def test_looking_at_a_series(run, files):
    facts = json.loads(run("data", "look", "forecast", files["forecast"], "--json").stdout)
    assert facts["rows"] == 300
    assert (facts["from"], facts["to"]) == ("2024-01-01 00:00", "2024-01-13 11:00")
    assert facts["next"] == "2024-01-13 12:00:00"
    assert list(facts["columns"]) == ["low", "high"]
    assert facts["columns"]["low"].endswith(" missing")
    assert "2024-01-13 11:00" in run("data", "look", "forecast", files["forecast"]).stdout


@pytest.mark.parametrize("task", sorted(set(TASKS) - {"forecast"}))
def test_looking_at_data(run, files, task):
    facts = json.loads(run("data", "look", task, files[task], "--json").stdout)
    sizes = {
        "lm": 200,
        "mask": 100,
        "bilm": 100,
        "classify": 300,
        "tag": 100,
        "translate": 300,
        "caption": 120,
    }
    sizes |= {"speak": 60}
    assert facts["examples"] == sizes[task]
    assert facts["first"].startswith(
        f"{files[task]}[0]: " if task in ("caption", "speak") else f"{files[task]}:1: "
    )
    if task == "classify":
        assert set(facts["most_frequent"]) == {"odd", "even"}
        assert facts["repeated_sources"] > 0
    longest = "longest source" if task in ("mask", "bilm") else "longest target"
    assert longest in run("data", "look", task, files[task]).stdout


def test_looking_at_a_column_by_its_number(run, tmp_path):
    (tmp_path / "p.tsv").write_text("1\tone\tun\n")
    result = run(
        "data",
        "look",
        "translate",
        tmp_path / "p.tsv",
        "-s",
        "data.source=2",
        "-s",
        "data.target=3",
        "--json",
    )
    assert json.loads(result.stdout)["first"].endswith("'one' -> 'un'")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "trnslate", "x.tsv"], "there is no task 'trnslate'"),
        (["train"], "no task is named"),
        (["train", "lm"], "there is nothing to train on"),
        (["train", "lm", "-", "--valid", "-"], "standard input can be read only once"),
        (["train", "--resume"], "--resume needs the directory of a run"),
        (["train", "lm", "x", "--resume", "--overwrite", "-o", "x"], "--overwrite replaces it"),
        (["data", "make", "reversal"], "there is no synthetic task 'reversal'"),
        (["data", "get", "timemashine"], "there is no data set 'timemashine'"),
        (["data", "look", "transalte", "x"], "there is no task 'transalte'"),
    ],
)
def test_a_wrong_command_exits_with_2_and_writes_nothing(
    run, tmp_path, monkeypatch, words, message
):
    monkeypatch.chdir(tmp_path)
    refused = run(*words)
    assert refused.code == 2
    assert message in refused.error[0]
    assert refused.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words", [["foo"], ["predict"], ["train", "--bogus"], ["predict", "m", "--top-k", "many"]]
)
def test_a_command_that_cannot_be_parsed_exits_with_2(run, words):
    result = run(*words)
    assert result.code == 2
    assert "Error: " in result.stderr


def test_the_nearest_name_is_proposed(run):
    assert run("data", "make", "reversal").error[1] == "did you mean 'reversals'?"
    assert run("train", "transalte", "x").error[1] == "did you mean 'translate'?"


def test_help_lists_the_first_commands_first_and_truncates_nothing(run):
    verbs = [run(*words, "--help").stdout.partition("Commands:\n")[2] for words in ([], ["data"])]
    assert [line.split()[0] for line in verbs[0].splitlines()][:4] == [
        "train",
        "predict",
        "evaluate",
        "explain",
    ]
    assert "..." not in "".join(verbs)


def test_synthetic_data_can_be_written_to_a_file(run, tmp_path):
    assert (
        run("data", "make", "parity", "-n", 50, "-o", tmp_path / "bits.tsv").stdout
        == f"{tmp_path / 'bits.tsv'}\n"
    )
    facts = json.loads(run("data", "look", "classify", tmp_path / "bits.tsv", "--json").stdout)
    assert set(facts["most_frequent"]) == {"odd", "even"}
    assert "shapes" in run("data", "make", "nothing").error[1]


def test_compare_refuses_a_missing_file_at_once(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("compare", "tag", "words.conll")
    assert result.code == 1
    assert result.error[0] == "words.conll: there is no such file"
    assert list(tmp_path.iterdir()) == []


def test_compare_fails_if_no_training_succeeds(run, files, tmp_path):
    result = run(
        "compare",
        "tag",
        files["tag"],
        "-r",
        "hmm",
        "-s",
        "model.hmm.order=7",
        "-o",
        tmp_path / "ladder",
    )
    assert result.code == 1
    assert "no model was trained to its end." in result.stdout


def test_a_file_name_given_as_text_gets_a_note(run, models, files):
    result = run("predict", models["classify"], files["classify"])
    assert result.stdout in ("odd\n", "even\n")
    assert (
        result.stderr
        == f"note: this is the answer to the text '{files['classify']}'; to read the lines of that file, use --input\n"
    )
    assert run("predict", models["classify"], "0 1 1").stderr == ""


def test_a_model_worse_than_its_baseline_gets_a_note(run, files, small, tmp_path):
    result = run("train", "lm", files["lm"], "-o", tmp_path / "m", *small("lm"))
    note = next(line for line in result.stdout.splitlines() if line.startswith("note: loss "))
    assert re.search(
        r": more than twice that of '5-gram' \([\d.]+\); make more than \d+ steps, of smaller", note
    )


def test_a_translator_of_single_words_is_not_judged_by_bleu():
    right = {"bleu": 0.0, "chrf": 100.0, "exact": 1.0}
    (finding,) = compare_with_baseline(
        task_named("translate"), right, {"copy of the source": {"bleu": 0.0, "chrf": 12.0}}
    )
    assert finding.well
    assert finding.answer == "chrf 100: 88 above 'copy of the source' (12)"


@pytest.mark.parametrize(
    ("scores", "baseline", "words"),
    [
        ({"accuracy": 0.416}, 0.902, "accuracy 41.6 %: less than half of 'linear' (90.2 %)"),
        ({"accuracy": 0.896}, 0.902, "accuracy 89.6 %: 0.6 points below 'linear' (90.2 %)"),
        ({"accuracy": 0.5}, 0.5, "accuracy 50.0 %: no better than 'linear' (50.0 %)"),
        ({"accuracy": None}, 0.5, "accuracy nan %: no number, unlike that of 'linear' (50.0 %)"),
    ],
)
def test_the_note_gives_the_distance_to_the_baseline(scores, baseline, words):
    (finding,) = compare_with_baseline(
        task_named("classify"), scores, {"linear": {"accuracy": baseline}}
    )
    assert finding.answer == words
    assert not finding.well


def test_the_note_gives_a_remedy():
    recipe = load_recipe("bilstm-classifier")
    few, many = (
        next(
            compare_with_baseline(
                task_named("classify"),
                {"accuracy": 0.4},
                {"x": {"accuracy": 0.5}},
                recipe=recipe,
                steps=n,
            )
        )
        for n in (40, 4000)
    )
    assert few.remedy.startswith("make more than 40 steps, of smaller batches")
    assert many.remedy.startswith(
        "use the baseline (--recipe linear-classifier), train on more data, or begin with"
    )


def test_facts_have_no_empty_header(run, models):
    assert run("info", models["classify"]).stdout.splitlines()[1].startswith("│ path")

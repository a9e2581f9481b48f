"""Options of `seqlab train` that stand for settings."""

import json

import pytest

from seqlab.recipe import parse_recipe


def recipe_of(folder):
    return parse_recipe((folder / "recipe.toml").read_text("utf-8"), where="recipe.toml")


@pytest.mark.parametrize(
    ("task", "words", "settings"),
    [
        ("classify", ["--steps", 3, "--batch", 256], {"steps": 3, "batch_tokens": 256}),
        ("classify", ["--steps", 3, "--lr", 0.01], {"steps": 3, "learning_rate": 0.01}),
        ("classify", ["--epochs", 0.5], {"epochs": 0.5, "steps": None}),
        (
            "lm",
            ["--steps", 2, "--batch", 4, "--set", "train.bptt=8"],
            {"steps": 2, "batch_rows": 4, "bptt": 8},
        ),
        ("classify", ["--minutes", 0.01], {"minutes": 0.01, "steps": None, "epochs": None}),
    ],
)
def test_a_short_option_is_a_setting(run, files, small, tmp_path, task, words, settings):
    *sizes, _, _ = small(task)  # without its number of steps
    done = run("train", task, files[task], *sizes, *words, "-o", tmp_path / "m", "-q")
    assert done.code == 0, done.stderr
    train = recipe_of(tmp_path / "m").train
    assert {name: getattr(train, name) for name in settings} == settings


def test_a_small_batch_gets_a_note(run, files, small, tmp_path):
    done = run(
        "train",
        "classify",
        files["classify"],
        *small("classify"),
        "--batch",
        32,
        "-o",
        tmp_path / "m",
        "-q",
    )
    assert "note: --batch 32 counts tokens, not examples" in done.stderr


def test_an_unknown_option_gets_a_suggestion(run, files):
    done = run("train", "lm", files["lm"], "--epoch", 3)
    assert done.code == 2
    assert "--epochs" in done.stderr


def test_the_number_of_threads_is_recorded(run, files, small, tmp_path):
    from seqlab.training.checkpoint import read_checkpoint

    words = [
        "train",
        "classify",
        files["classify"],
        *small("classify"),
        "--threads",
        2,
        "-o",
        tmp_path / "m",
        "-q",
    ]
    assert run(*words, "--json").code == 0
    assert read_checkpoint(tmp_path / "m" / "run" / "last.safetensors")[0].threads == [[0, 2]]
    assert json.loads((tmp_path / "m" / "metrics.json").read_text())["steps"] == 4

"""Exported int8 models."""

import json

import pytest


def test_an_int8_export_is_smaller_and_answers_like_the_option(run, models, tmp_path):
    result = run("export", models["translate"], "--int8", "-o", tmp_path / "small")
    assert result.code == 0, result.stderr
    assert f"use it: seqlab predict {tmp_path / 'small'}" in result.stdout
    sizes = [
        (folder / "model.safetensors").stat().st_size
        for folder in (tmp_path / "small", models["translate"])
    ]
    assert sizes[0] < 0.5 * sizes[1]  # of so small a model the names and scales count
    answers = [
        run("predict", *words, "abc", "bca", "--json").stdout
        for words in ([tmp_path / "small"], [models["translate"], "--int8"])
    ]
    assert answers[0] == answers[1]
    assert len(answers[0].splitlines()) == 2
    assert json.loads(run("info", tmp_path / "small", "--json").stdout)["weights"] == "int8"


def test_an_int8_model_is_scored_explained_and_checked(run, models, files, tmp_path):
    assert run("export", models["translate"], "--int8", "-o", tmp_path / "m").code == 0
    scores = [
        json.loads(run("evaluate", *words, files["translate"], "--json").stdout)["loss"]
        for words in ([tmp_path / "m"], [models["translate"], "--int8"], [models["translate"]])
    ]
    assert scores[0] == scores[1] != scores[2]
    assert scores[0] == pytest.approx(scores[2], rel=0.02)
    assert run("explain", tmp_path / "m", "abc").code == 0
    assert run("check", tmp_path / "m", files["translate"]).code == 0


def test_a_model_without_matrices_has_no_int8_form(run, files, tmp_path):
    hidden = ("-r", "hmm-tagger", "-q", "--set", "train.steps=1")
    assert run("train", "tag", files["tag"], "-o", tmp_path / "m", *hidden).code == 0
    result = run("export", tmp_path / "m", "--int8", "-o", tmp_path / "small")
    assert result.code == 2
    assert "'hmm-tagger' has no matrix to round to int8" in result.stderr
    assert not (tmp_path / "small").exists()

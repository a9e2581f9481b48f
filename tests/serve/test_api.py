"""Each route answers like the library, for each task."""

import base64
import json
import math
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load as load_tensors

from seqlab.data.png import png
from seqlab.explain.views import views_of
from seqlab.serve.client import Client, ServerError
from seqlab.serve.counters import NAMES

INPUTS = {
    "translate": ["abc", "fed ab", ""],
    "lm": ["the cat ", ""],
    "classify": ["0 1 1", "1"],
    "tag": ["a 1 b", "2"],
    "mask": ["the [MASK] sat", "a dog ran"],
}
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"


def as_printed(answer):
    """Return an answer as `seqlab predict --json` prints it."""
    return json.loads(
        json.dumps({"input": answer.input, "output": answer.output, **answer.details})
    )


def alike(one, other):
    """Compare; the last digits of floats may differ, because they depend on the size of the batch."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, float):
        return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-5)
    return one == other


def table(folder):
    return Path(str(folder) + "-data.csv").read_text("utf-8")


class TestModels:
    def test_facts_about_each_model(self, client, offline):
        listed = {model["name"]: model for model in client.models()}
        assert listed.keys() == offline.keys()
        for name, model in offline.items():
            facts = listed[name]
            assert facts["task"] == model.recipe.task
            assert facts["recipe"] == model.recipe.name
            assert facts["parameters"] == model.bundle.num_parameters
            assert facts["decode"] == model.recipe.decode.model_dump()
            assert facts["run"] is True
            assert facts["usual"] in facts["views"]
            assert facts["views"] == views_of(model.bundle, has_run=True)

    def test_example_inputs_can_be_predicted(self, client):
        for model in client.models():
            if model["task"] == "forecast":
                continue
            assert 1 <= len(model["examples"]) <= 5
            assert len(client.predict(model["name"], model["examples"])) == len(model["examples"])


class TestPredict:
    @pytest.mark.parametrize("task", INPUTS)
    def test_equals_the_library(self, client, offline, task):
        expected = [as_printed(answer) for answer in offline[task].predict(INPUTS[task])]
        assert alike(client.predict(task, INPUTS[task]), expected)

    def test_forecasts_a_table_and_an_array(self, client, offline, folders):
        answer = offline["forecast"].predict(str(folders["forecast"]) + "-data.csv")
        [over_http] = client.predict("forecast", [table(folders["forecast"])])
        assert (over_http.pop("input"), over_http.pop("output")) == ("the series", answer.to_csv())
        assert alike(over_http, answer.to_json())
        rows = [[1.0, 10.0], [2.0, 20.0]] * 10
        from_array = client.predict("forecast", [rows])[0]["forecast"]
        assert len(from_array) == 8
        assert from_array[0]["column"] == "low"

    @pytest.mark.parametrize(
        "decode", [{"temperature": 1.3}, {"beam": 3}, {"method": "sample", "top_k": 4}]
    )
    def test_decoding_options(self, client, offline, decode):
        for task in ("translate", "lm"):
            expected = offline[task].predict(INPUTS[task], seed=7, **decode)
            assert alike(
                client.predict(task, INPUTS[task], seed=7, **decode),
                [as_printed(e) for e in expected],
            )

    def test_a_prefix_and_the_n_best(self, client):
        answer = client.predict("translate", ["abc"], prefix="c", n_best=2, beam=4)[0]
        assert answer["output"].startswith("c")
        assert len(answer["hypotheses"]) == 2
        assert len(client.predict("translate", ["abc"], n_best=3)[0]["hypotheses"]) == 3

    def test_a_picture_is_sent_as_a_file_or_as_pixels(self, client, offline, folders):
        pixels = np.load(str(folders["caption"]) + "-data.npz")["images"][5]
        expected = [as_printed(answer) for answer in offline["caption"].predict([pixels])]
        file = f"data:image/png;base64,{base64.b64encode(png(pixels)).decode()}"
        for given in (file, pixels.tolist(), (pixels / 255).tolist()):
            answers = client.predict("caption", [given])
            assert alike([answer | {"input": expected[0]["input"]} for answer in answers], expected)
        assert len(client.explain("caption", "maps", file)["pictures"]) >= 1

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ("data:image/png;base64,%%", "base64"),
            ("data:image/png;base64,AAAA", "cannot be read as a picture"),
            (f"data:image/png;base64,{base64.b64encode(EPS).decode()}", "it is none of PNG, JPEG"),
        ],
    )
    def test_an_invalid_picture(self, client, given, said):
        with pytest.raises(ServerError, match=said) as refused:
            client.predict("caption", [given])
        assert refused.value.status == 422

    def test_a_long_text_is_cut_and_the_answer_says_so(self, client):
        short, long = client.predict("translate", ["abc" * 10, "abc" * 12])
        assert "unread" not in short
        assert long["unread"] == 6

    def test_no_inputs_give_no_outputs(self, client):
        assert client.predict("translate", []) == []


class TestNext:
    def test_taking_the_most_probable_token_equals_greedy(self, client):
        answer = client.predict("translate", ["abc"], method="greedy")[0]
        written, seen = [], client.next("translate", "abc")
        while not seen["ended"] and len(written) < 12:
            written.append(seen["candidates"][0]["id"])
            seen = client.next("translate", "abc", written)
        assert seen["text"] == answer["output"]
        assert [token["piece"] for token in seen["written"]][: len(answer["tokens"])] == answer[
            "tokens"
        ]

    def test_probabilities_before_and_after_sampling_options(self, client, offline):
        size = len(offline["lm"].bundle.codec.target_tokenizer)
        seen = client.next("lm", "the ", temperature=0.5, top_k=3, most=size)
        plain = [each["probability"] for each in seen["candidates"]]
        assert math.isclose(sum(plain), 1.0, rel_tol=1e-6)
        assert plain == sorted(plain, reverse=True)
        assert math.isclose(seen["entropy"], -sum(p * math.log(p) for p in plain), rel_tol=1e-6)
        kept = [each for each in seen["candidates"] if each["adjusted"] > 0]
        assert len(kept) == 3
        ratio = kept[0]["probability"] / kept[1]["probability"]
        assert math.isclose(kept[0]["adjusted"] / kept[1]["adjusted"], ratio**2, rel_tol=1e-4)
        narrow = client.next("lm", "the ", top_p=0.01, most=5)["candidates"]
        assert [each["adjusted"] for each in narrow] == [1.0, 0, 0, 0, 0]


class TestGenerate:
    @pytest.mark.parametrize("decode", [{}, {"temperature": 1.2, "max_length": 9}, {"beam": 3}])
    @pytest.mark.parametrize("task", ["lm", "translate"])
    def test_the_pieces_form_the_answer(self, client, task, decode):
        whole = client.predict(task, [INPUTS[task][0]], seed=3, **decode)[0]
        pieces = list(client.generate(task, INPUTS[task][0], seed=3, **decode))
        assert "".join(pieces) == whole["output"]
        if "beam" not in decode:
            assert len(pieces) >= len(whole["tokens"]) > 1

    def test_the_last_event_has_the_score(self, server, client):
        body = json.dumps({"model": "translate", "input": "abc"}).encode()
        request = urllib.request.Request(
            f"{server.address}/v1/generate",
            body,
            {"Content-Type": "application/json"},
            method="POST",
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            events = answer.read().decode().strip().split("\n\n")
        name, data = events[-1].split("\n")
        whole = client.predict("translate", ["abc"])[0]
        assert name == "event: done"
        assert alike(json.loads(data[6:]), {"output": whole["output"], "score": whole["score"]})

    def test_an_empty_source_has_an_empty_translation(self, client):
        assert "".join(client.generate("translate", "")) == ""


def test_scores_equal_the_library(client, offline):
    scores = client.score("translate", ["cba", "abc"], ["abc", "abc"])
    assert alike(scores, offline["translate"].score(["cba", "abc"], ["abc", "abc"]))
    assert alike(client.score("lm", ["the cat sat"]), offline["lm"].score(["the cat sat"]))


class TestExplain:
    def test_json_has_numbers_and_pictures(self, client, offline):
        seen = client.explain("translate", "lens", "abc")
        pictures = seen.pop("pictures")
        assert seen == json.loads(offline["translate"].explain("abc", "lens").to_json())
        assert all(
            picture["svg"].startswith("<svg") and "<script" not in picture["svg"]
            for picture in pictures
        )

    def test_options(self, client):
        seen = client.explain("translate", "beam", "abc", beam=2)
        assert seen["beam"] == 2

    @pytest.mark.parametrize(
        ("form", "begins"), [("html", b"<!doctype html>"), ("svg", b"<svg"), ("png", b"\x89PNG")]
    )
    def test_files(self, client, form, begins):
        assert client.explain_as(form, "translate", "lens", "abc").startswith(begins)

    def test_the_trace_has_all_tensors(self, client):
        content = client.explain_as("trace", "translate", "lens", "abc")
        tensors = load_tensors(content)
        assert {tensor.dtype for tensor in tensors.values()} <= {
            torch.float16,
            torch.uint8,
            torch.int64,
            torch.bool,
        }
        assert "logits" in " ".join(tensors)
        assert len(content) < len(json.dumps(client.explain("translate", "lens", "abc"))) * 5


class TestRuns:
    def test_the_log_after_some_lines(self, client, folders):
        lines = (folders["translate"] / "run" / "metrics.jsonl").read_text().splitlines()
        run = client.run("translate")
        assert run["rows"] == [json.loads(line) for line in lines]
        assert run["next"] == len(lines)
        assert run["running"] is False
        assert run["checkpoints"] == ["best", "last"]
        assert client.run("translate", after=2)["rows"] == run["rows"][2:]
        assert client.run("translate", after=1000)["rows"] == []

    def test_a_checkpoint_can_be_used(self, client):
        best = client.predict("translate@best", ["abc"])
        assert alike(
            best, client.predict("translate", ["abc"])
        )  # the best is what became the model
        assert client.predict("translate@last", ["abc"])
        assert client.explain("translate@last", "lens", "abc")["view"] == "lens"

    def test_a_run_in_progress(self, serving, folders, tmp_path):
        """First there is only its log, with an incomplete line; then a checkpoint; then the whole model."""
        run, whole = tmp_path / "young" / "run", folders["translate"]
        run.mkdir(parents=True)
        for name in ("recipe.toml", "tokenizer.json"):
            (run / name).write_bytes((whole / "run" / name).read_bytes())
        (run / "metrics.jsonl").write_text('{"step": 1, "loss": 3.0}\n{"step": 2, "lo')
        client = Client(serving([tmp_path / "young"]).address)
        listed = client.models()[0]
        assert (listed["name"], listed["task"], listed["run"], listed["views"]) == (
            "young",
            "translate",
            True,
            [],
        )
        assert client.run("young") == {
            "rows": [{"step": 1, "loss": 3.0}], "next": 1, "running": True, "checkpoints": []
        }  # fmt: skip
        with pytest.raises(ServerError, match="'young' has no checkpoint") as refused:
            client.predict("young", ["abc"])
        assert refused.value.hint == "wait for its first validation."
        (run / "best.safetensors").write_bytes((whole / "run" / "best.safetensors").read_bytes())
        answer = client.predict("young", ["abc"])
        assert "lens" in client.models()[0]["views"]
        for file in whole.iterdir():
            if file.is_file() and file.name != "manifest.json":
                (run.parent / file.name).write_bytes(file.read_bytes())
        (run.parent / "manifest.json").write_bytes((whole / "manifest.json").read_bytes())
        assert alike(client.predict("young", ["abc"]), answer)
        assert client.run("young")["running"] is False


def test_two_models_of_one_name_get_different_names(serving, folders):
    server = serving([folders["lm"], folders["lm"]])
    assert [model["name"] for model in Client(server.address).models()] == ["lm", "lm~2"]


def test_the_counters(client):
    client.predict("translate", ["abc"])
    lines = client.metrics().splitlines()
    kinds = {line.split()[2]: line.split()[3] for line in lines if line.startswith("# TYPE ")}
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert {name.partition("{")[0] for name in values} == {
        *NAMES
    }  # of this server alone: not of the process
    assert kinds["seqlab_requests_total"] == "counter"
    assert float(values['seqlab_requests_total{route="/v1/predict",status="200"}']) >= 1
    asked = float(values['seqlab_request_seconds_count{route="/v1/predict"}'])
    assert float(values['seqlab_request_seconds_bucket{le="+Inf",route="/v1/predict"}']) == asked
    assert float(values["seqlab_batched_rows_total"]) >= float(values["seqlab_batches_total"]) >= 1
    assert float(values["seqlab_places_taken"]) == 0


def test_the_api_docs_name_every_route_and_field(server, client):
    assert client.healthy()
    docs_page = urllib.request.urlopen(f"{server.address}/docs", timeout=30).read().decode()
    document = json.load(urllib.request.urlopen(f"{server.address}/openapi.json", timeout=30))
    for path in document["paths"]:
        assert path in docs_page
    for field in ("inputs", "decode.temperature", "options.ablate", "written"):
        assert f"<code>{field}</code>" in docs_page
    assert "<script" not in docs_page
    assert "style=" not in docs_page


@pytest.mark.parametrize("path", ["/", "/page/api_docs.css", "/docs"])
def test_pages_have_their_content_type(server, path):
    with urllib.request.urlopen(server.address + path, timeout=30) as answer:
        kind = "text/css" if path.endswith(".css") else "text/html"
        assert answer.headers["content-type"] == f"{kind}; charset=utf-8"

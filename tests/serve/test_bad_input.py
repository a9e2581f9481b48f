"""Every invalid request gets a message and a hint; no file is opened and the server does not fail."""

import json
import urllib.error
import urllib.request

import pytest

from seqlab.serve.client import Client, ServerError
from seqlab.serve.guard import POLICY

LONG = "a" * 10_001
GOOD = {"model": "translate", "inputs": ["abc"]}


@pytest.fixture
def send(server):
    """A function from a path and a body to status, answer and headers."""

    def send(path, body=None, headers=(), method=None):
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if content is not None else {}
        request = urllib.request.Request(
            server.address + path, content, {**kind, **dict(headers)}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read(), answer.headers
        except urllib.error.HTTPError as error:
            return error.code, error.read(), error.headers

    return send


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("/v1/predict", b"{", 400, "the body is not valid JSON"),
        ("/v1/predict", b"\xff\xfe\x00", 400, "the body is not valid JSON"),
        ("/v1/predict", b"[" * 50_000, 400, "the body is not valid JSON"),
        ("/v1/predict", b"", 422, "the body: Field required"),
        ("/v1/predict", b"[]", 422, "the body: Input should be"),
        ("/v1/predict", {"model": "translate"}, 422, "inputs: Field required"),
        ("/v1/predict", {**GOOD, "inputs": "abc"}, 422, "inputs: Input should be a valid list"),
        ("/v1/predict", {**GOOD, "inputs": [1]}, 422, "inputs.0"),
        ("/v1/predict", {**GOOD, "inputs": ["a"] * 257}, 422, "inputs: List should have at most 256 items"),
        ("/v1/predict", {**GOOD, "inputs": [LONG]}, 422, "10,001 letters, more than the limit of 10,000"),
        ("/v1/predict", {**GOOD, "inputs": ["a" * 2**20]}, 413, "the body is larger than 1,048,576 bytes"),
        ("/v1/predict", b"x" * 30_000_000, 413, "the body is larger than 1,048,576 bytes"),
        ("/v1/predict", {**GOOD, "inputs": [[[1.0]]]}, 422, "this model reads text, not numbers"),
        ("/v1/predict", {**GOOD, "path": "/etc"}, 422, "path: Extra inputs are not permitted"),
        ("/v1/predict", {**GOOD, "seed": -1}, 422, "seed: Input should be greater"),
        ("/v1/predict", {**GOOD, "seed": 1.5}, 422, "seed: Input should be a valid integer"),
        ("/v1/predict", {**GOOD, "prefix": "é"}, 422, "this model has no token for a part of the prefix 'é'"),
        ("/v1/predict", {**GOOD, "decode": {"temperature": float("nan")}}, 422, "decode.temperature: Input should be"),
        ("/v1/predict", {**GOOD, "decode": {"temperature": float("inf")}}, 422, "decode.temperature: Input should be"),
        ("/v1/predict", {**GOOD, "decode": {"temperature": 0}}, 422, "decode.temperature: Input should be greater"),
        ("/v1/predict", {**GOOD, "decode": {"beam": 10**9}}, 422, "decode.beam: Input should be less"),
        ("/v1/predict", {**GOOD, "decode": {"max_length": 10**9}}, 422, "decode.max_length: Input should be less"),
        ("/v1/predict", {**GOOD, "decode": {"methd": "beam"}}, 422, "decode.methd: Extra inputs are not permitted"),
        ("/v1/predict", b'{"model": "translate", "inputs": ["\\ud800"]}', 422, "inputs.0"),
        ("/v1/predict", {**GOOD, "model": "translat"}, 404, "there is no model 'translat' here"),
        ("/v1/predict", {**GOOD, "model": "../../etc"}, 404, "there is no model '../../etc' here"),
        ("/v1/predict", {**GOOD, "model": "translate@../x"}, 404, "'translate' has no checkpoint '../x'"),
        ("/v1/predict", {**GOOD, "model": "translate@start"}, 404, "'translate' has no checkpoint 'start'"),
        ("/v1/predict", {"model": "forecast", "inputs": ["/etc/passwd"]}, 422, "there are no rows below the header"),
        ("/v1/predict", {"model": "forecast", "inputs": [[[1.0], [1.0, 2.0]]]}, 422, "rows of unequal length"),
        ("/v1/predict", {"model": "forecast", "inputs": [[[1.0]]]}, 422, "an array of shape (1, 1)"),
        ("/v1/generate", {"model": "classify", "input": "0 1"}, 422, "a 'classify' model writes no text"),
        ("/v1/generate", {"model": "nobody", "input": "0 1"}, 404, "there is no model 'nobody' here"),
        ("/v1/next", {"model": "tag", "input": "a"}, 422, "a 'tag' model writes no text"),
        ("/v1/next", {"model": "lm", "input": "a", "written": [9999]}, 422, "a number in 'written' is no token"),
        ("/v1/next", {"model": "translate", "input": " "}, 422, "the input is empty"),
        ("/v1/score", {"model": "translate", "targets": ["a"]}, 422, "0 sources for 1 targets"),
        ("/v1/score", {"model": "lm", "targets": ["a"], "sources": ["b"]}, 422, "1 sources for 1 targets"),
        ("/v1/score", {"model": "tag", "targets": [], "sources": []}, 422, "a 'tag' model writes no text to score"),
        ("/v1/explain/lens", {"model": "translate"}, 422, "the view 'lens' needs an input"),
        ("/v1/explain/lens", {"model": "translate", "input": "a" * 2001}, 422, "2,001 letters, more than the limit"),
        ("/v1/explain/lens?form=trace", {"model": "translate"}, 422, "a trace needs an input"),
        ("/v1/explain/lens?form=pdf", {"model": "translate"}, 422, "query.form: Input should be"),
        ("/v1/explain/lens", {"model": "translate", "input": "a", "options": {"head": 1}}, 422, "has no --head"),
        ("/v1/explain/training", {"model": "lm", "options": {"folder": "/"}}, 422, "options.folder: Extra inputs"),
        ("/v1/explain/band", {"model": "forecast", "input": "/etc/passwd"}, 422, "there are no rows below the header"),
        ("/v1/explain/lenz", {"model": "translate", "input": "a"}, 404, "there is no view 'lenz'"),
        ("/v1/nothing", {}, 404, "there is nothing here"),
    ],
)  # fmt: skip
def test_an_invalid_body_gets_a_message(send, path, body, status, said):
    seen, answer, headers = send(path, body)
    told = json.loads(answer)
    assert seen == status, told
    assert told["error"].startswith(said) or said in told["error"]
    assert told["hint"]
    assert told.keys() == {"error", "hint"}
    assert headers["Content-Security-Policy"] == POLICY


@pytest.mark.parametrize(
    "text",
    ["\x00\x01\x02\x7f", "\u202e\u2066", "a\nb\tc\r", "😀" * 20, "<script>alert(1)</script>"],
)
def test_unusual_characters_are_accepted(send, text):
    for model, path in (
        ("translate", "/v1/predict"),
        ("lm", "/v1/predict"),
        ("classify", "/v1/predict"),
    ):
        status, answer, _ = send(path, {"model": model, "inputs": [text]})
        assert status == 200
        assert json.loads(answer)["outputs"][0]["input"] == text
    assert send("/v1/explain/lens", {"model": "lm", "input": text})[0] == 200


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|a)*b", "a*a*a*b", "(a?)" * 20 + "b", "(a|b)" * 10, "(x{2}){2}"]
)
def test_an_exponential_pattern_is_refused(send, pattern):
    body = {"model": "lm", "input": "a" * 200, "options": {"pattern": pattern}}
    status, answer, _ = send("/v1/explain/cells", body)
    assert status == 422
    assert "could take exponential time" in json.loads(answer)["error"]


def test_a_simple_pattern_is_accepted(client):
    assert client.explain("lm", "cells", "the cat sat", pattern="[a-c]+t")["view"] == "cells"


@pytest.mark.parametrize(
    "path", ["/page/..%2fapi.py", "/page/../api.py", "/page/api.py", "/page/", "/v1/runs/..%2f.."]
)
def test_files_outside_the_page_are_not_served(send, path):
    status, answer, headers = send(path)
    assert status == 404
    assert json.loads(answer)["error"]
    assert headers["Content-Security-Policy"] == POLICY


@pytest.mark.parametrize(
    "path",
    ["/", "/docs", "/openapi.json", "/healthz", "/metrics", "/v1/models", "/page/api_docs.css"],
)
def test_every_answer_has_the_security_headers(send, path):
    status, _, headers = send(path)
    assert status == 200
    assert headers["Content-Security-Policy"] == POLICY
    assert headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("after", ["-1", "x"])
def test_a_negative_number_of_lines_is_refused(send, after):
    assert send(f"/v1/runs/lm?after={after}")[0] == 422


def test_a_wrong_method(send):
    status, answer, headers = send("/v1/predict")
    assert status == 405
    assert headers["Allow"] == "POST"
    assert json.loads(answer)["error"] == "the method GET is not allowed here"


def test_a_body_must_be_declared_as_json(send):
    """A form on another site can send text, but not declare it as JSON."""
    status, _, _ = send("/v1/predict", GOOD, {"Content-Type": "text/plain"})
    assert status == 422


def test_the_client_raises_the_server_error(client):
    with pytest.raises(ServerError, match="there is no model 'lmm' here") as refused:
        client.predict("lmm", ["a"])
    assert (refused.value.status, refused.value.hint) == (404, "did you mean 'lm'?")
    with pytest.raises(ServerError, match="a 'tag' model writes no text"):
        list(client.generate("tag", "a"))
    nobody = Client("http://127.0.0.1:1")
    assert not nobody.healthy()
    with pytest.raises(ServerError, match="does not answer") as silent:
        nobody.models()
    assert silent.value.hint == "check the address, and that the server is running."

"""One answer of each verb of the HTTP interface, by a real server in a process of its own."""

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from safetensors.numpy import load
from verbs import VOLATILE, as_now, train

PATIENCE = 60.0  # seconds
TINY = "served"
DATE = "samedi 3 mai 1997"
QUESTION = "Where is the train station?"
FEW = {"max_length": 20}
# key: method, path, body
REQUESTS: dict[str, tuple[str, str, Any]] = {
    "healthz": ("GET", "/healthz", None),
    "models": ("GET", "/v1/models", None),
    "predict": ("POST", "/v1/predict", {"model": "dates", "inputs": [DATE, "3 May 2021"]}),
    "predict-n-best": (
        "POST",
        "/v1/predict",
        {"model": "en-fr", "inputs": [QUESTION], "decode": {"n_best": 3}},
    ),
    "predict-prefix": (
        "POST",
        "/v1/predict",
        {"model": "en-fr", "inputs": [QUESTION], "prefix": "Dis"},
    ),
    "predict-sampled": (
        *("POST", "/v1/predict"),
        {
            "model": "time-machine",
            "inputs": ["The "],
            "seed": 5,
            "decode": {"temperature": 0.7, "top_k": 9, **FEW},
        },
    ),
    "generate": (
        "POST",
        "/v1/generate",
        {"model": "time-machine", "input": "The ", "seed": 5, "decode": FEW},
    ),
    "generate-beam": (
        "POST",
        "/v1/generate",
        {"model": "en-fr", "input": QUESTION, "decode": {"beam": 2}},
    ),
    "next": (
        "POST",
        "/v1/next",
        {"model": "en-fr", "input": QUESTION, "most": 5, "top_k": 3, "temperature": 0.5},
    ),
    "next-written": (
        "POST",
        "/v1/next",
        {"model": "dates", "input": DATE, "written": [6, 7], "most": 3},
    ),
    "score": (
        "POST",
        "/v1/score",
        {"model": "en-fr", "sources": [QUESTION], "targets": ["Où est la gare ?"]},
    ),
    "score-text": ("POST", "/v1/score", {"model": "time-machine", "targets": ["the time machine"]}),
    "explain": ("POST", "/v1/explain/attention", {"model": TINY, "input": "3 May 1997"}),
    "explain-options": (
        "POST",
        "/v1/explain/beam",
        {"model": TINY, "input": "3 May 1997", "options": {"beam": 2}},
    ),
    "explain-svg": (
        "POST",
        "/v1/explain/attention?form=svg",
        {"model": TINY, "input": "3 May 1997"},
    ),
    "explain-html": (
        "POST",
        "/v1/explain/attention?form=html",
        {"model": TINY, "input": "3 May 1997"},
    ),
    "explain-png": (
        "POST",
        "/v1/explain/attention?form=png",
        {"model": TINY, "input": "3 May 1997"},
    ),
    "explain-trace": (
        "POST",
        "/v1/explain/attention?form=trace",
        {"model": TINY, "input": "3 May 1997"},
    ),
    "runs": ("GET", f"/v1/runs/{TINY}", None),
    "runs-later": ("GET", f"/v1/runs/{TINY}?after=1", None),
    "checkpoint": ("POST", "/v1/predict", {"model": f"{TINY}@best", "inputs": ["3 May 1997"]}),
    "document": ("GET", "/openapi.json", None),
    "unknown-model": ("POST", "/v1/predict", {"model": "date", "inputs": ["x"]}),
    "unknown-view": ("POST", "/v1/explain/atention", {"model": "dates", "input": "x"}),
    "unknown-path": ("GET", "/v1/nothing", None),
    "no-text": ("POST", "/v1/generate", {"model": "dates", "input": [[1.0]]}),
    "invalid-body": (
        "POST",
        "/v1/predict",
        {"model": "dates", "inputs": ["x"], "decode": {"beam": 0}},
    ),
    "counters": ("GET", "/metrics", None),
}


def collect_http(collection: Any, *, quick: bool = False) -> None:
    """Start a server of shipped models and of a tiny one, and ask it everything."""
    collection.add("http/trained", _train)
    with _server("dates", "en-fr", "time-machine", TINY) as address:
        for key, request in REQUESTS.items():
            collection.add(f"http/{key}", _asked, address, *request)


def _train() -> Any:
    sizes = (
        "model.embedding=4",
        "model.encoder.size=6",
        "model.decoder.size=6",
        "decode.max_length=12",
    )
    length = ("train.steps=40", "train.validate_every=20", "train.warmup=2", "data.validation=0.1")
    return train("dates-attention", "translate", ["dates.tsv"], (*sizes, *length), TINY)


@contextmanager
def _server(*models: str) -> Iterator[str]:
    """The address of a server that runs as long as this block."""
    words = [sys.executable, "-m", "seqlab", "serve", *models, "--port", "0", "--threads", "1"]
    process = subprocess.Popen([as_now(word) for word in words], stderr=subprocess.PIPE, text=True)
    try:
        said = ""
        for line in process.stderr or ():
            said += line
            if address := re.search(r"http://[\d.]+:\d+", line):
                yield address[0]
                return
        raise RuntimeError(f"the server did not start: {said}")
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


def _asked(address: str, method: str, path: str, body: Any) -> dict[str, Any]:
    """The status of an answer, its type and its content."""
    where = urlsplit(address)
    connection = HTTPConnection(where.hostname or "", where.port, timeout=PATIENCE)
    try:
        sent = None if body is None else json.dumps(body)
        connection.request(
            method, path, sent, {} if sent is None else {"Content-Type": "application/json"}
        )
        answer = connection.getresponse()
        kind = answer.headers["Content-Type"].partition(";")[0]
        return {"status": answer.status, "type": kind, **_content(path, kind, answer.read())}
    finally:
        connection.close()


def _content(path: str, kind: str, content: bytes) -> dict[str, Any]:
    """What is compared of an answer: files by their hash, documents and events in full."""
    if path == "/openapi.json":
        return _outline(json.loads(content))
    if kind == "application/json":
        return {"body": _without_times(json.loads(content))}
    if kind == "text/event-stream":
        events = [event.split("\n") for event in content.decode().strip().split("\n\n")]
        return {
            "events": [{"event": name[7:], "data": json.loads(data[6:])} for name, data in events]
        }
    if path == "/metrics":
        return {
            "counters": sorted(re.findall(r"^# TYPE (\S+ \S+)", content.decode(), re.MULTILINE))
        }
    if kind == "application/octet-stream":
        return _tensors(content)
    return {"content": {"sha256": hashlib.sha256(content).hexdigest()}}


def _tensors(content: bytes) -> dict[str, Any]:
    """Names, shapes and a hash of tensors; the file itself may hold its notes in any order."""
    tensors = sorted(load(content).items())
    joined = b"".join(tensor.tobytes() for _, tensor in tensors)
    return {
        "tensors": {name: list(tensor.shape) for name, tensor in tensors},
        "content": {"sha256": hashlib.sha256(joined).hexdigest()},
    }


def _outline(document: Any) -> dict[str, Any]:
    """The paths of the interface, and the names in each body."""
    paths = {
        path.strip("/").replace("/", "."): sorted(methods)
        for path, methods in document["paths"].items()
    }
    schemas = document["components"]["schemas"]
    return {
        "paths": paths,
        "bodies": {name: sorted(schemas[name].get("properties", {})) for name in sorted(schemas)},
    }


def _without_times(value: Any) -> Any:
    """A document without what differs from run to run, and with pictures by their hash."""
    if isinstance(value, list):
        return [_without_times(part) for part in value]
    if not isinstance(value, dict):
        return value
    kept = {name: _without_times(part) for name, part in value.items() if name not in VOLATILE}
    if "svg" in kept:
        kept["svg"] = {"sha256": hashlib.sha256(value["svg"].encode()).hexdigest()}
    return kept

"""A client of a Seqlab server, of the standard library alone.

client = Client("http://127.0.0.1:8000")
client.predict("dates", ["samedi 3 mai 1997"])[0]["output"]
for piece in client.generate("shakespeare", "ROMEO:", temperature=0.8):
    print(piece, end="")
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlsplit

from seqlab.errors import SeqlabError


class ServerError(SeqlabError):
    """A failure of a request; `status` is HTTP's, 0 where there was no answer."""

    def __init__(self, status: int, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class Client:
    """The server at an address; each call opens a connection of its own, so threads may share a client."""

    def __init__(
        self,
        address: str = "http://127.0.0.1:8000",
        *,
        token: str | None = None,
        timeout: float = 120.0,
    ):
        self.address = address
        self.token = token
        self.timeout = timeout

    def models(self) -> list[dict[str, Any]]:
        """The models there are, and what each can do."""
        return self._json("/v1/models")["models"]

    def predict(
        self, model: str, inputs: Sequence[Any], *, prefix: str = "", seed: int = 0, **decode: Any
    ) -> list[dict[str, Any]]:
        """What a model answers to each input."""
        body = {
            "model": model,
            "inputs": list(inputs),
            "prefix": prefix,
            "seed": seed,
            "decode": decode,
        }
        return self._json("/v1/predict", body)["outputs"]

    def generate(self, model: str, given: Any, *, seed: int = 0, **decode: Any) -> Iterator[str]:
        """A text, piece by piece as it is written."""
        body = {"model": model, "input": given, "seed": seed, "decode": decode}
        with self._request("/v1/generate", body) as answer:
            event = ""
            for line in answer:
                name, _, value = line.decode("utf-8").rstrip("\n").partition(": ")
                if name == "event":
                    event = value
                elif name == "data" and event == "token":
                    yield json.loads(value)["text"]
                elif name == "data" and event == "error":
                    raise _failure(answer.status, value)
            if event != "done":
                raise ServerError(
                    504,
                    "the answer broke off",
                    hint="it took too long, or the server stopped: ask again.",
                )

    def next(
        self, model: str, given: Any, written: Sequence[int] = (), **options: Any
    ) -> dict[str, Any]:
        """What could come next after what is written so far; options: temperature, top_k, top_p, most."""
        return self._json(
            "/v1/next", {"model": model, "input": given, "written": list(written), **options}
        )

    def score(self, model: str, targets: Sequence[str], sources: Sequence[Any] = ()) -> list[float]:
        """The log-probability of each target, given its source where the model reads one."""
        body = {"model": model, "sources": list(sources), "targets": list(targets)}
        return self._json("/v1/score", body)["scores"]

    def explain(self, model: str, view: str, given: Any = None, **options: Any) -> dict[str, Any]:
        """A look inside: the numbers, and pictures of them."""
        return json.loads(self.explain_as("json", model, view, given, **options))

    def explain_as(
        self, form: str, model: str, view: str, given: Any = None, **options: Any
    ) -> bytes:
        """The same as a file: html, svg, png, or trace (safetensors)."""
        body = {"model": model, "input": given, "options": options}
        with self._request(f"/v1/explain/{quote(view, safe='')}?form={form}", body) as answer:
            return answer.read()

    def run(self, model: str, after: int = 0) -> dict[str, Any]:
        """What a training has logged since its first `after` lines."""
        return self._json(f"/v1/runs/{quote(model, safe='')}?after={after}")

    def healthy(self) -> bool:
        """Whether somebody answers."""
        try:
            return self._json("/healthz") == {"status": "ok"}
        except ServerError:
            return False

    def metrics(self) -> str:
        """The server's counters, in the form that Prometheus reads."""
        with self._request("/metrics") as answer:
            return answer.read().decode()

    def _json(self, path: str, body: dict[str, Any] | None = None) -> Any:
        with self._request(path, body) as answer:
            return json.loads(answer.read())

    @contextmanager
    def _request(self, path: str, body: dict[str, Any] | None = None) -> Iterator[HTTPResponse]:
        where = urlsplit(self.address)
        kind = HTTPSConnection if where.scheme == "https" else HTTPConnection
        connection = kind(where.hostname or "", where.port, timeout=self.timeout)
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        path = where.path.rstrip("/") + path
        try:
            if body is None:
                connection.request("GET", path, headers=headers)
            else:
                headers["Content-Type"] = "application/json"
                connection.request("POST", path, json.dumps(body), headers)
            answer = connection.getresponse()
            if answer.status != 200:
                raise _failure(answer.status, answer.read(), answer.reason)
            yield answer
        except (OSError, HTTPException) as error:
            raise ServerError(
                0, f"{self.address} does not answer: {error}", hint="is the server running?"
            ) from None
        finally:
            connection.close()


def _failure(status: int, text: str | bytes, reason: str = "") -> ServerError:
    """The error that a server describes in JSON."""
    try:
        failure = json.loads(text)
        return ServerError(status, failure["error"], hint=failure["hint"])
    except (ValueError, KeyError, TypeError):
        return ServerError(status, f"{status} {reason}", hint="is this a server of Seqlab's?")

"""A client of a Seqlab server that needs only the standard library.

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
    """A request that failed; `status` is the HTTP status, or 0 if there was no answer."""

    def __init__(self, status: int, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class Client:
    """A client of one server. Each call opens its own connection, so threads may share a client."""

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
        """Return all models, with their tasks, views and settings."""
        return self._json("/v1/models")["models"]

    def predict(
        self, model: str, inputs: Sequence[Any], *, prefix: str = "", seed: int = 0, **decode: Any
    ) -> list[dict[str, Any]]:
        """Return the answer to each input."""
        body = {
            "model": model,
            "inputs": list(inputs),
            "prefix": prefix,
            "seed": seed,
            "decode": decode,
        }
        return self._json("/v1/predict", body)["outputs"]

    def generate(self, model: str, value: Any, *, seed: int = 0, **decode: Any) -> Iterator[str]:
        """Yield an answer piece by piece, as it is generated."""
        body = {"model": model, "input": value, "seed": seed, "decode": decode}
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
                    "the answer is incomplete",
                    hint="it took too long, or the server stopped: try again.",
                )

    def next(
        self, model: str, value: Any, written: Sequence[int] = (), **options: Any
    ) -> dict[str, Any]:
        """Return the most probable next tokens after those `written`; options: temperature, top_k, top_p, most."""
        return self._json(
            "/v1/next", {"model": model, "input": value, "written": list(written), **options}
        )

    def score(self, model: str, targets: Sequence[str], sources: Sequence[Any] = ()) -> list[float]:
        """Return the log-probability of each target, given its source if the model reads one."""
        body = {"model": model, "sources": list(sources), "targets": list(targets)}
        return self._json("/v1/score", body)["scores"]

    def explain(self, model: str, view: str, value: Any = None, **options: Any) -> dict[str, Any]:
        """Return a view: its numbers, and its figures as SVG."""
        return json.loads(self.explain_as("json", model, view, value, **options))

    def explain_as(
        self, form: str, model: str, view: str, value: Any = None, **options: Any
    ) -> bytes:
        """Return a view as the bytes of a file: html, svg, png, or trace (safetensors)."""
        body = {"model": model, "input": value, "options": options}
        with self._request(f"/v1/explain/{quote(view, safe='')}?form={form}", body) as answer:
            return answer.read()

    def run(self, model: str, after: int = 0) -> dict[str, Any]:
        """Return the log of a training, without its first `after` lines."""
        return self._json(f"/v1/runs/{quote(model, safe='')}?after={after}")

    def healthy(self) -> bool:
        """Return whether the server answers."""
        try:
            return self._json("/healthz") == {"status": "ok"}
        except ServerError:
            return False

    def metrics(self) -> str:
        """Return the server's counters, in the format of Prometheus."""
        with self._request("/metrics") as answer:
            return answer.read().decode()

    def _json(self, path: str, body: dict[str, Any] | None = None) -> Any:
        with self._request(path, body) as answer:
            return json.loads(answer.read())

    @contextmanager
    def _request(self, path: str, body: dict[str, Any] | None = None) -> Iterator[HTTPResponse]:
        url = urlsplit(self.address)
        kind = HTTPSConnection if url.scheme == "https" else HTTPConnection
        connection = kind(url.hostname or "", url.port, timeout=self.timeout)
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        path = url.path.rstrip("/") + path
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
                0,
                f"{self.address} does not answer: {error}",
                hint="check the address, and that the server is running.",
            ) from None
        finally:
            connection.close()


def _failure(status: int, text: str | bytes, reason: str = "") -> ServerError:
    """Return the error that the server describes in JSON."""
    try:
        failure = json.loads(text)
        return ServerError(status, failure["error"], hint=failure["hint"])
    except (ValueError, KeyError, TypeError):
        return ServerError(
            status, f"{status} {reason}", hint="check the address: this may not be a Seqlab server."
        )

"""The HTTP API: each route validates its body, passes the work to the batcher, and returns the answer."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Literal

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from seqlab import __version__
from seqlab.errors import DataError, SeqlabError, UsageError, nearest
from seqlab.explain.views import VIEWS
from seqlab.model import Model
from seqlab.recipe import DecodeConfig
from seqlab.serve import inference, schemas
from seqlab.serve.api_docs import api_docs_html
from seqlab.serve.batching import Batcher, BusyError
from seqlab.serve.counters import Counters
from seqlab.serve.registry import ModelRegistry, UnknownError
from seqlab.tasks.text_generation import Piece, stream_text

PAGE = Path(__file__).parent / "page"
PAGE_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
INVALID_JSON = "the body is not valid JSON"
SEE_DOCS = "see /docs for the fields of this request."
STREAM_SHARE = 0.9  # of the time limit, after which a stream ends with an error event
EVENT = {
    "type": "object",
    "properties": {
        "event": {"enum": ["token", "done", "error"]},
        "data": {
            "type": "string",
            "description": "JSON: text and done; output and score; or error and hint",
        },
    },
    "required": ["event", "data"],
}
DESCRIPTIONS = {
    400: "the body is not valid JSON",
    401: "the token is missing or wrong",
    404: "there is no such model or view",
    408: "the body was not received in time",
    413: "the body is too large",
    422: "a field is invalid, or the model does not support this",
    503: "too many requests are waiting: try again after Retry-After seconds",
    504: "the time limit was exceeded",
}
FAILURES: dict[int | str, dict[str, Any]] = {
    code: {"model": schemas.Failure, "description": text} for code, text in DESCRIPTIONS.items()
}
# UnknownError is a UsageError: the first match counts
STATUSES = {BusyError: 503, UnknownError: 404, UsageError: 422, DataError: 422}


def make_app(registry: ModelRegistry, batcher: Batcher, counters: Counters) -> FastAPI:
    """Return the ASGI application that serves these models."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        running = asyncio.create_task(batcher.run())
        yield
        running.cancel()
        batcher.close()

    app = FastAPI(
        title="Seqlab",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        summary="Use sequence models and look inside them.",
        responses=FAILURES,
    )
    _add_error_handlers(app)
    _add_pages(app)
    _add_status_routes(app, registry, counters)
    _add_model_routes(app, _ModelCalls(registry, batcher))
    return app


@dataclass
class _ModelCalls:
    """Calls of models from routes: every computation runs in the thread of the batcher."""

    registry: ModelRegistry
    batcher: Batcher

    async def model(self, name: str) -> Model:
        """Return a model by its name, and load it if necessary."""
        model = self.registry.loaded(name)
        if model is None:
            model = await self.batcher.run_alone(lambda: self.registry.model(name))
        self.batcher.make_abortable(model.bundle.model)
        return model

    async def call(self, name: str, work: Callable[[Model], Any]) -> Any:
        """Return the result of `work` on a model, for a request that is not batched."""
        with self.batcher.slot():
            model = await self.model(name)
            return await self.batcher.run_alone(lambda: work(model))

    async def predict(
        self, model: Model, inputs: list[Any], decode: DecodeConfig, seed: int, prefix: str
    ) -> list[dict[str, Any]]:
        """Return the answers to some inputs, batched with other requests of the same settings."""
        work = partial(inference.predict_batch, model, decode, seed, prefix)
        key = (id(model), decode, seed, prefix)
        return await self.batcher.run_batched(key, inputs, max(1, len(inputs)), work)

    async def events(
        self, model: Model, value: Any, decode: DecodeConfig, seed: int
    ) -> AsyncIterator[str]:
        """Yield the server-sent events of an answer that is generated token by token."""
        try:
            with self.batcher.slot():
                async for piece in self._pieces(model, value, decode, seed):
                    yield _event("token", {"text": piece.text, "done": False})
                yield _event("done", {"output": piece.output, "score": piece.log_probability})
        except SeqlabError as error:
            yield _event("error", {"error": str(error), "hint": error.hint})

    async def _pieces(
        self, model: Model, value: Any, decode: DecodeConfig, seed: int
    ) -> AsyncIterator[Piece]:
        """Yield at least one piece. Each is computed on its own, so that other requests can run in between."""
        if decode.method == "beam":  # its first token is known only at the end of the search
            answer = (await self.predict(model, [value], decode, seed, ""))[0]
            yield Piece(answer["output"], answer["output"], answer["score"])
            return
        source = inference.parse(model, value)
        pieces = stream_text(model.task, model.bundle, source, decode=decode, seed=seed)
        deadline = monotonic() + STREAM_SHARE * self.batcher.limits.seconds
        empty: Piece | None = Piece("", "", 0.0)
        piece = await self.batcher.run_alone(lambda: next(pieces, empty))
        while piece is not None:
            yield piece
            if monotonic() > deadline:
                raise UsageError(
                    "the answer took too long", hint="lower max_length, or try again later."
                )
            piece = await self.batcher.run_alone(lambda: next(pieces, None))


def _add_model_routes(app: FastAPI, calls: _ModelCalls) -> None:
    @app.post("/v1/predict", response_model=schemas.Predicted)
    async def predict(body: schemas.Predict) -> Response:
        """Return the answer to each input, with what the task adds: scores, n-best list, probabilities."""
        with calls.batcher.slot():
            model = await calls.model(body.model)
            decode = inference.decode_config(model, body.decode)
            outputs = await calls.predict(model, body.inputs, decode, body.seed, body.prefix)
        for output in outputs:
            if "hypotheses" in output:
                output["hypotheses"] = output["hypotheses"][: body.decode.n_best]
        return _json({"model": body.model, "outputs": outputs})

    stream = {"content": {"text/event-stream": {"schema": EVENT}}}

    @app.post("/v1/generate", responses={200: stream}, response_class=Response)
    async def generate(body: schemas.Generate) -> Response:
        """Stream an answer as server-sent events: `token` for each token, then `done`; `error` on failure."""
        with calls.batcher.slot():  # errors that are known before the stream begins set the status
            model = await calls.model(body.model)
        if "target" not in model.bundle.codec.tokenizers:
            raise UsageError(
                f"a '{model.recipe.task}' model writes no text", hint="use /v1/predict."
            )
        inference.parse(model, body.input)
        decode = inference.decode_config(model, body.decode)
        events = calls.events(model, body.input, decode, body.seed)
        return StreamingResponse(
            events, media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    @app.post("/v1/next", response_model=schemas.NextTokens)
    async def next_token(body: schemas.Next) -> Response:
        """Return the most probable next tokens after those generated so far."""
        sampling = body.model_dump(include={"temperature", "top_k", "top_p", "most"})

        def work(model: Model) -> dict[str, Any]:
            source = inference.parse(model, body.input)
            return inference.next_tokens(model.bundle, source, body.written, **sampling)

        return _json(await calls.call(body.model, work))

    @app.post("/v1/score", response_model=schemas.Scores)
    async def score(body: schemas.Score) -> Response:
        """Return the log-probability of each target, given its source if the model reads one."""

        def work(model: Model) -> list[float]:
            sources = [inference.parse(model, source) for source in body.sources]
            return model.score(body.targets, sources)

        return _json({"scores": await calls.call(body.model, work)})

    files: dict[str, Any] = {kind: {} for form, kind in inference.TYPES.items() if form != "json"}

    @app.post(
        "/v1/explain/{view}", responses={200: {"model": schemas.ViewAnswer, "content": files}}
    )
    async def explain(
        view: str,
        body: schemas.Explain,
        form: Literal["json", "html", "svg", "png", "trace"] = "json",
    ) -> Response:
        """Return a view of a model at work: numbers and figures as JSON, one figure, an HTML file, or the raw trace."""
        if view not in VIEWS:
            raise UnknownError(f"there is no view '{view[:100]}'", hint=nearest(view[:100], VIEWS))
        options = body.options.model_dump(exclude_none=True)
        content = await calls.call(
            body.model, lambda model: inference.explain(model, view, body.input, options, form)
        )
        file_names = {"html": f"{view}.html", "trace": "trace.safetensors"}
        headers = {}
        if form in file_names:
            headers["Content-Disposition"] = f'attachment; filename="{file_names[form]}"'
        return Response(content, media_type=inference.TYPES[form], headers=headers)


def _add_status_routes(app: FastAPI, registry: ModelRegistry, counters: Counters) -> None:
    @app.get("/v1/models", response_model=schemas.Models)
    def models() -> Response:
        """Return all models, with their tasks, views and settings."""
        return _json({"models": registry.describe()})

    @app.get("/v1/runs/{model}", response_model=schemas.RunRecord)
    def runs(model: str, after: int = 0) -> Response:
        """Return the log of a training, without its first `after` lines."""
        if after < 0:
            raise UsageError(
                f"'after' is a number of lines, not {after}",
                hint="start with 0, then use 'next' of the answer.",
            )
        return _json(registry.run(model, after))

    @app.get("/healthz", response_model=schemas.Health)
    async def healthz() -> Response:
        """Return "ok" if the server is running."""
        return _json({"status": "ok"})

    plain = {"content": {"text/plain": {"schema": {"type": "string"}}}}

    @app.get("/metrics", responses={200: plain}, response_class=Response)
    async def metrics() -> Response:
        """Return the server's counters in the format of Prometheus."""
        return Response(counters.to_text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_pages(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    def page() -> Response:
        return _file("index.html")

    @app.get("/page/{name}", include_in_schema=False)
    def page_file(name: str) -> Response:
        return _file(name)

    @app.get("/docs", include_in_schema=False)
    def api_docs() -> Response:
        return HTMLResponse(api_docs_html(app.openapi()))


def _file(name: str) -> Response:
    """Return a file of the page; other paths are not served."""
    file = PAGE / name
    if file not in PAGE.iterdir():
        raise HTTPException(404)
    return FileResponse(
        file, media_type=PAGE_TYPES.get(file.suffix), headers={"Cache-Control": "no-cache"}
    )


def _add_error_handlers(app: FastAPI) -> None:
    """Answer every error with a message and a hint."""

    @app.exception_handler(SeqlabError)
    async def expected(request: Request, error: SeqlabError) -> Response:
        status = next((status for kind, status in STATUSES.items() if isinstance(error, kind)), 500)
        headers = {"Retry-After": "1"} if status == 503 else None
        return failure(status, str(error), error.hint, headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return failure(400, INVALID_JSON, SEE_DOCS)
        field = ".".join(str(part) for part in first["loc"] if part != "body")
        return failure(422, f"{field[:200] or 'the body'}: {first['msg']}", SEE_DOCS)

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        messages = {
            400: INVALID_JSON,
            404: "there is nothing here",
            405: f"the method {request.method} is not allowed here",
        }
        text = messages.get(error.status_code, str(error.detail))
        hint = "see /docs for all routes."
        return failure(error.status_code, text, hint, dict(error.headers or {}))

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        return failure(
            500,
            "internal error of the server",
            "the server's own output has the cause; please report it.",
        )


def failure(
    status: int, error: str, hint: str, headers: dict[str, str] | None = None
) -> JSONResponse:
    """Return the answer for an error."""
    return JSONResponse({"error": error, "hint": hint}, status, headers)


def _json(value: Any) -> Response:
    """Return a JSON answer; raise a DataError if it contains NaN or infinity."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise DataError(
            "the model's answer contains numbers that are not finite",
            hint="its training has diverged: train it again.",
        ) from None
    return Response(text.encode("utf-8", "backslashreplace"), media_type="application/json")


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"

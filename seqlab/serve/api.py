"""The interface: each route reads its body, asks the batcher, and answers."""

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
from seqlab.serve import bodies, work
from seqlab.serve.batching import Batcher, BusyError
from seqlab.serve.counters import Counters
from seqlab.serve.manual import manual_html
from seqlab.serve.registry import ModelRegistry, UnknownError
from seqlab.tasks.text_generation import Piece, stream_text

PAGE = Path(__file__).parent / "page"
PAGE_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
NO_JSON = "the body is not valid JSON"
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
    400: "the body is no JSON",
    401: "the token is missing or wrong, where one is needed",
    404: "there is no such model or view",
    408: "the body did not come in time",
    413: "the body is too large",
    422: "the model cannot do this, or the body is not as it must be",
    503: "the line is full: try again after Retry-After seconds",
    504: "it took too long",
}
FAILURES: dict[int | str, dict[str, Any]] = {
    code: {"model": bodies.Failure, "description": text} for code, text in DESCRIPTIONS.items()
}
STATUSES = {
    BusyError: 503,
    UnknownError: 404,
    UsageError: 422,
    DataError: 422,
}  # the first that fits an error
SEE_DOCS = "see /docs for what it must hold."


def make_app(registry: ModelRegistry, batcher: Batcher, counters: Counters) -> FastAPI:
    """The interface over these models."""

    @asynccontextmanager
    async def computing(app: FastAPI) -> AsyncIterator[None]:
        running = asyncio.create_task(batcher.run())
        yield
        running.cancel()
        batcher.close()

    app = FastAPI(
        title="Seqlab",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        lifespan=computing,
        summary="Sequence models: use them, and look inside.",
        responses=FAILURES,
    )
    _tell_errors(app)
    _add_pages(app)
    _add_facts(app, registry, counters)
    _add_verbs(app, _Verbs(registry, batcher))
    return app


@dataclass
class _Verbs:
    """What the routes share: a model by its name, and a turn in the batcher."""

    registry: ModelRegistry
    batcher: Batcher

    async def model(self, name: str) -> Model:
        """A model by its name; one that must be loaded first is loaded where everything is computed."""
        model = self.registry.at_hand(name)
        if model is None:
            model = await self.batcher.alone(lambda: self.registry.model(name))
        self.batcher.watch(model.bundle.model)
        return model

    async def turn(self, name: str, ask: Callable[[Model], Any]) -> Any:
        with self.batcher.place():
            model = await self.model(name)
            return await self.batcher.alone(lambda: ask(model))

    async def predicted(
        self, model: Model, inputs: list[Any], decode: DecodeConfig, seed: int, prefix: str
    ) -> list[dict[str, Any]]:
        together = partial(work.predict_together, model, decode, seed, prefix)
        return await self.batcher.together(
            (id(model), decode, seed, prefix), inputs, max(1, len(inputs)), together
        )

    async def events(
        self, model: Model, given: Any, decode: DecodeConfig, seed: int
    ) -> AsyncIterator[str]:
        """The events of a text that is being written."""
        try:
            with self.batcher.place():
                async for piece in self._pieces(model, given, decode, seed):
                    yield _event("token", {"text": piece.text, "done": False})
                yield _event("done", {"output": piece.output, "score": piece.log_probability})
        except SeqlabError as error:
            yield _event("error", {"error": str(error), "hint": error.hint})

    async def _pieces(
        self, model: Model, given: Any, decode: DecodeConfig, seed: int
    ) -> AsyncIterator[Piece]:
        """At least one piece; each has its own turn, so that others have theirs."""
        if decode.method == "beam":  # which knows its first token when it knows its last
            answer = (await self.predicted(model, [given], decode, seed, ""))[0]
            yield Piece(answer["output"], answer["output"], answer["score"])
            return
        pieces = stream_text(
            model.task, model.bundle, work.parse(model, given), decode=decode, seed=seed
        )
        late = monotonic() + 0.9 * self.batcher.limits.seconds
        nothing: Piece | None = Piece("", "", 0.0)
        piece = await self.batcher.alone(lambda: next(pieces, nothing))
        while piece is not None:
            yield piece
            if monotonic() > late:
                raise UsageError(
                    "it took too long", hint="ask for fewer tokens, or when there is less to do."
                )
            piece = await self.batcher.alone(lambda: next(pieces, None))


def _add_verbs(app: FastAPI, verbs: _Verbs) -> None:
    @app.post("/v1/predict", response_model=bodies.Predicted)
    async def predict(body: bodies.Predict) -> Response:
        """What a model answers to each input, with what else there is to know: scores, n-best, probabilities."""
        with verbs.batcher.place():
            model = await verbs.model(body.model)
            decode = work.settings_of(model, body.decode)
            outputs = await verbs.predicted(model, body.inputs, decode, body.seed, body.prefix)
        for output in outputs:
            if "hypotheses" in output:
                output["hypotheses"] = output["hypotheses"][: body.decode.n_best]
        return _json({"model": body.model, "outputs": outputs})

    written = {"content": {"text/event-stream": {"schema": EVENT}}}

    @app.post("/v1/generate", responses={200: written}, response_class=Response)
    async def generate(body: bodies.Generate) -> Response:
        """A text token by token, as server-sent events: `token`, then `done`; `error` where something fails."""
        with (
            verbs.batcher.place()
        ):  # so that a full line, and all that can be seen at once, is told of by the status
            model = await verbs.model(body.model)
        if "target" not in model.bundle.codec.tokenizers:
            raise UsageError(
                f"a '{model.recipe.task}' model writes no text", hint="ask /v1/predict."
            )
        work.parse(model, body.input)
        events = verbs.events(model, body.input, work.settings_of(model, body.decode), body.seed)
        return StreamingResponse(
            events, media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    @app.post("/v1/next", response_model=bodies.NextTokens)
    async def next_token(body: bodies.Next) -> Response:
        """What could come next after what is written so far."""

        sampling = body.model_dump(include={"temperature", "top_k", "top_p", "most"})

        def ask(model: Model) -> dict[str, Any]:
            return work.next_tokens(
                model.bundle, work.parse(model, body.input), body.written, **sampling
            )

        return _json(await verbs.turn(body.model, ask))

    @app.post("/v1/score", response_model=bodies.Scores)
    async def score(body: bodies.Score) -> Response:
        """The log-probability of each target, given its source where the model reads one."""

        def ask(model: Model) -> list[float]:
            return model.score(body.targets, [work.parse(model, source) for source in body.sources])

        return _json({"scores": await verbs.turn(body.model, ask)})

    files: dict[str, Any] = {kind: {} for form, kind in work.TYPES.items() if form != "json"}

    @app.post("/v1/explain/{view}", responses={200: {"model": bodies.ViewAnswer, "content": files}})
    async def explain(
        view: str,
        body: bodies.Explain,
        form: Literal["json", "html", "svg", "png", "trace"] = "json",
    ) -> Response:
        """A look inside a model at work: numbers and pictures, one picture, a file to keep, or the raw trace."""
        if view not in VIEWS:
            raise UnknownError(f"there is no view '{view[:100]}'", hint=nearest(view[:100], VIEWS))
        options = body.options.model_dump(exclude_none=True)
        content = await verbs.turn(
            body.model, lambda model: work.explained(model, view, body.input, options, form)
        )
        names = {"html": f"{view}.html", "trace": "trace.safetensors"}
        headers = (
            {"Content-Disposition": f'attachment; filename="{names[form]}"'}
            if form in names
            else {}
        )
        return Response(content, media_type=work.TYPES[form], headers=headers)


def _add_facts(app: FastAPI, registry: ModelRegistry, counters: Counters) -> None:
    @app.get("/v1/models", response_model=bodies.Models)
    def models() -> Response:
        """The models there are, and what each can do."""
        return _json({"models": registry.describe()})

    @app.get("/v1/runs/{model}", response_model=bodies.RunRecord)
    def runs(model: str, after: int = 0) -> Response:
        """What a training has logged since its first `after` lines."""
        if after < 0:
            raise UsageError(
                f"'after' counts lines: it is not {after}", hint="begin with 0, go on with 'next'."
            )
        return _json(registry.run(model, after))

    @app.get("/healthz", response_model=bodies.Health)
    async def healthz() -> Response:
        """Whether the server answers."""
        return _json({"status": "ok"})

    plain = {"content": {"text/plain": {"schema": {"type": "string"}}}}

    @app.get("/metrics", responses={200: plain}, response_class=Response)
    async def metrics() -> Response:
        """Counters in the form that Prometheus reads."""
        return Response(counters.to_text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_pages(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    def page() -> Response:
        return _file("index.html")

    @app.get("/page/{name}", include_in_schema=False)
    def page_file(name: str) -> Response:
        return _file(name)

    @app.get("/docs", include_in_schema=False)
    def manual() -> Response:
        return HTMLResponse(manual_html(app.openapi()))


def _file(name: str) -> Response:
    file = PAGE / name
    if file not in PAGE.iterdir():
        raise HTTPException(404)
    return FileResponse(
        file, media_type=PAGE_TYPES.get(file.suffix), headers={"Cache-Control": "no-cache"}
    )


def _tell_errors(app: FastAPI) -> None:
    """Every failure as a sentence and a hint."""

    @app.exception_handler(SeqlabError)
    async def expected(request: Request, error: SeqlabError) -> Response:
        status = next((status for kind, status in STATUSES.items() if isinstance(error, kind)), 500)
        return failure(
            status, str(error), error.hint, {"Retry-After": "1"} if status == 503 else None
        )

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return failure(400, NO_JSON, SEE_DOCS)
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        return failure(422, f"{where[:200] or 'the body'}: {first['msg']}", SEE_DOCS)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        messages = {400: NO_JSON, 404: "there is nothing here", 405: "this cannot be done here"}
        text = messages.get(error.status_code, str(error.detail))
        return failure(
            error.status_code, text, "see /docs for what there is.", dict(error.headers or {})
        )

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        return failure(
            500, "the server failed at this", "its own output says how; please report it."
        )


def failure(
    status: int, error: str, hint: str, headers: dict[str, str] | None = None
) -> JSONResponse:
    return JSONResponse({"error": error, "hint": hint}, status, headers)


def _json(value: Any) -> Response:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise DataError(
            "the model's answer holds numbers that are not finite",
            hint="it has diverged: train it again.",
        ) from None
    return Response(text.encode("utf-8", "backslashreplace"), media_type="application/json")


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"

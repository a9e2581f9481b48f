"""Who may ask, how much and how long: what stands between the wire and the interface.

A page of another site can send requests from a visitor's browser. It cannot read what comes back, unless its name is
made to lead here (DNS rebinding): so the Host must be a number, or a name that this server was told. Nor may it make
us work: a request that says it comes from elsewhere is refused.
"""

import asyncio
import hmac
import ipaddress
import json
import logging
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seqlab.serve.client import ServerError
from seqlab.serve.counters import Counters
from seqlab.serve.limits import ServerLimits

POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; style-src 'self'; script-src 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
OPEN = ("/", "/healthz")  # and the page's own files: what shows nothing of a model needs no token


def refusal(error: str, hint: str) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """A failure in words, and the headers of an answer after which the connection ends."""
    body = json.dumps({"error": error, "hint": hint}).encode()
    length = str(len(body)).encode()
    return body, [
        (b"content-type", b"application/json"),
        (b"content-length", length),
        (b"connection", b"close"),
    ]


@dataclass
class _Answer:
    """What goes out, with our headers on it."""

    send: Send
    status: int = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message["headers"], *HEADERS]}
        await self.send(message)

    async def refuse(self, refused: ServerError, receive: Receive, seconds: float) -> None:
        """A failure in words, and the end of the connection.

        More of the request may be on its way. Who is cut off while sending does not read an answer, so what still
        comes is heard for a while, and forgotten.
        """
        body, headers = refusal(str(refused), refused.hint)
        if refused.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        await self({"type": "http.response.start", "status": refused.status, "headers": headers})
        await self({"type": "http.response.body", "body": body, "more_body": True})
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while refused.status == 413 and (await receive()).get("more_body", False):
                    pass
        await self({"type": "http.response.body", "body": b""})


@dataclass
class Guard:
    """The interface behind its bounds."""

    app: ASGIApp
    host: str
    token: str | None
    limits: ServerLimits
    counters: Counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = monotonic()
        answer = _Answer(send)
        try:
            request = Request(scope, receive)
            self._check(scope["path"], request.headers)
            body = await self._body(request)
            await self._run_app(scope, body, receive, answer)
        except ServerError as refused:
            if not answer.status:
                await answer.refuse(refused, receive, self.limits.body_seconds)
        except Exception:
            logging.getLogger("seqlab.serve").exception("%s %s", scope["method"], scope["path"])
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.counters.answered(route, answer.status, monotonic() - began)

    def _check(self, path: str, headers: Headers) -> None:
        host = headers.get("host", "")
        if not self._is_ours(host):
            raise ServerError(
                421,
                f"this server is not '{host[:100]}'",
                hint="ask it by its number, or by --host NAME.",
            )
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            raise ServerError(
                403, "another site's page may not ask here", hint="open the page of this server."
            )
        if self.token is None or path in OPEN or path.startswith("/page/"):
            return
        authorization = headers.get("authorization", "").encode()
        if not hmac.compare_digest(authorization, f"Bearer {self.token}".encode()):
            raise ServerError(
                401,
                "a token is needed here",
                hint="send 'Authorization: Bearer TOKEN'; the server printed it.",
            )

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
            return name in ("localhost", self.host.lower()) or bool(ipaddress.ip_address(name))
        except ValueError:
            return False

    async def _body(self, request: Request) -> bytes:
        """All of it, unless it is too much or takes too long."""
        large = ServerError(
            413, f"the body is larger than {self.limits.body:,} bytes", hint="send less at a time."
        )
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.limits.body:
            raise large
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                async for part in request.stream():
                    body += part
                    if len(body) > self.limits.body:
                        raise large
        except ClientDisconnect:
            raise ServerError(400, "the client went away", hint="") from None
        except TimeoutError:
            raise ServerError(
                408,
                f"the body did not come within {self.limits.body_seconds:g} seconds",
                hint="send it at once.",
            ) from None
        return bytes(body)

    async def _run_app(self, scope: Scope, body: bytes, receive: Receive, answer: _Answer) -> None:
        """Run the interface until it has answered, its client has gone, or its time is over."""
        unread = [body]

        async def replay() -> dict[str, Any]:
            if unread:
                return {"type": "http.request", "body": unread.pop()}
            return await asyncio.get_running_loop().create_future()  # nothing more will come

        answering = asyncio.ensure_future(self.app(scope, replay, answer))
        gone = asyncio.ensure_future(
            receive()
        )  # of a request that was read, only its end can be heard
        try:
            done, _ = await asyncio.wait(
                {answering, gone}, timeout=self.limits.seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if answering not in done:
                answering.cancel()
                with suppress(asyncio.CancelledError):
                    await answering
            if not done:
                raise ServerError(
                    504,
                    f"it took more than {self.limits.seconds:g} seconds",
                    hint="ask for less at a time.",
                )
            if answering in done:
                answering.result()
        finally:
            answering.cancel()
            gone.cancel()

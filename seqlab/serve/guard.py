"""ASGI middleware that protects the API: host and origin checks, the token, and limits on size and time.

A page of another site can send requests from a visitor's browser to this server. It could read the answers if its host
name resolved to this machine (DNS rebinding), so the Host header must be an IP address or a known name. And it could
make this server compute, so requests whose Origin is another site are refused.
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
PUBLIC_PATHS = ("/", "/healthz")  # these, and the files of the page, need no token


def refusal(error: str, hint: str) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Return the body and the headers of an error answer that closes the connection."""
    body = json.dumps({"error": error, "hint": hint}).encode()
    length = str(len(body)).encode()
    return body, [
        (b"content-type", b"application/json"),
        (b"content-length", length),
        (b"connection", b"close"),
    ]


@dataclass
class _Answer:
    """Sends an answer, with the security headers added."""

    send: Send
    status: int = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message["headers"], *HEADERS]}
        await self.send(message)

    async def refuse(self, refused: ServerError, receive: Receive, seconds: float) -> None:
        """Send an error and close the connection.

        A client that is cut off while it sends does not read the answer, so the rest of a body that is too large is
        received for some seconds and discarded.
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
    """The API with its checks and limits."""

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
        if not self._is_known(host):
            raise ServerError(
                421,
                f"unknown host '{host[:100]}'",
                hint="use the IP address of the server, or start it with --host NAME.",
            )
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            raise ServerError(
                403,
                "requests from pages of other sites are refused",
                hint="open the page of this server.",
            )
        if self.token is None or path in PUBLIC_PATHS or path.startswith("/page/"):
            return
        authorization = headers.get("authorization", "").encode()
        if not hmac.compare_digest(authorization, f"Bearer {self.token}".encode()):
            raise ServerError(
                401,
                "this server needs a token",
                hint="send 'Authorization: Bearer TOKEN'; the server printed it.",
            )

    def _is_known(self, host: str) -> bool:
        """Return whether a Host header is an IP address, localhost, or the name given as --host."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            return name in ("localhost", self.host.lower()) or bool(ipaddress.ip_address(name))
        except ValueError:
            return False

    async def _body(self, request: Request) -> bytes:
        """Receive the whole body; raise a ServerError if it is too large or too slow."""
        too_large = ServerError(
            413,
            f"the body is larger than {self.limits.body_bytes:,} bytes",
            hint="split it into several requests.",
        )
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.limits.body_bytes:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                async for part in request.stream():
                    body += part
                    if len(body) > self.limits.body_bytes:
                        raise too_large
        except ClientDisconnect:
            raise ServerError(400, "the client has disconnected", hint="") from None
        except TimeoutError:
            raise ServerError(
                408,
                f"the body was not received within {self.limits.body_seconds:g} seconds",
                hint="send the whole body at once.",
            ) from None
        return bytes(body)

    async def _run_app(self, scope: Scope, body: bytes, receive: Receive, answer: _Answer) -> None:
        """Run the API until it has answered, the client has disconnected, or the time is over."""
        unread = [body]

        async def replay() -> dict[str, Any]:
            if unread:
                return {"type": "http.request", "body": unread.pop()}
            return (
                await asyncio.get_running_loop().create_future()
            )  # never returns: there is no more

        answering = asyncio.ensure_future(self.app(scope, replay, answer))
        # the body was received, so the only message left is the disconnection
        disconnected = asyncio.ensure_future(receive())
        try:
            done, _ = await asyncio.wait(
                {answering, disconnected},
                timeout=self.limits.seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if answering not in done:
                answering.cancel()
                with suppress(asyncio.CancelledError):
                    await answering
            if not done:
                raise ServerError(
                    504,
                    f"the answer took more than {self.limits.seconds:g} seconds",
                    hint="send fewer inputs, or lower max_length.",
                )
            if answering in done:
                answering.result()
        finally:
            answering.cancel()
            disconnected.cancel()

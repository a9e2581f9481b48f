"""A server of models: where it listens, and how it begins and ends."""

import asyncio
import errno
import gc
import ipaddress
import secrets
import signal
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from seqlab.errors import UsageError
from seqlab.serve.limits import ServerLimits

try:
    import h11
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    from seqlab.serve.api import make_app
    from seqlab.serve.guard import HEADERS, Guard, refusal
except ModuleNotFoundError as missing:
    raise UsageError(
        f"serving needs the package '{missing.name}', which is not installed",
        hint="pip install 'seqlab[serve]'",
    ) from None

from seqlab.serve.batching import Batcher
from seqlab.serve.counters import Counters
from seqlab.serve.registry import ModelRegistry


class Server:
    """Models and runs, served over HTTP at `address`; with a token where the host is not this machine alone."""

    def __init__(
        self,
        folders: Sequence[Path],
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        token: str | None = None,
        limits: ServerLimits | None = None,
    ) -> None:
        limits = limits or ServerLimits()
        self.registry = ModelRegistry(folders)
        self.token = token or (None if is_loopback(host) else secrets.token_urlsafe(18))
        self.socket = _listening(host, port)
        port = self.socket.getsockname()[1]
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        batcher = Batcher(limits)
        counters = Counters(batcher)
        app = make_app(self.registry, batcher, counters)
        guarded = Guard(app, host=host, token=self.token, limits=limits, counters=counters)
        config = uvicorn.Config(
            guarded,
            http=_bounded(limits),
            ws="none",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=int(limits.seconds) + 5,
        )
        self._server = uvicorn.Server(config)
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Serve until Ctrl-C or SIGTERM; what is being answered is answered first."""
        gc.collect()
        gc.freeze()  # a collection through all that is loaded by now would hold every answer up for a tenth of a second
        before = signal.signal(signal.SIGTERM, _as_interrupt)
        try:
            with suppress(KeyboardInterrupt):  # which uvicorn passes on when it has finished
                self._server.run(sockets=[self.socket])
        finally:
            signal.signal(signal.SIGTERM, before)

    def start(self) -> None:
        """Serve from a thread until `stop`."""
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self.socket]}, daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it there."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError) as error:
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        why = "something listens there already" if taken else str(error)
        raise UsageError(
            f"cannot serve at {host}:{port}: {why}", hint="give another --host or --port."
        ) from None


def _as_interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _bounded(limits: ServerLimits) -> type[asyncio.Protocol]:
    """uvicorn's connection, with what it lacks: bounds on their number, on half-sent headers, on unread answers."""

    class Connection(H11Protocol):
        timers: dict[
            str, asyncio.TimerHandle
        ]  # until headers are whole, until something is read again

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            self.timers = {}
            super().connection_made(transport)
            # headers and body are sent one after the other: the body must not wait 40 ms for the headers' receipt
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if len(self.connections) > limits.connections:
                retry = (b"retry-after", b"1")
                self._refuse(503, "there are too many connections", "try again in a second.", retry)
            else:
                self._expect_headers()

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._stop_timer("headers")
            elif "headers" not in self.timers:  # the first bytes of another request
                self._expect_headers()

        def on_response_complete(self) -> None:
            self._stop_timer("headers")
            super().on_response_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer("headers")
            self._stop_timer("reading")
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            self.timers["reading"] = self.loop.call_later(
                limits.stalled_seconds, self.transport.abort
            )

        def resume_writing(self) -> None:
            super().resume_writing()
            self._stop_timer("reading")

        def send_400_response(self, msg: str) -> None:
            self._refuse(
                400,
                "this is no HTTP that can be read",
                "send a whole request, with shorter headers.",
            )

        def _expect_headers(self) -> None:
            seconds = limits.headers_seconds
            failure = (
                408,
                f"the headers did not come within {seconds:g} seconds",
                "send them at once.",
            )
            self.timers["headers"] = self.loop.call_later(seconds, self._refuse, *failure)

        def _stop_timer(self, name: str) -> None:
            if name in self.timers:
                self.timers.pop(name).cancel()

        def _refuse(self, status: int, error: str, hint: str, *more: tuple[bytes, bytes]) -> None:
            """A failure in words, and the end of the connection."""
            if self.transport.is_closing():
                return
            body, headers = refusal(error, hint)
            response = h11.Response(status_code=status, headers=[*headers, *HEADERS, *more])
            with suppress(h11.LocalProtocolError):  # an answer may be on its way already
                for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                    self.transport.write(self.conn.send(event) or b"")
            self.transport.close()

    return Connection

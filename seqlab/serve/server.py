"""The HTTP server: its socket, its connections, how it starts and stops."""

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
    """Serves models and runs over HTTP at `address`; other hosts than this machine need a token."""

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
        self.socket = _open_socket(host, port)
        port = self.socket.getsockname()[1]
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        batcher = Batcher(limits)
        counters = Counters(batcher)
        app = make_app(self.registry, batcher, counters)
        guarded = Guard(app, host=host, token=self.token, limits=limits, counters=counters)
        config = uvicorn.Config(
            guarded,
            http=_connection_class(limits),
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
        """Serve until Ctrl-C or SIGTERM; requests in progress are completed."""
        gc.collect()
        gc.freeze()  # a collection of everything loaded so far would delay an answer by a tenth of a second
        old_handler = signal.signal(signal.SIGTERM, _raise_interrupt)
        try:
            with suppress(KeyboardInterrupt):  # uvicorn raises it again after its shutdown
                self._server.run(sockets=[self.socket])
        finally:
            signal.signal(signal.SIGTERM, old_handler)

    def start(self) -> None:
        """Serve in a thread until `stop`."""
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self.socket]}, daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Complete the requests in progress, then stop."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach that address."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _open_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError) as error:
        in_use = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        reason = "the port is in use" if in_use else str(error)
        raise UsageError(
            f"cannot serve at {host}:{port}: {reason}", hint="choose another --host or --port."
        ) from None


def _raise_interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _connection_class(limits: ServerLimits) -> type[asyncio.Protocol]:
    """Return uvicorn's connection with limits on their number, on slow headers and on unread answers."""

    class Connection(H11Protocol):
        timers: dict[
            str, asyncio.TimerHandle
        ]  # "headers": being received; "reading": client is slow

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            self.timers = {}
            super().connection_made(transport)
            # without this, the body would wait 40 ms until the headers are acknowledged
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if len(self.connections) > limits.connections:
                retry = (b"retry-after", b"1")
                self._refuse(503, "too many connections", "try again in a second.", retry)
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
                "the request is not valid HTTP",
                "send a complete request, with shorter headers.",
            )

        def _expect_headers(self) -> None:
            seconds = limits.headers_seconds
            message = f"the headers were not received within {seconds:g} seconds"
            hint = "send all headers at once."
            self.timers["headers"] = self.loop.call_later(seconds, self._refuse, 408, message, hint)

        def _stop_timer(self, name: str) -> None:
            if name in self.timers:
                self.timers.pop(name).cancel()

        def _refuse(
            self, status: int, error: str, hint: str, *extra_headers: tuple[bytes, bytes]
        ) -> None:
            """Send an error and close the connection."""
            if self.transport.is_closing():
                return
            body, headers = refusal(error, hint)
            response = h11.Response(
                status_code=status, headers=[*headers, *HEADERS, *extra_headers]
            )
            with suppress(h11.LocalProtocolError):  # an answer has begun already
                for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                    self.transport.write(self.conn.send(event) or b"")
            self.transport.close()

    return Connection

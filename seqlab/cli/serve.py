"""`seqlab serve`: models over HTTP and the web page; also used by `seqlab demo` and `seqlab train --watch`."""

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from typer import Argument, Option

from seqlab.cli.command import Threads
from seqlab.errors import SeqlabWarning, UsageError
from seqlab.machine import use_threads

if TYPE_CHECKING:
    from seqlab.serve.server import Server

PORT = 8000


def serve(
    models: list[Path] | None = Argument(
        None,
        metavar="MODEL",
        help="directories of models or runs, or names of shipped models",
        show_default="all shipped models",
    ),
    host: str = Option(
        "127.0.0.1", help="address to listen on; any other than this machine needs a token"
    ),
    port: int = Option(PORT, min=0, max=65535, help="port to listen on; 0 takes a free one"),
    token: str | None = Option(
        None,
        help="token that clients must send",
        show_default="none on this machine, else a random one",
    ),
    threads: Threads = None,
) -> None:
    """Serve models over HTTP: a web page to look inside, and an API.

    Examples:
      seqlab serve en-fr runs/pairs
      seqlab serve runs/pairs --host 0.0.0.0 --token SECRET

    Next:
      open http://127.0.0.1:8000 (the page) or http://127.0.0.1:8000/docs (the API)
    """
    from seqlab.bundle import shipped
    from seqlab.serve.server import Server

    use_threads(threads)
    server = Server(models or list(shipped().values()), host=host, port=port, token=token)
    if server.token is not None and token is None:
        print(f"token: {server.token}", file=sys.stderr)
    _run(server)


def serve_demo(models: Sequence[Path]) -> None:
    """Serve the models of a demo and the shipped models until the user interrupts."""
    from seqlab.bundle import shipped

    try:
        server = _server_on_free_port([*models, *shipped().values()])
    except UsageError as error:
        print(f"the page is not served: {error}\nhint: {error.hint}", file=sys.stderr)
        return
    _run(server)


@contextmanager
def serve_training() -> Iterator[Callable[[Path], None]]:
    """Yield a function that serves a run's folder, its curves and its current model, until this block ends."""
    # imported now so that a missing package is reported before the training
    from seqlab.serve import server as _  # noqa: F401

    servers: list[Server] = []

    def start(folder: Path) -> None:
        servers.append(_server_on_free_port([folder]))
        servers[0].start()
        print(f"watch it at {servers[0].address}", file=sys.stderr, flush=True)

    try:
        yield start
    finally:
        for server in servers:
            server.stop()


def _server_on_free_port(models: Sequence[Path]) -> "Server":
    """Return a server on the default port, or on any free one if that is in use."""
    from seqlab.serve.server import Server

    try:
        return Server(models, port=PORT)
    except UsageError:
        return Server(models, port=0)


def _run(server: "Server") -> None:
    # warnings are about a client's input, and of no use to whoever runs the server
    warnings.simplefilter("ignore", SeqlabWarning)
    names = ", ".join(server.registry.folders)
    print(f"serving {names} at {server.address} (Ctrl-C ends)", file=sys.stderr, flush=True)
    server.run()

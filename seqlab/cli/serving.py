"""`seqlab serve`: models over HTTP, and the page; also at the end of the demo, and beside a training."""

import sys
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
        help="directories of models or runs, or names; none: the shipped models",
    ),
    host: str = Option("127.0.0.1", help="where to listen; beyond this machine with a token"),
    port: int = Option(PORT, min=0, max=65535, help="0: any that is free"),
    token: str | None = Option(None, help="what clients must show; without it, made where needed"),
    threads: Threads = None,
) -> None:
    """Serve models over HTTP: a page to look inside, and an API.

    seqlab serve en-fr runs/pairs

    seqlab serve runs/pairs --host 0.0.0.0 --token SECRET
    """
    from seqlab.bundle import shipped
    from seqlab.serve.server import Server

    use_threads(threads)
    server = Server(models or list(shipped().values()), host=host, port=port, token=token)
    if server.token is not None and token is None:
        print(f"token: {server.token}", file=sys.stderr)
    _run(server)


def serve_demo(models: Sequence[Path]) -> None:
    """Serve what a demo has trained, and the shipped models, until somebody has seen enough."""
    from seqlab.bundle import shipped

    try:
        server = _anywhere([*models, *shipped().values()])
    except UsageError as error:
        print(f"the page is not served: {error}\nhint: {error.hint}", file=sys.stderr)
        return
    _run(server)


@contextmanager
def served() -> Iterator[Callable[[Path], None]]:
    """Within this block, the run that begins is served: its curves, and the model as it learns."""
    from seqlab.serve import server as _  # noqa: F401  (a missing package is reported now, not after an hour)

    servers: list[Server] = []

    def begun(folder: Path) -> None:
        servers.append(_anywhere([folder]))
        servers[0].start()
        print(f"watch it at {servers[0].address}", file=sys.stderr, flush=True)

    try:
        yield begun
    finally:
        for server in servers:
            server.stop()


def _anywhere(models: Sequence[Path]) -> "Server":
    """A server at the usual port, or at any where that is taken."""
    from seqlab.serve.server import Server

    try:
        return Server(models, port=PORT)
    except UsageError:
        return Server(models, port=0)


def _run(server: "Server") -> None:
    import warnings

    warnings.simplefilter(
        "ignore", SeqlabWarning
    )  # of a client's input, and not for whoever serves
    print(
        f"serving {', '.join(server.registry.folders)} at {server.address} (Ctrl-C ends)",
        file=sys.stderr,
        flush=True,
    )
    server.run()

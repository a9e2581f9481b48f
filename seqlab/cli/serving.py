"""`seqlab serve`: models over HTTP, and the page."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from seqlab.cli.common import Threads, use_threads
from seqlab.cli.told import told


@told
def serve(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL...", help="directories of models, or of runs")],
    host: Annotated[str, typer.Option(help="where to listen; another than this machine needs a token")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free")] = 8000,
    token: Annotated[str | None, typer.Option(help="what clients must show; made and printed where needed")] = None,
    threads: Threads = None,
) -> None:
    """Serve models over HTTP: a page to try them and to look inside, and an interface for programs.

    seqlab serve runs/dates runs/dates-attention

    seqlab serve runs/dates --host 0.0.0.0 --token SECRET
    """
    from seqlab.serve.server import Server

    use_threads(threads)
    server = Server(models, host=host, port=port, token=token)
    print(f"serving {', '.join(server.shelf.folders)} at {server.address} (Ctrl-C ends)", file=sys.stderr)
    if server.token is not None and token is None:
        print(f"token: {server.token}", file=sys.stderr)
    sys.stderr.flush()
    server.run()

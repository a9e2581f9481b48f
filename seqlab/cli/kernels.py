"""`seqlab kernels`: the native kernels, which are optional."""

from typer import Argument

from seqlab.cli.command import Json, print_json, print_text
from seqlab.errors import UsageError


def kernels(
    verb: str | None = Argument(None, help="build: compile them; none: whether they are in use"),
    json: Json = False,
) -> None:
    """Compile the native kernels, or see whether they are in use.

    They make recurrent layers and decoding faster; all works without them, through torch.
    """
    if verb not in (None, "build"):
        raise UsageError(f"kernels cannot '{verb}'", hint="`seqlab kernels build` compiles them.")

    from seqlab.kernels import native

    if verb == "build":
        native.build()
    if json:
        print_json(
            {"ready": native.ready(), "state": native.describe(), "library": str(native.library())}
        )
    else:
        print_text(f"native kernels: {native.describe()}")

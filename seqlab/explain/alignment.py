"""Which source token each target token looked at, as a picture of characters."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from seqlab.errors import UsageError
from seqlab.explain.trace import Trace

SHADES = " ░▒▓█"


def alignment(trace: Trace) -> Float[Tensor, "T S"]:
    """The weights of the decoder's attention to the source; of many heads, the mean in the last layer."""
    names = [name for name in trace.names() if name.endswith((".cross.weights", "decoder.attention.weights"))]
    if not names or trace.source == []:
        raise UsageError(
            "this model does not attend to its source", hint="an alignment needs a decoder with attention."
        )
    weights = trace[names[-1]][0]
    return weights if weights.dim() == 2 else weights.mean(0)


def alignment_text(weights: Float[Tensor, "T S"], source: Sequence[str], target: Sequence[str]) -> str:
    """A row for each target token, a column for each source token, the darker the more it was looked at."""
    width = max(1, *(len(piece) for piece in source)) if len(source) * 3 <= 70 else 1
    margin = max(len(piece) for piece in target)
    rows = [" " * margin + " " + " ".join(piece[:width].ljust(width) for piece in source)]
    for piece, row in zip(target, weights.tolist(), strict=True):
        shades = [SHADES[min(len(SHADES) - 1, int(value * len(SHADES)))] * width for value in row]
        rows.append(piece.rjust(margin) + " " + " ".join(shades))
    return "\n".join(rows)

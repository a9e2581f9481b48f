"""Which source token each target token looked at, as a picture of characters."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from seqlab.errors import UsageError
from seqlab.explain.terminal import heat_map
from seqlab.explain.trace import Trace


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
    return heat_map(weights.numpy(), target, source, reach=(0.0, 1.0))

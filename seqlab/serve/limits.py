"""The limits of the server; those of single options are in seqlab/options.py."""

from dataclasses import dataclass

MOST_INPUTS = 256  # of one request
MOST_LETTERS = 10_000  # of one input
MOST_OF_A_TABLE = 500_000  # characters of a series to forecast


@dataclass(frozen=True)
class ServerLimits:
    """Limits on times, sizes and numbers."""

    gather_seconds: float = 0.004  # how long a request waits for others of its batch
    rows: int = 64  # inputs in a batch
    queue: int = 128  # requests that wait or are being computed; more get the status 503
    body_bytes: int = 1 << 20
    headers_seconds: float = 10.0  # to receive the headers of a request
    body_seconds: float = 10.0  # to receive its body
    seconds: float = 60.0  # to answer it
    stalled_seconds: float = 20.0  # in which a client reads nothing of its answer
    connections: int = 512

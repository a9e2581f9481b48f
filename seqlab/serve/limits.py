"""What the server bears; the bounds of options stand beside them in seqlab/options.py."""

from dataclasses import dataclass

MOST_INPUTS = 256  # of one request
MOST_LETTERS = 10_000  # of one input
MOST_OF_A_TABLE = 500_000  # letters of a series that is forecast


@dataclass(frozen=True)
class ServerLimits:
    """Bounds on what is waited for, in seconds, and on what is held, in pieces or bytes."""

    gather: float = 0.004  # how long a request waits for others to be answered together with it
    rows: int = 64  # inputs that are answered together
    line: int = 128  # requests that wait or are being answered; who comes then is sent away
    body: int = 1 << 20
    headers_seconds: float = 10.0  # until a request's headers are whole
    body_seconds: float = 10.0  # until its body is
    seconds: float = 60.0  # until it is answered
    stalled_seconds: float = 20.0  # that a client may not read what it is sent
    connections: int = 512

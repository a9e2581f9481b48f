"""How the next token is chosen: small frozen objects that know nothing of what they choose for."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from seqlab.equations.decoding import choose, keep_top_k, keep_top_p, temper
from seqlab.errors import UsageError
from seqlab.kernels.ranking import largest, without
from seqlab.keyed import uniform


@runtime_checkable
class Rule(Protocol):
    def __call__(
        self, logits: Float[Tensor, "B V"], rows: Int[Tensor, " B"], step: int, never: tuple[int, ...] = ()
    ) -> Int[Tensor, " B"]:
        """The next token of each row; `rows` are the rows' numbers in the whole job, not in this batch.

        Tokens of `never` are not chosen.
        """
        ...


@dataclass(frozen=True)
class Greedy:
    """E58: the likeliest token."""

    def __call__(
        self, logits: Float[Tensor, "B V"], rows: Int[Tensor, " B"], step: int, never: tuple[int, ...] = ()
    ) -> Int[Tensor, " B"]:
        return largest(logits, 1, never)[1][:, 0]


@dataclass(frozen=True)
class Sample:
    """E59: a token at random: tempered, then cut to the top k and to the top p of what is left.

    The draw is keyed by (seed, row, step): the same whatever the batch size.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.temperature < float("inf"):
            raise UsageError(f"a temperature must be above 0, not {self.temperature}", hint="0.7 is a good first try.")
        if self.top_k is not None and self.top_k < 1:
            raise UsageError(f"top-k must keep at least 1 token, not {self.top_k}", hint="40 is a good first try.")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UsageError(f"top-p is a share above 0 and up to 1, not {self.top_p}", hint="0.9 is a good first try.")

    def __call__(
        self, logits: Float[Tensor, "B V"], rows: Int[Tensor, " B"], step: int, never: tuple[int, ...] = ()
    ) -> Int[Tensor, " B"]:
        logits = temper(without(logits, never), self.temperature)
        if self.top_k is not None:
            logits = keep_top_k(logits, self.top_k)
        if self.top_p is not None:
            logits = keep_top_p(logits, self.top_p)
        return choose(logits.double().softmax(-1), uniform(rows, self.seed, step))

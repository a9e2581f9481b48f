"""The hidden Markov model: where it starts, where it goes, and what each of its N states emits."""

from collections.abc import Mapping
from dataclasses import dataclass

from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from seqlab.equations import hmm
from seqlab.kernels.forward_backward import posterior
from seqlab.models.emissions import (
    Categorical,
    DiagonalGaussian,
    Emissions,
    FullGaussian,
    PresentHere,
    PseudoCounts,
    Tied,
    distributions,
    log_dirichlet,
)
from seqlab.padded import Padded
from seqlab.types import PerRow, PositionIds

Present = Bool[Tensor, "B T D"] | None


@dataclass(frozen=True, eq=False)
class Seen:
    """The positions of a batch that carry a value, step after step: what emissions work on."""

    where: Bool[Tensor, "T B"]
    values: Shaped[Tensor, "P *F"]
    present: PresentHere

    @classmethod
    def of(cls, observations: Padded, present: Present = None) -> "Seen":
        where = (observations.scored if present is None else observations.scored & present.any(-1)).mT
        there = None if present is None else present.transpose(0, 1)[where]
        return cls(where, observations.values.transpose(0, 1)[where], there)

    def gather(self, x: Shaped[Tensor, "B T N"]) -> Shaped[Tensor, "P N"]:
        return x.transpose(0, 1).flatten(0, 1) if self.where.all() else x.transpose(0, 1)[self.where]

    def spread(self, x: Shaped[Tensor, "P N"], elsewhere: int = 0) -> Shaped[Tensor, "B T N"]:
        """Back to their places, with zeros elsewhere: as log-likelihoods, nothing observed."""
        if len(x) == self.where.numel():
            return x.unflatten(0, self.where.shape).transpose(0, 1)
        steps = x.new_full((*self.where.shape, x.shape[1]), elsewhere)
        return steps.masked_scatter_(self.where[..., None], x).transpose(0, 1)


@dataclass(frozen=True, eq=False)
class HMM:
    """π, A and the emissions. Each method takes rows of observations, and which of their features are `present`."""

    initial: Float[Tensor, " N"]
    transitions: hmm.Moves
    emissions: Emissions

    def __post_init__(self) -> None:
        for name in ("initial", "transitions"):
            object.__setattr__(self, name, distributions(name, getattr(self, name)))

    @property
    def num_states(self) -> int:
        return len(self.initial)

    @property
    def num_parameters(self) -> int:
        """How many numbers are free: of a distribution all but one, of a covariance those on one side."""
        count = 0
        for name, x in self.tensors().items():
            if name == "emissions.covariances":
                count += len(x) * x.shape[1] * (x.shape[1] + 1) // 2
            else:
                count += x.numel() - (0 if name in ("emissions.means", "emissions.variances") else x[..., 0].numel())
        return count

    def log_prior(self, first: PseudoCounts, moves: PseudoCounts, emitted: PseudoCounts) -> float:
        """What pseudo-counts add to the log-likelihood that EM climbs."""
        chain = log_dirichlet(self.initial, first) + log_dirichlet(self.transitions, moves)
        return chain + self.emissions.log_prior(emitted)

    def log_emissions(self, observations: Padded, present: Present = None) -> Float[Tensor, "B T N"]:
        """log p(x_t | z_t); 0 at pads and where nothing was observed."""
        seen = Seen.of(observations, present)
        return seen.spread(self.emissions.log_likelihood(seen.values, seen.present))

    def posterior(self, observations: Padded, present: Present = None) -> hmm.Posterior:
        log_b = self.log_emissions(observations, present)
        return posterior(self.initial, self.transitions, log_b, observations.lengths)

    def smooth(self, observations: Padded, present: Present = None) -> Float[Tensor, "B T N"]:
        """E9: the belief about each position once the whole row is known."""
        return self.posterior(observations, present).gamma

    def viterbi(self, observations: Padded, present: Present = None) -> tuple[PositionIds, PerRow]:
        """E10: the likeliest path of each row, and its log-probability together with the observations."""
        log_b = self.log_emissions(observations, present)
        return hmm.viterbi(self.initial, self.transitions, log_b, observations.lengths)

    def log_likelihood(self, observations: Padded, present: Present = None) -> PerRow:
        return self.posterior(observations, present).log_likelihood

    def tensors(self) -> dict[str, Tensor]:
        """Everything there is to save, by name."""
        emitted = {f"emissions.{name}": tensor for name, tensor in self.emissions.tensors().items()}
        return {"initial": self.initial, "transitions": self.transitions, **emitted}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "HMM":
        """The inverse of `tensors`: the names tell what kind of emissions they are."""
        emitted = {name.removeprefix("emissions."): x for name, x in tensors.items() if name.startswith("emissions.")}
        kinds = {"probabilities": Categorical, "variances": DiagonalGaussian, "covariances": FullGaussian}
        kind = next(kind for name, kind in kinds.items() if name in emitted)
        each = kind(**emitted)
        copies = len(tensors["initial"]) // each.num_rows
        return cls(tensors["initial"], tensors["transitions"], each if copies == 1 else Tied(each, copies))

"""The hidden Markov model: where it starts, where it goes, and what each of its N states emits (S1).

As a network it is a tagger whose states are labels, or a language model's decoder. Its parameters have no gradient:
counting or EM finds them. They are saved and loaded as all others are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from seqlab.equations import hmm
from seqlab.equations.hmm import (
    Distributions,
    Initial,
    Moves,
    Posterior,
    Trellis,
    condition,
    predict,
)
from seqlab.kernels.forward_backward import posterior
from seqlab.layers.tap import tap
from seqlab.models.emissions import (
    Categorical,
    DiagonalGaussian,
    Emissions,
    FullGaussian,
    PerState,
    PresentHere,
    PseudoCounts,
    distributions,
)
from seqlab.models.interface import Memory, Read, Reading, frozen
from seqlab.models.seq2seq import EncoderModel, FeatureDecoder
from seqlab.padded import Batch, Padded
from seqlab.types import PerRow, PositionIds, State, Vectors


@dataclass(frozen=True, eq=False)
class ObservedSteps:
    """The positions of a batch that carry a value, step after step: what emissions work on."""

    where: Bool[Tensor, "T B"]
    values: Shaped[Tensor, "P *F"]
    present: PresentHere

    @classmethod
    def of(cls, observations: Padded) -> "ObservedSteps":
        where, observed = observations.scored.mT, observations.observed
        present = (
            None if observed is None or observed.dim() == 2 else observed.transpose(0, 1)[where]
        )
        return cls(where, observations.values.transpose(0, 1)[where], present)

    def gather(self, x: Trellis) -> PerState:
        return (
            x.transpose(0, 1).flatten(0, 1) if self.where.all() else x.transpose(0, 1)[self.where]
        )

    def scatter(self, x: PerState) -> Trellis:
        """Back to their places, with zeros elsewhere: as log-likelihoods, nothing observed."""
        if len(x) == self.where.numel():
            return x.unflatten(0, self.where.shape).transpose(0, 1)
        steps = x.new_zeros(*self.where.shape, x.shape[1])
        return steps.masked_scatter_(self.where[..., None], x).transpose(0, 1)


@dataclass(frozen=True, eq=False)
class HMM:
    """π, A and the emissions, which several states may share: of K rows of emissions, state s has row s mod K."""

    initial: Initial
    transitions: Moves
    emissions: Emissions

    def __post_init__(self) -> None:
        for name in ("initial", "transitions"):
            object.__setattr__(self, name, distributions(name, getattr(self, name)))

    @property
    def num_states(self) -> int:
        return len(self.initial)

    @property
    def num_rows(self) -> int:
        """How many different things states emit."""
        return len(next(iter(vars(self.emissions).values())))

    def folded(self, belief: Distributions) -> Float[Tensor, "*rows K"]:
        """The belief in each row of the emissions, whichever of its states it comes from."""
        return belief.unflatten(-1, (-1, self.num_rows)).sum(-2)

    def log_prior(self, first: PseudoCounts, moves: PseudoCounts, emitted: PseudoCounts) -> float:
        """Σ pseudo log θ over what is possible: what pseudo-counts add to the log-likelihood that EM climbs."""
        total = 0.0
        for name, pseudo in {
            "initial": first,
            "transitions": moves,
            "emissions.probabilities": emitted,
        }.items():
            if (p := self.tensors().get(name)) is not None:
                total += float((pseudo * p.log()).masked_fill(p == 0, 0.0).sum())
        return total

    def log_b(self, values: Shaped[Tensor, "P *F"], present: PresentHere = None) -> PerState:
        """log p(x_t | z_t) of each state."""
        return self.emissions.log_likelihood(values, present).repeat(
            1, self.num_states // self.num_rows
        )

    def log_emissions(self, observations: Padded) -> Trellis:
        """The same of rows; 0 at pads and where nothing was observed."""
        observed = ObservedSteps.of(observations)
        return observed.scatter(self.log_b(observed.values, observed.present))

    def posterior(self, observations: Padded) -> Posterior:
        """E9: the belief about each position once the whole row is known, and how likely each row is."""
        return posterior(
            self.initial, self.transitions, self.log_emissions(observations), observations.lengths
        )

    def viterbi(self, observations: Padded) -> tuple[PositionIds, PerRow]:
        """E10: the likeliest path of each row, and its log-probability together with the observations."""
        return hmm.viterbi(
            self.initial, self.transitions, self.log_emissions(observations), observations.lengths
        )

    def tensors(self) -> dict[str, Tensor]:
        """Everything there is to save, by name."""
        emitted = {f"emissions.{name}": tensor for name, tensor in vars(self.emissions).items()}
        return {"initial": self.initial, "transitions": self.transitions, **emitted}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "HMM":
        """The inverse of `tensors`: the names tell what kind of emissions they are."""
        emitted = {
            name.removeprefix("emissions."): x
            for name, x in tensors.items()
            if name.startswith("emissions.")
        }
        kinds = {
            "probabilities": Categorical,
            "variances": DiagonalGaussian,
            "covariances": FullGaussian,
        }
        kind = next(kind for name, kind in kinds.items() if name in emitted)
        return cls(tensors["initial"], tensors["transitions"], kind(**emitted))


_CELLS = 1 << 22  # numbers in the largest tensor of a reading


class Probabilities(nn.Module):
    """The tensors of a hidden Markov model, as parameters."""

    def __init__(self, hmm: HMM) -> None:
        super().__init__()
        parts = {name: frozen(x.clone()) for name, x in hmm.tensors().items()}
        self.initial, self.transitions = parts.pop("initial"), parts.pop("transitions")
        self.emissions = nn.ParameterDict(
            {name.removeprefix("emissions."): x for name, x in parts.items()}
        )

    @property
    def model(self) -> HMM:
        return HMM.from_tensors({name: x.detach() for name, x in self.named_parameters()})


class HMMTagger(EncoderModel):
    """One label for each position: how likely each is given the whole row (E9), and the likeliest path (E10).

    Without `path`, the likeliest label at each position is taken: more of them are right where the emissions say little
    and labels stay for long, as the best path then hardly ever moves.
    """

    def __init__(self, hmm: HMM, *, path: bool = True) -> None:
        super().__init__()
        self.hmm, self.path = Probabilities(hmm), path

    def encoder(self, source: Padded) -> Memory:
        """What it makes of a source: the posterior over labels at each position, and at the last."""
        hmm = self.hmm.model
        gamma = _by_rows(hmm, source, lambda part: hmm.folded(hmm.posterior(part).gamma))
        gamma = tap("encoder.posterior", gamma)
        states = source.with_values(gamma)
        return Memory(len(source), states, states.last())

    def features(self, source: Padded) -> Vectors:
        return self.encoder(source).require_states().values

    def head(self, features: Float[Tensor, "... K"]) -> Float[Tensor, "... K"]:
        return features.clamp(min=torch.finfo(features.dtype).tiny).log()

    def read_batch(self, batch: Batch, carried: State = ()) -> Reading:
        return Reading(self.features(batch.require("source")), batch.require("target"))

    def decode(self, source: Padded) -> PositionIds:
        """The labels of the likeliest path, or the likeliest labels."""
        hmm = self.hmm.model
        if not self.path:
            return self.features(source).argmax(-1)
        return _by_rows(hmm, source, lambda part: hmm.viterbi(part)[0]) % hmm.num_rows


class HMMDecoder(FeatureDecoder):
    """The state is the belief about the next state of the chain, before its token is seen: E6, then E5.

    The token `first` begins a sequence: nothing is observed, and the belief is the initial one again.
    """

    def __init__(self, hmm: HMM, *, first: int) -> None:
        super().__init__()
        self.hmm, self.first = Probabilities(hmm), first

    def start(self, memory: Memory) -> tuple[State, State]:
        return (), (self.hmm.initial.expand(memory.rows, -1),)

    def features(self, tokens: PositionIds, context: State, state: State) -> Read:
        belief, beliefs = state[0], [state[0]]
        begins = tokens == self.first
        for t, b in enumerate(self.hmm.emissions["probabilities"].mT[tokens].unbind(1)):
            posterior, c = condition(belief, b)  # what is impossible says nothing
            belief = predict(torch.where(c > 0, posterior, belief), self.hmm.transitions)
            belief = torch.where(begins[:, t, None], self.hmm.initial, belief)
            beliefs.append(belief)
        return Read(tap("decoder.belief", torch.stack(beliefs, 1)[:, 1:]), (belief,))

    def head(self, features: Float[Tensor, "... N"]) -> Float[Tensor, "... V"]:
        """log p(x_t | x_<t) = log Σ_j p(z_t = j | x_<t) b_j(x_t)."""
        return tap("logits", (features @ self.hmm.emissions["probabilities"]).log())


def label_chain(initial: Float[Tensor, " K"], moves: Moves, emissions: Emissions) -> HMM:
    """The model of labels that remembers the last one, or by moves p(w | u, v) the last two."""
    return HMM(initial if moves.dim() == 2 else first_pairs(initial), moves, emissions)


def first_pairs(initial: Float[Tensor, " K"]) -> Initial:
    """The first label as a pair: before it there is none."""
    return torch.cat([initial, initial.new_zeros(len(initial) ** 2)])


def _by_rows(hmm: HMM, source: Padded, work: Callable[[Padded], Tensor]) -> Tensor:
    """A few rows at a time, so that many states do not take all the memory; rows know nothing of each other."""
    most = max(1, _CELLS // (hmm.num_states * max(source.values.shape[1], hmm.num_rows)))
    parts = zip(source.values.split(most), source.lengths.split(most), strict=True)
    return torch.cat([work(Padded(values, lengths)) for values, lengths in parts])

"""The hidden Markov model: initial distribution, transitions, and the emissions of each of its N states (S1).

It is used as a tagger whose states are labels, or as the decoder of a language model. Its parameters are estimated by
counting or EM, without gradients, and are saved and loaded like all others.
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
    """The observed positions of a batch, in the order of time steps, as emissions read them."""

    where: Bool[Tensor, "T B"]
    values: Shaped[Tensor, "P *F"]
    present: PresentHere

    @classmethod
    def of(cls, observations: Padded) -> "ObservedSteps":
        where = observations.scored.mT
        observed = observations.observed
        present = None
        if observed is not None and observed.dim() > 2:
            present = observed.transpose(0, 1)[where]
        return cls(where, observations.values.transpose(0, 1)[where], present)

    def gather(self, x: Trellis) -> PerState:
        return (
            x.transpose(0, 1).flatten(0, 1) if self.where.all() else x.transpose(0, 1)[self.where]
        )

    def scatter(self, x: PerState) -> Trellis:
        """Return values of observed positions in the shape of the batch, with zeros (log 1) elsewhere."""
        if len(x) == self.where.numel():
            return x.unflatten(0, self.where.shape).transpose(0, 1)
        steps = x.new_zeros(*self.where.shape, x.shape[1])
        return steps.masked_scatter_(self.where[..., None], x).transpose(0, 1)


@dataclass(frozen=True, eq=False)
class HMM:
    """π, A and the emissions. States may share emissions: with K rows of emissions, state s has row s mod K."""

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
        """Return the number of different emission distributions."""
        return len(next(iter(vars(self.emissions).values())))

    def folded(self, belief: Distributions) -> Float[Tensor, "*rows K"]:
        """Return the belief in each row of emissions, summed over the states that share it."""
        return belief.unflatten(-1, (-1, self.num_rows)).sum(-2)

    def log_prior(self, first: PseudoCounts, moves: PseudoCounts, emitted: PseudoCounts) -> float:
        """Return Σ pseudo log θ over nonzero θ: what pseudo-counts add to the objective of EM."""
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
        """Return log p(x_t | z_t) of each state."""
        return self.emissions.log_likelihood(values, present).repeat(
            1, self.num_states // self.num_rows
        )

    def log_emissions(self, observations: Padded) -> Trellis:
        """Return log p(x_t | z_t) of each row and state; 0 at pads and missing values."""
        observed = ObservedSteps.of(observations)
        return observed.scatter(self.log_b(observed.values, observed.present))

    def posterior(self, observations: Padded) -> Posterior:
        """E9: return the posterior of each position given the whole row, and the likelihood of each row."""
        return posterior(
            self.initial, self.transitions, self.log_emissions(observations), observations.lengths
        )

    def viterbi(self, observations: Padded) -> tuple[PositionIds, PerRow]:
        """E10: return the likeliest path of each row, and its joint log-probability with the observations."""
        return hmm.viterbi(
            self.initial, self.transitions, self.log_emissions(observations), observations.lengths
        )

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors by name."""
        emitted = {f"emissions.{name}": tensor for name, tensor in vars(self.emissions).items()}
        return {"initial": self.initial, "transitions": self.transitions, **emitted}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "HMM":
        """Build the model from its tensors; their names show the kind of emissions."""
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


_MAX_CELLS = 1 << 22  # numbers in the largest tensor of a forward pass


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
    """One label for each position: the posterior of each label (E9), and the likeliest path (E10).

    Without `path`, it takes the likeliest label at each position. That is more accurate if emissions are uninformative
    and labels persist, because the best path then rarely changes its label.
    """

    def __init__(self, hmm: HMM, *, path: bool = True) -> None:
        super().__init__()
        self.hmm, self.path = Probabilities(hmm), path

    def encoder(self, source: Padded) -> Memory:
        """Return the posterior over labels at each position, with that of the last as summary."""
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
        """Return the labels of the likeliest path, or the likeliest label of each position."""
        hmm = self.hmm.model
        if not self.path:
            return self.features(source).argmax(-1)
        return _by_rows(hmm, source, lambda part: hmm.viterbi(part)[0]) % hmm.num_rows


class HMMDecoder(FeatureDecoder):
    """The decoder state is the belief about the next hidden state, before its token is read: E6, then E5.

    The token `first` starts a sequence: it is no observation, and resets the belief to the initial distribution.
    """

    def __init__(self, hmm: HMM, *, first: int) -> None:
        super().__init__()
        self.hmm, self.first = Probabilities(hmm), first

    def start(self, memory: Memory) -> tuple[State, State]:
        return (), (self.hmm.initial.expand(memory.rows, -1),)

    def features(self, tokens: PositionIds, context: State, state: State) -> Read:
        belief = state[0]
        beliefs = [belief]
        starts = tokens == self.first
        for t, b in enumerate(self.hmm.emissions["probabilities"].mT[tokens].unbind(1)):
            posterior, c = condition(belief, b)
            # an impossible token does not change the belief
            belief = predict(torch.where(c > 0, posterior, belief), self.hmm.transitions)
            belief = torch.where(starts[:, t, None], self.hmm.initial, belief)
            beliefs.append(belief)
        return Read(tap("decoder.belief", torch.stack(beliefs, 1)[:, 1:]), (belief,))

    def head(self, features: Float[Tensor, "... N"]) -> Float[Tensor, "... V"]:
        """log p(x_t | x_<t) = log Σ_j p(z_t = j | x_<t) b_j(x_t)."""
        return tap("logits", (features @ self.hmm.emissions["probabilities"]).log())


def label_chain(initial: Float[Tensor, " K"], moves: Moves, emissions: Emissions) -> HMM:
    """Return the model whose states are labels, or pairs of labels if the transitions are p(w | u, v)."""
    return HMM(initial if moves.dim() == 2 else first_pairs(initial), moves, emissions)


def first_pairs(initial: Float[Tensor, " K"]) -> Initial:
    """Return the initial distribution over pairs of labels: no label, then the first one."""
    return torch.cat([initial, initial.new_zeros(len(initial) ** 2)])


def _by_rows(hmm: HMM, source: Padded, work: Callable[[Padded], Tensor]) -> Tensor:
    """Apply a function to a few rows at a time, to limit the memory; rows are independent."""
    most = max(1, _MAX_CELLS // (hmm.num_states * max(source.values.shape[1], hmm.num_rows)))
    parts = zip(source.values.split(most), source.lengths.split(most), strict=True)
    return torch.cat([work(Padded(values, lengths)) for values, lengths in parts])

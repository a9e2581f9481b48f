"""The hidden Markov model as every other model: a tagger whose states are labels (S1), and a language model's decoder.

Its parameters have no gradient: counting or EM finds them. They are saved and loaded as all others are.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqlab.equations.hmm import Moves, condition, predict
from seqlab.layers.tap import tap
from seqlab.models.emissions import Tied, Untied
from seqlab.models.hmm import HMM
from seqlab.models.interface import Memory, Read, Reading
from seqlab.models.seq2seq import EncoderModel, FeatureDecoder
from seqlab.padded import Batch, Padded
from seqlab.types import PositionIds, State

_CELLS = 1 << 22  # numbers in the largest tensor of a reading


class Probabilities(nn.Module):
    """The tensors of a hidden Markov model, as parameters."""

    def __init__(self, hmm: HMM) -> None:
        super().__init__()
        fixed = {name: nn.Parameter(x.clone(), requires_grad=False) for name, x in hmm.tensors().items()}
        self.initial, self.transitions = fixed.pop("initial"), fixed.pop("transitions")
        self.emissions = nn.ParameterDict({name.removeprefix("emissions."): x for name, x in fixed.items()})

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
        folded = hmm.emissions.folded if isinstance(hmm.emissions, Tied) else lambda gamma: gamma
        gamma = tap("encoder.posterior", _by_rows(hmm, source, lambda part: folded(hmm.smooth(part))))
        states = source.with_values(gamma)
        return Memory(len(source), states, states.last())

    def features(self, source: Padded) -> Float[Tensor, "B T K"]:
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
        return _by_rows(hmm, source, lambda part: hmm.viterbi(part)[0]) % hmm.emissions.num_rows


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


def label_chain(initial: Float[Tensor, " K"], moves: Moves, emissions: Untied) -> HMM:
    """The model of labels that remembers the last one, or by moves p(w | u, v) the last two."""
    if moves.dim() == 2:
        return HMM(initial, moves, emissions)
    return HMM(first_pairs(initial), moves, Tied(emissions, len(moves)))


def first_pairs(initial: Float[Tensor, " K"]) -> Float[Tensor, " N"]:
    """The first label as a pair: before it there is none."""
    return torch.cat([initial, initial.new_zeros(len(initial) ** 2)])


def _by_rows(hmm: HMM, source: Padded, work: Callable[[Padded], Tensor]) -> Tensor:
    """A few rows at a time, so that many states do not take all the memory; rows know nothing of each other."""
    most = max(1, _CELLS // (hmm.num_states * max(source.values.shape[1], hmm.emissions.num_rows)))
    parts = zip(source.values.split(most), source.lengths.split(most), strict=True)
    return torch.cat([work(Padded(values, lengths)) for values, lengths in parts])

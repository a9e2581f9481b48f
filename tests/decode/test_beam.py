import itertools
import math
from typing import ClassVar

import pytest
import torch

from seqlab.decode.beam import Beam, beam_search
from seqlab.decode.generate import Greedy, Limits, generate
from seqlab.errors import UsageError
from seqlab.models.interface import Memory
from seqlab.padded import Padded

END = 3


class Markov:
    """A decoder whose next token depends on the last one alone."""

    def __init__(self, size, seed):
        self.table = (
            torch.randn(size, size, generator=torch.Generator().manual_seed(seed)) * 2
        ).log_softmax(-1)

    def start(self, memory):
        return (), (torch.zeros(memory.rows, 1),)

    def read(self, tokens, context, state):
        return self.table[tokens].clone(), state

    def step(self, token, context, state):
        return self.table[token].clone(), state


class Slide:
    """W6: cumulative log-probabilities by prefix; what the slide does not show is impossible.

    Its rounded numbers do not sum to 1, so they are given as logits that need no softmax: the rest of each row's mass
    lies on a token that may never come.
    """

    CUMULATIVE: ClassVar = {
        "": {"he": -0.7, "I": -0.9},
        "he": {"hit": -1.7, "struck": -2.9},
        "I": {"was": -1.6, "got": -1.8},
        "he hit": {"me": -2.5, "a": -2.8},
        "I was": {"hit": -2.9, "struck": -3.8},
        "he hit a": {"pie": -3.4, "tart": -4.0},
        "he hit me": {"with": -3.3, "on": -3.5},
        "he hit a pie": {"with": -4.5, "in": -4.8},
        "he hit me with": {"a": -3.7, "one": -4.3},
        "he hit me with a": {"pie": -4.3, "tart": -4.6},
        "he hit me with one": {"pie": -5.0, "tart": -5.3},
    }
    WORDS = ("", "rest", *sorted({word for row in CUMULATIVE.values() for word in row}))

    def start(self, memory):
        return (), (torch.zeros(memory.rows, 0, dtype=torch.long),)

    def read(self, tokens, context, state):
        raise NotImplementedError

    def step(self, token, context, state):
        history = torch.cat([state[0], token[:, None]], dim=1)
        rows = []
        for row in history.tolist():
            prefix = [self.WORDS[i] for i in row if i]
            before = sum(self._step_score(prefix[:n], prefix[n]) for n in range(len(prefix)))
            log_p = torch.full((len(self.WORDS),), -math.inf)
            for word, score in self.CUMULATIVE.get(" ".join(prefix), {}).items():
                log_p[self.WORDS.index(word)] = score - before
            left = 1 - log_p.exp().sum()
            log_p[1] = left.clamp(min=1e-9).log()
            rows.append(log_p)
        return torch.stack(rows), (history,)

    def _step_score(self, prefix, word):
        above = self.CUMULATIVE[" ".join(prefix)][word]
        below = self.CUMULATIVE[" ".join(prefix[:-1])][prefix[-1]] if prefix else 0.0
        return above - below


def test_the_slides_beam_step_by_step():
    """W6, k = 2: the leader after step 2 is "I was", yet "he hit me with a pie" wins at -4.3."""
    slide = Slide()
    found = beam_search(
        slide, Memory(1), Padded.from_rows([[0]]), Beam(width=2, length_penalty=0.0),
        Limits(end=None, most=6, never=(0, 1)), record=True,
    )  # fmt: skip
    beams, texts = [], [""]
    for step in found.steps:
        parents, tokens, scores, ends = (
            x[0].tolist() for x in (step.parents, step.tokens, step.scores, step.ends)
        )
        kept = [c for c in step.live(2)[0].tolist() if not ends[c] and scores[c] > -math.inf]
        texts = [f"{texts[parents[c]]} {slide.WORDS[tokens[c]]}".strip() for c in kept]
        beams.append([(text, scores[c]) for text, c in zip(texts, kept, strict=True)])
    expected = [
        [("he", -0.7), ("I", -0.9)],
        [("I was", -1.6), ("he hit", -1.7)],
        [("he hit me", -2.5), ("he hit a", -2.8)],
        [("he hit me with", -3.3), ("he hit a pie", -3.4)],
        [("he hit me with a", -3.7), ("he hit me with one", -4.3)],
        [("he hit me with a pie", -4.3), ("he hit me with a tart", -4.6)],
    ]
    for beam, wanted in zip(beams, expected, strict=True):
        assert [text for text, _ in beam] == [text for text, _ in wanted]
        assert [score for _, score in beam] == pytest.approx(
            [score for _, score in wanted], abs=0.05
        )
    best = found.best[0][0]
    assert " ".join(slide.WORDS[i] for i in best.tokens) == "he hit me with a pie"
    assert best.score == pytest.approx(-4.3, abs=0.05)


@pytest.mark.parametrize("seed", range(5))
def test_beam_one_is_greedy(seed):
    decoder, prefix, limits = (
        Markov(8, seed),
        Padded.from_rows([[0], [0, 5], [2, 6, 1]]),
        Limits(end=END, most=6),
    )
    greedy = generate(decoder, Memory(3), prefix, Greedy(), limits, rows=torch.arange(3))
    found = beam_search(decoder, Memory(3), prefix, Beam(width=1), limits)
    for row, hypotheses in zip(range(3), found.best, strict=True):
        assert list(hypotheses[0].tokens) == greedy.tokens.rows()[row].tolist()
        assert hypotheses[0].log_probability == pytest.approx(
            float(greedy.log_probability[row]), abs=1e-5
        )


def _everything(decoder, last, room):
    """All outputs with their log-probabilities, by enumeration."""
    if room == 0:
        return [((), 0.0)]
    out = []
    for token in range(len(decoder.table)):
        log_p = float(decoder.table[last, token])
        if token == END:
            out.append(((END,), log_p))
        else:
            out += [
                ((token, *rest), log_p + more)
                for rest, more in _everything(decoder, token, room - 1)
            ]
    return out


@pytest.mark.parametrize("seed", range(5))
def test_a_beam_as_wide_as_everything_is_exact(seed):
    decoder = Markov(5, seed)
    found = beam_search(
        decoder,
        Memory(1),
        Padded.from_rows([[0]]),
        Beam(width=700, length_penalty=0.0),
        Limits(END, 4),
    )
    best, log_p = max(_everything(decoder, 0, 4), key=lambda output: output[1])
    top = found.best[0][0]
    assert (*top.tokens, *([END] if top.ended else [])) == best
    assert top.log_probability == pytest.approx(log_p, abs=1e-5)


def test_a_wider_beam_finds_what_greedy_misses():
    """C12: the likeliest first token leads nowhere good."""
    table = torch.full((5, 5), -30.0)
    table[0, 1], table[0, 2] = math.log(0.6), math.log(0.4)
    table[1, 1], table[1, 2], table[1, END], table[1, 4] = (math.log(0.25),) * 4
    table[2, END] = 0.0
    decoder = Markov(5, 0)
    decoder.table = table
    start, limits = Padded.from_rows([[0]]), Limits(END, 2)
    narrow = beam_search(decoder, Memory(1), start, Beam(width=1, length_penalty=0.0), limits).best[
        0
    ][0]
    wide = beam_search(decoder, Memory(1), start, Beam(width=2, length_penalty=0.0), limits).best[
        0
    ][0]
    assert (narrow.tokens[0], wide.tokens) == (1, (2,))
    assert wide.log_probability > narrow.log_probability


def test_rows_do_not_disturb_each_other():
    decoder, beam, limits = Markov(9, 3), Beam(width=3), Limits(END, 7)
    prefixes = [[0], [0, 5], [1], [2, 6, 1], [8]]
    together = beam_search(decoder, Memory(5), Padded.from_rows(prefixes), beam, limits).best
    for prefix, hypotheses in zip(prefixes, together, strict=True):
        alone = beam_search(decoder, Memory(1), Padded.from_rows([prefix]), beam, limits).best[0]
        assert [h.tokens for h in alone] == [h.tokens for h in hypotheses]
        assert [h.score for h in alone] == pytest.approx([h.score for h in hypotheses])


def test_scores_are_normalised_by_length():
    decoder, start, limits = Markov(8, 1), Padded.from_rows([[0]]), Limits(END, 6)
    for alpha in (0.0, 0.5, 1.0):
        for h in beam_search(
            decoder, Memory(1), start, Beam(width=4, length_penalty=alpha), limits
        ).best[0]:
            assert h.score == pytest.approx(h.log_probability / len(h.log_probabilities) ** alpha)


def test_n_best_come_in_order_and_without_repetition():
    best = beam_search(
        Markov(8, 2), Memory(1), Padded.from_rows([[0]]), Beam(width=5), Limits(END, 6)
    ).best[0]
    assert len(best) == 5
    assert len({(h.tokens, h.ended) for h in best}) == 5
    assert [h.score for h in best] == sorted((h.score for h in best), reverse=True)


def test_no_n_gram_comes_twice():
    decoder = Markov(6, 0)
    decoder.table = (
        torch.tensor([[0.0, 5, 0, -9, 0, 0]]).repeat(6, 1).log_softmax(-1)
    )  # would say 1 1 1 1 ...
    best = beam_search(
        decoder, Memory(1), Padded.from_rows([[0]]), Beam(width=2, no_repeat=2), Limits(END, 9)
    ).best[0]
    for h in best:
        pairs = list(itertools.pairwise(h.tokens))
        assert len(pairs) == len(set(pairs))


def test_minimum_length_and_a_result_where_nothing_ends():
    decoder, start = Markov(8, 4), Padded.from_rows([[0]])
    for h in beam_search(
        decoder, Memory(1), start, Beam(width=3, min_length=4), Limits(END, 8)
    ).best[0]:
        assert len(h.tokens) >= 4
    endless = beam_search(decoder, Memory(1), start, Beam(width=3), Limits(None, 5)).best[0]
    assert [len(h.tokens) for h in endless] == [5, 5, 5]
    assert not any(h.ended for h in endless)


def test_the_empty_batch():
    assert (
        beam_search(Markov(8, 4), Memory(0), Padded.from_rows([]), Beam(), Limits(END, 5)).best
        == []
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 0}, "at least 1 hypothesis"),
        ({"length_penalty": -1.0}, "0 or above"),
        ({"no_repeat": 0}, "at least 1"),
    ],
)
def test_senseless_beams_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        Beam(**settings)


def test_a_prefix_may_hold_what_is_never_chosen():
    prefix, limits = Padded.from_rows([[0], [0, 2, 1]]), Limits(end=END, most=4, never=(0, 2))
    for hypotheses in beam_search(Markov(5, seed=1), Memory(2), prefix, Beam(width=2), limits).best:
        assert len(hypotheses) == 2
        assert all(math.isfinite(h.score) and not {0, 2} & set(h.tokens) for h in hypotheses)

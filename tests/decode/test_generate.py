import math
from itertools import pairwise

import pytest
import torch

from seqlab.decode.generate import Greedy, Limits, Rule, Sample, generate, score, stream
from seqlab.equations.decoding import greedy_choice
from seqlab.errors import UsageError
from seqlab.models.interface import Decoder, Memory
from seqlab.padded import Padded

SOS, A, B, C, END = range(5)


NEXT = torch.tensor(
    [
        [0.0, 0.6, 0.3, 0.1, 0.0],  # a text begins with a
        [0.0, 0.1, 0.6, 0.2, 0.1],  # after a comes b
        [0.0, 0.1, 0.1, 0.7, 0.1],  # after b comes c
        [0.0, 0.2, 0.1, 0.1, 0.6],  # after c it ends
        [0.2, 0.2, 0.2, 0.2, 0.2],
    ],
    dtype=torch.float64,
)


class Markov:
    """A table of what follows what. Its state is how many tokens it has read, so a row out of step shows."""

    def __init__(self, table=NEXT, *, patience=None):
        self.table, self.patience = table.log(), patience
        self.reads = []

    def start(self, memory):
        return (torch.arange(memory.rows),), (torch.zeros(memory.rows, dtype=torch.long),)

    def read(self, tokens, context, state):
        self.reads.append(tuple(tokens.shape))
        count = state[0][:, None] + 1 + torch.arange(tokens.shape[1])
        logits = self.table[tokens]
        if self.patience is not None:  # after so many tokens it wants nothing but the end
            tired = torch.full((5,), -30.0, dtype=torch.float64).index_fill(
                0, torch.tensor(END), 0.0
            )
            logits = torch.where((count > self.patience)[..., None], tired, logits)
        return logits, (state[0] + tokens.shape[1],)

    def step(self, token, context, state):
        logits, state = self.read(token[:, None], context, state)
        return logits[:, 0], state


GREEDY = Greedy()


def run(decoder, prefixes, rule=GREEDY, *, end=END, most=20, never=(), rows=None):
    limits = Limits(end=end, most=most, never=never)
    rows = torch.arange(len(prefixes)) if rows is None else torch.tensor(rows)
    return generate(
        decoder, Memory(len(prefixes)), Padded.from_rows(prefixes), rule, limits, rows=rows
    )


def words(generated):
    return [row.tolist() for row in generated.tokens.rows()]


def test_the_table_is_a_decoder():
    assert isinstance(Markov(), Decoder)


def test_greedy_follows_the_likeliest_path_and_reports_what_it_cost():
    out = run(Markov(), [[SOS]])
    assert words(out) == [[A, B, C]]
    assert out.log_probability.item() == pytest.approx(math.log(0.6 * 0.6 * 0.7 * 0.6))


def test_each_row_continues_its_own_prefix():
    out = run(Markov(), [[SOS], [SOS, B], [SOS, A, A], [SOS, C]])
    assert words(out) == [[A, B, C], [C], [B, C], []]
    expected = [0.6 * 0.6 * 0.7 * 0.6, 0.7 * 0.6, 0.6 * 0.7 * 0.6, 0.6]
    assert out.log_probability.exp().tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    "rule", [Greedy(), Sample(seed=5), Sample(2.0, top_k=3, top_p=0.9, seed=6)]
)
def test_prefixes_of_unequal_length_give_each_row_what_it_gets_alone(rule):
    prefixes = [[SOS, B, A, C, B], [SOS], [SOS, A, A], [SOS, C, A, A, A, B, B], [SOS, B]]
    rows = [40, 7, 3, 0, 12]
    together = run(Markov(patience=9), prefixes, rule, rows=rows)
    for place, (prefix, row) in enumerate(zip(prefixes, rows, strict=True)):
        alone = run(Markov(patience=9), [prefix], rule, rows=[row])
        assert words(alone) == [words(together)[place]]
        assert alone.log_probability[0] == together.log_probability[place]


def test_what_all_prefixes_share_is_read_at_once():
    decoder = Markov()
    run(decoder, [[SOS, A, B, A], [SOS, B, A]], most=1)
    assert decoder.reads[0] == (2, 2)
    assert set(decoder.reads[1:]) <= {(2, 1), (1, 1)}


def test_rows_that_have_ended_are_computed_no_more():
    decoder = Markov()
    run(decoder, [[SOS], [C], [B]])
    assert decoder.reads == [(3, 1), (2, 1), (1, 1), (1, 1)]


def test_a_row_that_never_ends_is_cut_not_lost():
    table = NEXT.clone()
    table[:, END] = 0.0
    out = run(Markov(table), [[SOS], [A, B]], most=6)
    assert words(out) == [[A, B, C, A, B, C], [C, A, B, C, A, B]]
    assert out.log_probability[0].exp().item() == pytest.approx(
        0.6 * (6 / 9) * (7 / 9) * (2 / 4) * (6 / 9) * (7 / 9)
    )


@pytest.mark.parametrize(("most", "expected"), [(1, [A]), (3, [A, B, C]), (4, [A, B, C])])
def test_the_limit_counts_new_tokens_with_the_end_among_them(most, expected):
    assert words(run(Markov(), [[SOS]], most=most)) == [expected]
    ended = most == 4
    cost = math.log(0.6 * (0.6 * 0.7 if most > 1 else 1) * (0.6 if ended else 1))
    assert run(Markov(), [[SOS]], most=most).log_probability.item() == pytest.approx(cost)


def test_without_an_end_token_nothing_ends_early():
    out = run(Markov(), [[SOS]], end=None, most=5)
    assert words(out) == [[A, B, C, END, SOS]]  # of equals, the first


def test_what_must_never_be_chosen_is_not():
    assert words(run(Markov(), [[SOS]], never=(B,))) == [[A, C]]
    drawn = run(Markov(), [[SOS]] * 200, Sample(), never=(B, C))
    assert {token for row in words(drawn) for token in row} == {A}


def test_a_ban_changes_the_choice_but_not_what_the_choice_costs():
    """E57 knows of no bans: the score reported is the score that the same tokens get when they are given."""
    out = run(Markov(), [[SOS]], never=(B,))
    assert out.log_probability.exp().item() == pytest.approx(0.6 * 0.2 * 0.6)
    rescored = score(Markov(), Memory(1), Padded.from_rows([[SOS, A, C, END]]))
    torch.testing.assert_close(out.log_probability, rescored)


def test_a_ban_leaves_the_decoders_own_numbers_alone():
    class Stubborn(Markov):
        """Says the same thing at each step, out of one tensor."""

        said = torch.tensor([[0.0, 1.0, 2.0, 0.0, 0.0]])

        def step(self, token, context, state):
            return self.said, state

    assert words(run(Stubborn(), [[SOS]], never=(B,), most=2)) == [[A, A]]
    assert words(run(Stubborn(), [[SOS]], most=2)) == [[B, B]]


def test_an_end_token_inside_a_prefix_ends_nothing():
    assert words(run(Markov(), [[SOS, END, B], [SOS]])) == [[C], [A, B, C]]


def test_what_is_forbidden_may_still_be_given():
    assert words(run(Markov(), [[SOS, B], [SOS, A, B, B]], never=(SOS, B))) == [[C], [C]]


def test_no_rows_give_no_rows():
    assert words(run(Markov(), [])) == []


def test_samples_do_not_depend_on_the_batch():
    together = words(run(Markov(), [[SOS]] * 40, Sample(seed=3)))
    halves = [
        words(run(Markov(), [[SOS]] * 20, Sample(seed=3), rows=range(s, s + 20))) for s in (0, 20)
    ]
    assert halves[0] + halves[1] == together
    assert words(run(Markov(), [[SOS]] * 40, Sample(seed=4))) != together
    assert len(set(map(tuple, together))) > 10


def test_samples_come_as_often_as_their_probability_says():
    num = 20_000
    firsts = run(Markov(), [[SOS]] * num, Sample(seed=1), most=2, end=None).tokens.values
    for first, token in ((SOS, firsts[:, 0]), (A, firsts[firsts[:, 0] == A, 1])):
        expected = NEXT[first] * len(token)
        counts = torch.bincount(token, minlength=5)
        assert counts[expected == 0].eq(0).all()
        possible = expected > 0
        assert (
            (counts - expected)[possible] ** 2 / expected[possible]
        ).sum() < 20  # at most 4 degrees of freedom


@pytest.mark.parametrize("rule", [Greedy(), Sample(seed=9)])
def test_a_stream_is_what_generate_gives(rule):
    limits, prefix = Limits(end=END, most=8), Padded.from_rows([[SOS, A]])
    for row in range(5):
        streamed = list(stream(Markov(), Memory(1), prefix, rule, limits, row=row))
        whole = run(Markov(), [[SOS, A]], rule, most=8, rows=[row])
        assert [[token for token, _ in streamed if token != END]] == words(whole)
        assert tuple(log_p for _, log_p in streamed) == whole.log_probabilities[0]


def test_a_stream_speaks_before_it_has_finished():
    decoder = Markov()
    tokens = stream(
        decoder, Memory(1), Padded.from_rows([[SOS]]), Greedy(), Limits(end=END, most=8), row=0
    )
    assert next(tokens)[0] == A
    assert len(decoder.reads) == 1


def test_a_score_is_the_sum_of_log_probabilities():
    """E57, over unequal rows, whatever lies at their pads."""
    target = Padded.from_rows([[SOS, A, B, END], [SOS, C], [SOS]])
    target = target.with_values(target.values.masked_fill(~target.real, END))
    found = score(Markov(), Memory(3), target)
    expected = torch.tensor([0.6 * 0.6 * 0.1, 0.1, 1.0], dtype=torch.float64).log()
    torch.testing.assert_close(found, expected)


def test_a_score_is_the_log_softmax_of_whatever_the_decoder_says():
    logits = torch.randn(5, 5, generator=torch.Generator().manual_seed(0))
    target = [SOS, A, C, C, B, END]
    decoder = Markov()
    decoder.table = logits
    by_hand = sum(logits[a].double().log_softmax(-1)[b] for a, b in pairwise(target))
    torch.testing.assert_close(score(decoder, Memory(1), Padded.from_rows([target]))[0], by_hand)


LOGITS = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()


ROWS = torch.arange(20_000)


def shares(rule, step=0):
    """How often each token is drawn."""
    drawn = rule(LOGITS.expand(len(ROWS), -1), ROWS, step)
    return torch.bincount(drawn, minlength=4) / len(ROWS)


@pytest.mark.parametrize("rule", [Greedy(), Sample()])
def test_a_rule_chooses_one_token_a_row(rule):
    assert isinstance(rule, Rule)
    chosen = rule(LOGITS.expand(3, -1), ROWS[:3], 0)
    assert chosen.shape == (3,)
    assert chosen.dtype == torch.long


def test_greedy_takes_the_likeliest():
    """E58."""
    logits = torch.tensor([[0.0, 2.0, 1.0], [5.0, 5.0, -math.inf]])
    assert Greedy()(logits, ROWS[:2], 0).tolist() == greedy_choice(logits).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Sample(), [0.4, 0.3, 0.2, 0.1]),
        (Sample(temperature=0.5), [16 / 30, 9 / 30, 4 / 30, 1 / 30]),
        (Sample(top_k=2), [4 / 7, 3 / 7, 0, 0]),
        (Sample(top_p=0.75), [4 / 9, 3 / 9, 2 / 9, 0]),
        (
            Sample(top_k=3, top_p=0.75),
            [4 / 7, 3 / 7, 0, 0],
        ),  # of the top 3, two have 7/9 of the mass
        (Sample(temperature=0.5, top_p=0.75), [16 / 25, 9 / 25, 0, 0]),
        (Sample(top_p=0.01), [1, 0, 0, 0]),
        (Sample(top_k=1), [1, 0, 0, 0]),
        (Sample(top_k=99, top_p=1.0), [0.4, 0.3, 0.2, 0.1]),
    ],
)
def test_a_rule_draws_from_what_it_says(rule, expected):
    """E59: tempered, then the top k, then the top p of what is left."""
    expected = torch.tensor(expected)
    found = shares(rule)
    assert found[expected == 0].eq(0).all()
    assert (found - expected).abs().max() < 0.015


NEVER = pytest.mark.parametrize("rule", [Greedy(), Sample(), Sample(top_k=1)])


@NEVER
def test_what_may_never_come_is_not_chosen(rule):
    chosen = rule(LOGITS.expand(200, -1), ROWS[:200], 0, (0, 3))
    assert set(chosen.tolist()) == ({1, 2} if rule == Sample() else {1})


@NEVER
def test_nor_is_it_by_the_native_kernels(kernels, rule):
    test_what_may_never_come_is_not_chosen(rule)


def test_a_draw_is_keyed_by_seed_row_and_step():
    logits = LOGITS.expand(1000, -1)
    drawn = Sample(seed=1)(logits, ROWS[:1000], 5)
    assert drawn.equal(Sample(seed=1)(logits, ROWS[:1000], 5))
    assert drawn[100:200].equal(Sample(seed=1)(logits[100:200], ROWS[100:200], 5))
    assert not drawn.equal(Sample(seed=2)(logits, ROWS[:1000], 5))
    assert not drawn.equal(Sample(seed=1)(logits, ROWS[:1000], 6))
    assert not drawn.equal(Sample(seed=1)(logits, ROWS[1000:2000], 5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "a temperature must be above 0, not 0.0"),
        ({"temperature": -1.0}, "a temperature must be above 0, not -1.0"),
        ({"temperature": math.inf}, "a temperature must be above 0, not inf"),
        ({"temperature": math.nan}, "a temperature must be above 0, not nan"),
        ({"top_k": 0}, "top-k must keep at least 1 token, not 0"),
        ({"top_p": 0.0}, "top-p is a share above 0 and up to 1, not 0.0"),
        ({"top_p": 1.5}, "top-p is a share above 0 and up to 1, not 1.5"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_with_advice(options, message):
    with pytest.raises(UsageError) as caught:
        Sample(**options)
    assert str(caught.value) == message
    assert caught.value.hint.endswith("is a good first try.")

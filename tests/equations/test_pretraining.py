import math

import pytest
import torch

from seqlab.equations.pretraining import corrupt, mix_layers, theme_loss

MASK = 5


def test_corruption_by_hand():
    """Chance below the share: to be guessed. Of these, fate below 0.8 hides, below 0.9 replaces, and else nothing."""
    tokens = torch.tensor([[10, 11, 12, 13, 14, 15, 16]])
    eligible = torch.tensor([[True, True, True, True, True, True, False]])
    chance = torch.tensor([[0.0, 0.14, 0.1, 0.14, 0.15, 0.9, 0.0]])
    fate = torch.tensor([[0.0, 0.79, 0.8, 0.9, 0.0, 0.0, 0.0]])
    others = torch.tensor([[20, 21, 22, 23, 24, 25, 26]])

    corrupted, guessed = corrupt(tokens, eligible, chance, fate, others, mask=MASK)

    assert corrupted.tolist() == [[MASK, MASK, 22, 13, 14, 15, 16]]
    assert guessed.tolist() == [[True, True, True, True, False, False, False]]


def test_the_shares_over_many_tokens():
    """E65: 15 % are guessed; of these 80 % are hidden, 10 % replaced, 10 % left."""
    random = torch.Generator().manual_seed(0)
    shape = (400, 500)
    tokens, others = torch.full(shape, 10), torch.full(shape, 11)
    chance, fate = (torch.rand(shape, generator=random) for _ in range(2))

    corrupted, guessed = corrupt(
        tokens, torch.ones(shape, dtype=torch.bool), chance, fate, others, mask=MASK
    )

    assert float(guessed.double().mean()) == pytest.approx(0.15, abs=0.005)
    seen = corrupted[guessed]
    assert [float((seen == token).double().mean()) for token in (MASK, 11, 10)] == pytest.approx(
        [0.8, 0.1, 0.1], abs=0.01
    )
    assert corrupted[~guessed].eq(10).all()


def test_the_share_of_corrupted_tokens_can_be_set():
    chance = torch.linspace(0.005, 0.995, 100)[None]
    tokens, yes = torch.full((1, 100), 10), torch.ones(1, 100, dtype=torch.bool)
    _, guessed = corrupt(tokens, yes, chance, chance, tokens, mask=MASK, share=0.4)
    assert int(guessed.sum()) == 40


def test_ineligible_tokens_are_never_corrupted():
    tokens = torch.arange(12)[None]
    eligible = tokens >= 6
    always = torch.zeros(1, 12)
    corrupted, guessed = corrupt(tokens, eligible, always, always, tokens, mask=MASK, share=0.99)
    assert guessed.equal(eligible)
    assert corrupted[~eligible].equal(tokens[~eligible])
    assert corrupted[eligible].eq(MASK).all()


def test_a_mix_of_layers_by_hand():
    """E66: scores 0 and log 3 weigh 1/4 and 3/4; gain 2."""
    layers = torch.tensor([[[[4.0, 0.0]]], [[[0.0, 8.0]]]])
    mixed = mix_layers(layers, torch.tensor([0.0, math.log(3)]), torch.tensor(2.0))
    torch.testing.assert_close(mixed, torch.tensor([[[2.0, 12.0]]]))


def test_layers_of_equal_score_give_their_mean_times_the_gain():
    layers = torch.randn(
        3, 2, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    for score in (0.0, 7.0):
        mixed = mix_layers(
            layers,
            torch.full((3,), score, dtype=torch.float64),
            torch.tensor(0.5, dtype=torch.float64),
        )
        torch.testing.assert_close(mixed, 0.5 * layers.mean(0))


class TestTheThemesLoss:
    LOGITS = torch.tensor([[0.0, 1.0, 2.0, 3.0]], dtype=torch.float64)

    def loss(self, *tokens, eligible=None):
        row = torch.tensor([tokens])
        return float(
            theme_loss(
                self.LOGITS, row, torch.ones_like(row).bool() if eligible is None else eligible
            )
        )

    def test_by_hand(self):
        total = math.log(sum(math.exp(o) for o in range(4)))
        assert self.loss(3, 1) == pytest.approx(total - (3 + 1) / 2)

    def test_each_word_counts_once_and_their_order_does_not(self):
        assert self.loss(3, 1, 3, 3) == self.loss(1, 3)

    def test_ineligible_tokens_are_not_predicted(self):
        eligible = torch.tensor([[True, True, False]])
        assert self.loss(3, 1, 2, eligible=eligible) == self.loss(3, 1)
        assert self.loss(3, 3, 3, eligible=torch.zeros(1, 3, dtype=torch.bool)) == 0.0

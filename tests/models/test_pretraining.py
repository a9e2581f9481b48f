"""Models that learn from text without labels: which token sees which, what is hidden, what stays as it was."""

import pytest
import torch
from torch import nn

from seqlab.equations.pretraining import theme_loss
from seqlab.layers.inputs import Embedding, Entrance, SpelledInputs, TokenInputs
from seqlab.layers.linear import Head
from seqlab.layers.pooling import Pooling
from seqlab.layers.stack import recurrent_stack
from seqlab.models.classifier import Tagger
from seqlab.models.elmo import BidirectionalLanguageModel, BidirectionalReaders, ElmoInputs
from seqlab.models.masked import MaskedLanguageModel
from seqlab.models.recurrent import RecurrentEncoder
from seqlab.models.transformer import segment_numbers
from seqlab.padded import Batch, Padded
from seqlab.randomness import noise
from seqlab.recipe import StackConfig, TransformerConfig
from seqlab.text.vocabulary import EOS, MASK, SEP, SOS, SPECIALS, UNK
from seqlab.training.loss import batch_loss

V, D = 40, 6
STACK = StackConfig(kind="lstm", size=D, layers=2, connection="residual")
ROWS = [[10, 11, 12, 13, 14], [20, 21], [], [30]]


@pytest.fixture
def readers():
    torch.manual_seed(0)
    return BidirectionalReaders(
        Embedding(V, D, name="bilm"), STACK, entering=0.0, dropout=0.0
    ).double()


@pytest.fixture
def bilm(readers):
    torch.manual_seed(1)
    return BidirectionalLanguageModel(readers, Head(D, V)).double()


class TestTwoReaders:
    def test_each_half_depends_only_on_its_own_side(self, readers):
        """Position 2 of five: what changes after it changes its backward half alone, and the other way round."""
        before = readers.layers(Padded.from_rows([[10, 11, 12, 13, 14]]))[:, 0, 2]
        later = readers.layers(Padded.from_rows([[10, 11, 12, 13, 39]]))[:, 0, 2]
        earlier = readers.layers(Padded.from_rows([[39, 11, 12, 13, 14]]))[:, 0, 2]
        own = readers.layers(Padded.from_rows([[10, 11, 39, 13, 14]]))[:, 0, 2]
        ahead, back = slice(None, D), slice(D, None)

        assert before[:, ahead].equal(later[:, ahead])
        assert before[:, back].equal(earlier[:, back])
        for depth in (1, 2):  # depth 0 is the embedding of the word itself
            assert not before[depth, back].allclose(later[depth, back])
            assert not before[depth, ahead].allclose(earlier[depth, ahead])
        assert (before != own).all()

    def test_the_first_layer_is_the_embedding_twice(self, readers):
        layers = readers.layers(Padded.from_rows([[10, 11]]))
        assert layers.shape == (3, 1, 2, 2 * D)
        assert layers[0, 0].equal(readers.embedding.weight[[10, 11]].repeat(1, 2))

    def test_ragged_rows_equal_rows_alone(self, readers):
        together = readers.layers(Padded.from_rows(ROWS))
        for place, row in enumerate(ROWS):
            alone = readers.layers(Padded.from_rows([row]))
            torch.testing.assert_close(together[:, place, : len(row)], alone[:, 0])

    def test_values_beyond_the_length_of_a_row_have_no_effect(self, readers):
        """What lies at the pads is not read by the half that begins at the row's end."""
        padded = Padded.from_rows([[10, 11, 12], [20]])
        dirty = padded.with_values(padded.values + 33 * ~padded.real)
        torch.testing.assert_close(
            readers.layers(dirty)[:, 1, :1], readers.layers(padded)[:, 1, :1]
        )


class TestBidirectionalLanguageModel:
    def test_its_loss_is_that_of_two_directions_scored_by_hand(self, bilm):
        batch = Batch(rows=torch.arange(4), source=Padded.from_rows(ROWS))
        loss = batch_loss(bilm, batch)

        total, count = 0.0, 0
        for row in ROWS:
            for stack, words in (
                (bilm.readers.ahead, [SOS, *row, EOS]),
                (bilm.readers.back, [EOS, *row[::-1], SOS]),
            ):
                tokens = torch.tensor([words])
                states, _ = stack(bilm.readers.embedding(tokens[:, :-1]), stack.start(1))
                log_p = bilm.head(states).log_softmax(-1).detach()
                total -= float(log_p[0].gather(1, tokens[0, 1:, None]).sum())
                count += len(row) + 1
        assert loss.num_scored == count == 24
        assert float(loss.total.detach()) == pytest.approx(total)

    def test_no_direction_reads_the_token_that_it_predicts(self, bilm):
        """The features before the last word do not depend on it, forward; nor those before the first, backward."""
        first, last, same = ([9, 11, 12], [10, 11, 9], [10, 11, 12])
        features = [
            bilm.read_batch(Batch(torch.arange(1), source=Padded.from_rows([row]))).features[0]
            for row in (same, first, last)
        ]
        ahead, back = slice(0, 3), slice(4, 7)  # each up to the guess of its third word
        assert features[0][ahead].equal(features[2][ahead])
        assert features[0][back].equal(features[1][back])
        assert not features[0][3].allclose(features[2][3])
        assert not features[0][7].allclose(features[1][7])

    def test_an_empty_row_is_an_end_after_a_beginning(self, bilm):
        loss = batch_loss(bilm, Batch(rows=torch.arange(1), source=Padded.from_rows([[]])))
        assert loss.num_scored == 2
        assert torch.isfinite(loss.total)


@pytest.fixture(scope="module")
def masked():
    torch.manual_seed(0)
    stack = recurrent_stack(
        D, StackConfig(kind="gru", size=D, bidirectional=True), dropout=0.0, name="encoder"
    )
    encoder = RecurrentEncoder(TokenInputs(Embedding(V, D, name="encoder")), stack, dropout=0.0)
    return MaskedLanguageModel(encoder, Head(2 * D, V), num_tokens=V, share=0.3)


class TestHiding:
    LONG = tuple(6 + place % 34 for place in range(200))

    def hidden(self, model, rows, numbers):
        source, gold = model.hide(Padded.from_rows(rows), torch.tensor(numbers))
        seen = zip(source.rows(), gold.with_values(gold.scored).rows(), strict=True)
        return [(tokens.tolist(), guessed.tolist()) for tokens, guessed in seen]

    def test_the_original_token_is_the_gold_at_chosen_positions(self, masked):
        source = Padded.from_rows([self.LONG])
        corrupted, gold = masked.hide(source, torch.tensor([3]))
        assert gold.values.equal(source.values)
        changed = corrupted.values != source.values
        assert (gold.scored | ~changed).all()  # nothing changes that need not be guessed
        share = float(gold.scored.double().mean())
        assert 0.2 < share < 0.4
        assert float((corrupted.values[gold.scored] == MASK).double().mean()) > 0.6

    def test_the_mask_of_a_row_is_reproducible(self, masked):
        assert self.hidden(masked, [self.LONG], [3]) == self.hidden(masked, [self.LONG], [3])
        assert self.hidden(masked, [self.LONG], [3]) != self.hidden(masked, [self.LONG], [4])

    def test_in_training_it_differs_by_step_and_by_seed_and_is_the_same_for_the_same(self, masked):
        found = []
        for seed, step in ((1, 1), (1, 2), (2, 1), (1, 1)):
            with noise(seed, step, torch.tensor([3])):
                found.append(self.hidden(masked, [self.LONG], [3])[0])
        assert found[0] == found[3]
        assert found[0] != found[1]
        assert found[0] != found[2]

    def test_it_depends_neither_on_the_other_rows_nor_on_the_padding(self, masked):
        rows = [self.LONG[:20], self.LONG, [], self.LONG[:7]]
        together = self.hidden(masked, rows, [5, 6, 7, 8])
        alone = [
            self.hidden(masked, [row], [number])[0]
            for row, number in zip(rows, (5, 6, 7, 8), strict=True)
        ]
        assert together == alone
        assert self.hidden(masked, rows[::-1], [8, 7, 6, 5])[::-1] == together

    def test_special_tokens_and_pads_are_never_masked(self, masked):
        specials = [SOS, UNK, SEP, EOS, MASK] * 40
        _, gold = masked.hide(Padded.from_rows([specials, [7]]), torch.tensor([1, 2]))
        assert not gold.scored[0].any()
        assert not gold.scored[1, 1:].any()

    def test_random_replacements_are_never_special_tokens(self, masked):
        corrupted, _ = masked.hide(Padded.from_rows([self.LONG] * 50), torch.arange(50))
        values = corrupted.values.unique().tolist()
        assert set(values) & set(range(len(SPECIALS))) == {MASK}
        assert max(values) < V

    def test_a_batch_without_masked_tokens_has_zero_loss_and_gradients(self, masked):
        batch = Batch(rows=torch.tensor([0]), source=Padded.from_rows([[SOS, SEP]]))
        loss = batch_loss(masked, batch)
        loss.to_minimise.backward()
        assert (float(loss.to_minimise.detach()), loss.num_scored) == (0.0, 0)


class TestTheme:
    """A narrow vector of the whole text guesses its words beside what each hidden token costs."""

    @pytest.fixture
    def themed(self, masked):
        torch.manual_seed(1)
        pooling = Pooling("theme", 2 * D, summary_size=2 * D, theme=3)
        return MaskedLanguageModel(
            masked.encoder, masked.head, num_tokens=V, share=0.3, theme=pooling
        )

    def batch(self, *rows):
        return Batch(rows=torch.arange(len(rows)), source=Padded.from_rows(rows))

    def test_its_loss_is_weighted_by_the_masked_tokens(self, themed):
        batch = self.batch(TestHiding.LONG, TestHiding.LONG[:20])
        hidden, gold = themed.hide(batch.source, batch.rows)
        memory = themed.encoder(hidden)
        theme = themed.widen(themed.pooling(memory.states, memory.summary)[0])
        words = theme_loss(themed.head(theme), batch.source.values, batch.source.real)
        reading = themed.read_batch(batch)
        torch.testing.assert_close(reading.penalty, (words * gold.scored.sum(1)).sum())
        torch.testing.assert_close(reading.features, memory.states.values + theme[:, None])

    def test_the_reported_loss_is_that_of_the_masked_tokens(self, themed):
        loss = batch_loss(themed, self.batch(TestHiding.LONG))
        assert loss.penalty > 0
        torch.testing.assert_close(loss.summed, loss.total + loss.penalty)

    def test_it_is_learnt(self, themed):
        themed.zero_grad()
        batch_loss(themed, self.batch(TestHiding.LONG)).to_minimise.backward()
        assert all(p.grad.any() for p in (*themed.pooling.parameters(), *themed.widen.parameters()))


class TestElmoInputs:
    @pytest.fixture
    def tagger(self, readers):
        torch.manual_seed(2)
        inputs = ElmoInputs(TokenInputs(Embedding(V, 3, name="encoder")), readers.float())
        stack = recurrent_stack(
            inputs.size, StackConfig(kind="gru", size=D), dropout=0.0, name="encoder"
        )
        return Tagger(RecurrentEncoder(inputs, stack, dropout=0.0), Head(D, 4))

    def test_are_concatenated_with_the_word_vectors(self, tagger):
        inputs, source = tagger.encoder.inputs, Padded.from_rows(ROWS)
        x = inputs(source)
        assert x.shape == (4, 5, 3 + 2 * D)
        assert x[..., :3].equal(inputs.inputs(source))
        torch.testing.assert_close(
            x[..., 3:], inputs.readers.layers(source).mean(0)
        )  # before any training

    def test_only_the_mix_of_layers_is_learnt(self, tagger):
        inputs = tagger.encoder.inputs
        frozen = {name for name, p in tagger.named_parameters() if not p.requires_grad}
        assert frozen == {
            f"encoder.inputs.readers.{name}" for name, _ in inputs.readers.named_parameters()
        }
        before = {name: p.detach().clone() for name, p in tagger.named_parameters()}
        optimizer = torch.optim.AdamW(
            [p for p in tagger.parameters() if p.requires_grad], lr=0.1, weight_decay=0.1
        )
        batch = Batch(
            rows=torch.arange(4),
            source=Padded.from_rows(ROWS),
            target=Padded.from_rows([[0, 1, 2, 3, 0], [1, 2], [], [3]]),
        )
        for step in range(3):
            with noise(1, step, batch.rows):
                batch_loss(tagger, batch).to_minimise.backward()
            optimizer.step()
            optimizer.zero_grad()
        changed = {name for name, p in tagger.named_parameters() if not p.equal(before[name])}
        assert changed == set(before) - frozen
        assert {"encoder.inputs.scores", "encoder.inputs.gain"} <= changed


class TestSpelledInputs:
    @pytest.fixture
    def inputs(self):
        torch.manual_seed(0)
        return SpelledInputs(
            Embedding(V, 3, name="encoder"), 20, StackConfig(kind="gru", size=4, bidirectional=True)
        )

    def words(self, *rows):
        """Rows of (id, letters), as a vocabulary spells them: eight places for letters."""
        spelled = [
            [[word, *letters, *[0] * (8 - len(letters))] for word, letters in row] for row in rows
        ]
        return Padded.from_rows(
            [torch.tensor(row, dtype=torch.long).reshape(-1, 9) for row in spelled]
        )

    def test_unknown_words_are_distinguished_by_their_letters(self, inputs):
        x = inputs(self.words([(UNK, [7, 8]), (UNK, [8, 7]), (UNK, [7, 8])]))[0]
        assert x.shape == (3, 3 + 8)
        assert x[0].equal(x[2])
        assert x[0, :3].equal(x[1, :3])
        assert not x[0, 3:].allclose(x[1, 3:])

    def test_a_word_has_the_same_vector_at_every_position(self, inputs):
        one, other = (9, [7, 8, 9]), (10, [10])
        together = inputs(self.words([one, other, other], [other], [], [other, one]))
        alone = inputs(self.words([one]))[0, 0]
        torch.testing.assert_close(together[0, 0], alone)
        torch.testing.assert_close(together[3, 1], alone)
        torch.testing.assert_close(together[0, 1], together[1, 0])

    def test_the_padding_of_spellings_changes_nothing(self, inputs):
        narrow = self.words([(9, [7, 8])])
        wide = narrow.with_values(nn.functional.pad(narrow.values, (0, 5)))
        torch.testing.assert_close(inputs(narrow), inputs(wide))

    def test_no_words_have_no_vectors(self, inputs):
        assert inputs(self.words([])).shape == (1, 0, 11)


class TestSegments:
    def test_a_separator_is_the_last_token_of_its_own_text(self):
        tokens = torch.tensor(
            [[SOS, 7, SEP, 8, 9, SEP, 10], [7, 8, 9, 10, 11, 12, 13], [SEP, SEP, 7, 0, 0, 0, 0]]
        )
        segments = segment_numbers(Padded.from_rows(list(tokens)))
        assert segments.tolist() == [
            [0, 0, 0, 1, 1, 1, 2],
            [0] * 7,
            [0, 1, 2, 2, 2, 2, 2],
        ]

    def test_segment_embeddings_of_each_text_and_the_last_for_all_others(self):
        settings = TransformerConfig(size=4, heads=2, segments=2, positions="none")
        entrance = Entrance(4, settings, most=9, dropout=0.0, name="encoder")
        tokens, x = torch.tensor([[7, SEP, 8, SEP, 9]]), torch.randn(1, 5, 4)
        told = entrance(x, segments=segment_numbers(Padded.from_rows(list(tokens)))) - entrance(x)
        torch.testing.assert_close(told[0], entrance.segments[[0, 0, 1, 1, 1]])

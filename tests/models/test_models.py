import pytest
import torch

from seqlab.equations import recurrent
from seqlab.layers.inputs import Embedding, TokenInputs
from seqlab.layers.linear import Head
from seqlab.layers.pooling import Pooling
from seqlab.layers.stack import CausalStack, recurrent_stack
from seqlab.layers.tap import listening
from seqlab.models.classifier import Classifier, Tagger
from seqlab.models.interface import Memory
from seqlab.models.recurrent import Bridge, RecurrentDecoder, RecurrentEncoder
from seqlab.models.seq2seq import LanguageModel, Seq2Seq, reorder
from seqlab.padded import Batch, Padded
from seqlab.randomness import noise
from seqlab.recipe import StackConfig

V, D, H, F = 9, 4, 5, 3
SOURCE = Padded.from_rows([[4, 5, 6], [], [7]])
TARGET = Padded.from_rows([[2, 5, 6, 3], [2, 3], [2, 7, 3]])
ROWS = torch.arange(3)


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def decoder(*, summary=None, every=False, kind="rnn", tied=False):
    torch.manual_seed(0)
    embedding = Embedding(V, D, name="decoder")
    stack = CausalStack(
        D + (summary or 0) * every,
        StackConfig(kind=kind, size=H, layers=1),
        dropout=0.0,
        name="decoder",
    )
    bridge = None if summary is None else Bridge(summary, stack.state_sizes)
    head = Head(H, V, tied=embedding.weight if tied else None)
    return RecurrentDecoder(
        embedding, stack, head, bridge=bridge, reads_summary=every, dropout=0.0
    ).double()


def encoder(**options):
    torch.manual_seed(1)
    stack = recurrent_stack(
        D, StackConfig(kind="lstm", size=H, layers=2, **options), dropout=0.0, name="encoder"
    )
    return RecurrentEncoder(
        TokenInputs(Embedding(V, D, name="encoder")), stack, dropout=0.0
    ).double()


def test_a_head_is_an_affine_map():
    """E18."""
    head, x = Head(H, V).double(), numbers(2, 3, H)
    head.output.bias.data = numbers(V, seed=1)
    torch.testing.assert_close(head(x), recurrent.output(x, head.output.weight, head.output.bias))


def test_a_tied_head_shares_the_weights_of_the_embedding():
    embedding = Embedding(V, D, name="decoder")
    same, projected = Head(D, V, tied=embedding.weight), Head(H, V, tied=embedding.weight)
    assert same.output.weight is embedding.weight
    assert same.project is None
    x = torch.randn(2, H)
    torch.testing.assert_close(
        projected(x), (x @ projected.project.weight.mT) @ embedding.weight.mT
    )


def test_tying_saves_the_parameters_of_the_output():
    free, tied = decoder(), decoder(tied=True)
    count = {
        name: sum(p.numel() for p in each.parameters())
        for name, each in (("free", free), ("tied", tied))
    }
    assert (
        count["free"] - count["tied"] == V * H - D * H
    )  # less V x H, and D x H more to reach the embedding's size


def test_a_bridge_makes_one_state_for_each_part():
    bridge, summary = Bridge(F, [H, 2]).double(), numbers(3, F)
    first, second = bridge(summary)
    whole = (summary @ bridge.project.weight.mT + bridge.project.bias).tanh()
    torch.testing.assert_close(torch.cat([first, second], dim=-1), whole)
    assert (first.shape, second.shape) == ((3, H), (3, 2))


def test_a_decoder_without_a_source_starts_at_zero():
    """S7."""
    context, state = decoder(kind="lstm").start(Memory(3))
    assert context == ()
    assert [part.shape for part in state] == [(3, H)] * 2
    assert all(part.eq(0).all() for part in state)


def test_a_decoder_with_a_bridge_starts_from_the_source_summary():
    """S13."""
    ours, summary = decoder(summary=F), numbers(3, F)
    context, (state,) = ours.start(Memory(3, summary=summary))
    assert context == ()
    torch.testing.assert_close(state, ours.bridge(summary)[0])


def test_a_decoder_that_reads_its_summary_is_vec2seq():
    """E19: h_t = tanh(W_xh [y_{t-1}; x] + W_hh h_{t-1}), with the same x at every step."""
    ours, summary = decoder(summary=F, every=True), numbers(3, F)
    cell = ours.stack.layers[0].recurrence
    tokens = TARGET.values
    context, (h,) = ours.start(Memory(3, summary=summary))
    features = ours.features(tokens, context, (h,))[0]

    of_word, of_summary = cell.U.split([D, F], dim=1)
    W_xh = torch.cat([of_summary, of_word], dim=1)  # the slide has x first
    for t, token in enumerate(tokens.unbind(1)):
        h = recurrent.vec2seq_step(summary, ours.embedding.weight[token], h, W_xh, cell.W)
        torch.testing.assert_close(features[:, t], h)


def test_a_summary_read_at_every_step_matters_at_every_step():
    tokens = TARGET.values
    for every in (False, True):
        ours = decoder(summary=F, every=every)
        context, state = ours.start(Memory(3, summary=numbers(3, F)))
        other, _ = ours.start(Memory(3, summary=numbers(3, F, seed=1)))
        one, two = (ours.read(tokens, c, state)[0] for c in (context, other))
        assert one.equal(two) != every


def test_an_encoder_gives_states_and_a_summary():
    for bidirectional in (False, True):
        ours = encoder(bidirectional=bidirectional)
        memory = ours(SOURCE)
        width = 2 * H if bidirectional else H
        assert memory.rows == 3
        assert memory.states.values.shape == (3, 3, width)
        assert memory.states.lengths is SOURCE.lengths
        assert memory.summary.shape == (3, ours.summary_size) == (3, width)
        assert memory.summary[1].eq(0).all()


def test_a_language_model_predicts_the_next_token():
    model = LanguageModel(decoder())
    reading = model.read_batch(Batch(ROWS, target=TARGET))
    assert [row.tolist() for row in reading.gold.rows()] == [[5, 6, 3], [3], [7, 3]]
    logits, state = model.decoder.read(TARGET.values[:, :-1], (), model.decoder.stack.start(3))
    torch.testing.assert_close(model.head(reading.features.flatten(0, 1)), logits.flatten(0, 1))
    torch.testing.assert_close(reading.carried, state)


def test_a_language_model_starts_from_the_carried_state():
    model, carried = LanguageModel(decoder()), (numbers(3, H, seed=5),)
    found = model.read_batch(Batch(ROWS, target=TARGET), carried)
    expected = model.decoder.features(TARGET.values[:, :-1], (), carried)[0]
    assert found.features.equal(expected)
    assert not found.features.equal(model.read_batch(Batch(ROWS, target=TARGET)).features)


def test_in_training_a_few_streams_are_reset():
    """So that a beginning is learned; the same streams at the same step, whoever else is in the batch."""
    model, rows = LanguageModel(decoder()), torch.arange(2000)
    target, carried = Padded.from_rows([[2, 5, 6]] * len(rows)), (numbers(len(rows), H, seed=5),)

    def read(places, carried):
        with noise(1, 7, rows[places]):
            own = Padded(target.values[places], target.lengths[places])
            return model.read_batch(Batch(rows[places], target=own), carried).features

    found, plain = (
        read(rows, carried),
        model.decoder.features(target.values[:, :-1], (), carried)[0],
    )
    anew = (found != plain).flatten(1).any(1)
    assert 20 < anew.sum() < 60
    assert found[anew].allclose(read(rows, ())[anew])
    assert read(rows[500:900], (carried[0][500:900],)).allclose(found[500:900])


def test_missing_values_are_not_predicted():
    target = Padded(
        TARGET.values,
        TARGET.lengths,
        torch.tensor([[1, 0, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0]]).bool(),
    )
    gold = LanguageModel(decoder()).read_batch(Batch(ROWS, target=target)).gold
    assert gold.scored.int().tolist() == [[0, 1, 1], [1, 0, 0], [1, 0, 0]]


def test_an_empty_target_has_no_predictions():
    reading = LanguageModel(decoder()).read_batch(Batch(ROWS[:1], target=Padded.from_rows([[]])))
    assert reading.features.shape == (1, 0, H)
    assert reading.gold.lengths.tolist() == [0]


def test_a_translation_depends_on_its_source():
    model = Seq2Seq(encoder(), decoder(summary=H, every=True))
    one = model.read_batch(Batch(ROWS, SOURCE, TARGET))
    two = model.read_batch(Batch(ROWS, Padded.from_rows([[4, 5, 7], [], [7]]), TARGET))
    same = [row.equal(other) for row, other in zip(one.features, two.features, strict=True)]
    assert same == [False, True, True]
    assert one.gold.lengths.tolist() == [3, 1, 2]
    assert model.head(one.features[0]).shape == (3, V)


@pytest.mark.parametrize("kind", ["final", "mean", "max", "detectors", "attention"])
def test_a_classifier_reads_pooled_states(kind):
    torch.manual_seed(2)
    pooling = Pooling(kind, 2 * H, summary_size=2 * H).double()
    model = Classifier(encoder(bidirectional=True), pooling, Head(2 * H, 4).double())
    reading = model.read_batch(Batch(ROWS, SOURCE, Padded.from_rows([[1], [0], [3]])))
    memory = model.encoder(SOURCE)
    torch.testing.assert_close(reading.features[:, 0], pooling(memory.states, memory.summary)[0])
    assert reading.gold.values.tolist() == [[1], [0], [3]]


def test_a_tagger_has_features_at_each_position():
    model = Tagger(encoder(bidirectional=True), Head(2 * H, 4).double())
    labels = Padded.from_rows([[1, 0, 2], [], [3]])
    reading = model.read_batch(Batch(ROWS, SOURCE, labels))
    assert reading.features.equal(model.encoder(SOURCE).states.values)
    assert reading.gold is labels


def test_the_logits_pass_a_tap():
    model, seen = LanguageModel(decoder()), {}
    with listening(lambda name, value: seen.setdefault(name, value)):
        logits, _ = model.decoder.read(TARGET.values, (), model.decoder.stack.start(3))
    assert seen["logits"] is logits
    assert set(seen) == {
        "decoder.embedding",
        "decoder.0.enters",
        "decoder.0.h",
        "features",
        "logits",
    }


def test_a_state_is_reordered():
    state = (torch.arange(6).view(3, 2), torch.tensor([10, 20, 30]))
    first, second = reorder(state, torch.tensor([2, 0, 2, 1]))
    assert first.tolist() == [[4, 5], [0, 1], [4, 5], [2, 3]]
    assert second.tolist() == [30, 10, 30, 20]

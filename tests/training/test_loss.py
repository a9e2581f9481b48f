import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from seqlab.equations import bptt
from seqlab.layers.inputs import Embedding, TokenInputs
from seqlab.layers.linear import Head
from seqlab.layers.pooling import Pooling
from seqlab.layers.stack import CausalStack
from seqlab.models.classifier import Classifier, Tagger
from seqlab.models.recurrent import RecurrentDecoder, RecurrentEncoder
from seqlab.models.seq2seq import LanguageModel
from seqlab.padded import Batch, Padded
from seqlab.recipe import StackConfig
from seqlab.training.loss import batch_loss, mean_loss

V, D, H = 9, 4, 5


def stack(name, kind="lstm"):
    return CausalStack(D, StackConfig(kind=kind, size=H, layers=1), dropout=0.0, name=name)


@pytest.fixture
def language_model():
    torch.manual_seed(0)
    decoder = RecurrentDecoder(
        Embedding(V, D, name="decoder"),
        stack("decoder", "rnn"),
        Head(H, V),
        bridge=None,
        reads_summary=False,
        dropout=0.0,
    )
    return LanguageModel(decoder).double()


@pytest.fixture
def encoder():
    torch.manual_seed(1)
    return RecurrentEncoder(
        TokenInputs(Embedding(V, D, name="encoder")), stack("encoder"), dropout=0.0
    )


def lines(*rows):
    target = Padded.from_rows(rows)
    return Batch(
        torch.arange(len(rows)),
        target=target.with_values(target.values.masked_fill(~target.real, V - 1)),
    )


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_the_loss_is_torchs_over_what_is_there_to_predict(language_model, label_smoothing):
    rows = [[2, 5, 6, 7, 3], [2, 3], [2], [2, 4, 3]]
    loss = batch_loss(language_model, lines(*rows), label_smoothing=label_smoothing)

    expected = 0.0
    for row in rows:
        if len(row) > 1:
            tokens = torch.tensor([row])
            logits, _ = language_model.decoder.read(
                tokens[:, :-1], (), language_model.decoder.stack.start(1)
            )
            expected += cross_entropy(
                logits[0], tokens[0, 1:], reduction="sum", label_smoothing=label_smoothing
            )

    torch.testing.assert_close(loss.total, expected)
    assert loss.num_scored == 4 + 1 + 0 + 2


def test_a_missing_value_is_read_and_not_scored(language_model):
    tokens = torch.tensor([[2, 5, 6, 7, 3]])
    observed = torch.tensor([[True, True, False, True, True]])
    batch = Batch(torch.arange(1), target=Padded(tokens, torch.tensor([5]), observed))
    logits, _ = language_model.decoder.read(
        tokens[:, :-1], (), language_model.decoder.stack.start(1)
    )
    loss = batch_loss(language_model, batch)
    torch.testing.assert_close(
        loss.total, cross_entropy(logits[0, [0, 2, 3]], tokens[0, [1, 3, 4]], reduction="sum")
    )
    assert loss.num_scored == 3


def test_a_label_never_seen_has_no_likelihood(encoder):
    tagger = Tagger(encoder, Head(H, 3))
    source, labels = Padded.from_rows([[4, 5, 6], [7]]), Padded.from_rows([[0, -1, 2], [-1]])
    loss = batch_loss(tagger, Batch(torch.arange(2), source, labels))
    logits = tagger.head(tagger.features(source))[0, [0, 2]]
    torch.testing.assert_close(
        loss.total, cross_entropy(logits, torch.tensor([0, 2]), reduction="sum")
    )
    assert loss.num_scored == 2


def test_a_batch_with_nothing_to_predict_costs_nothing_and_can_be_trained_on(encoder):
    tagger = Tagger(encoder, Head(H, 3))
    loss = batch_loss(
        tagger, Batch(torch.arange(2), Padded.from_rows([[], []]), Padded.from_rows([[], []]))
    )
    loss.total.backward()
    assert loss.total == 0
    assert loss.num_scored == 0


def test_a_classifiers_loss_is_of_one_label_a_row(encoder):
    classifier = Classifier(encoder, Pooling("mean", H, summary_size=H), Head(H, 3))
    source, gold = Padded.from_rows([[4, 5, 6], [], [7]]), torch.tensor([2, 0, 1])
    loss = batch_loss(
        classifier, Batch(torch.arange(3), source, Padded.from_rows(list(gold[:, None])))
    )
    logits = classifier.head(classifier.features(source))[:, 0]
    torch.testing.assert_close(loss.total, cross_entropy(logits, gold, reduction="sum"))
    assert loss.num_scored == 3


def test_the_carried_state_continues_the_text_and_is_cut_from_its_gradient(language_model):
    text = [2, 5, 6, 7, 3, 4, 8]
    whole = batch_loss(language_model, lines(text))
    first = batch_loss(language_model, lines(text[:4]))
    second = batch_loss(language_model, lines(text[3:]), first.carried)
    torch.testing.assert_close(first.total + second.total, whole.total)
    assert all(not part.requires_grad for part in first.carried)


@pytest.mark.parametrize("chunk", [1, 2, 3, 12, 20])
def test_chunks_with_a_carried_state_are_truncated_bptt(language_model, chunk):
    """E35: what training adds up over the chunks of a stream is what the written-out equations give."""
    text = torch.randint(0, V, (13,), generator=torch.Generator().manual_seed(1))
    decoder = language_model.decoder
    cell, head = decoder.stack.layers[0].recurrence, decoder.head.output
    carried = ()
    for start in range(0, 12, chunk):
        loss = batch_loss(language_model, lines(text[start : start + chunk + 1]), carried)
        loss.total.backward()
        carried = loss.carried

    weights = (cell.W, cell.U, cell.b, head.weight, head.bias)
    with torch.no_grad():
        x, h0 = decoder.embedding.weight[text[:-1]], torch.zeros(H, dtype=torch.float64)
        h, o = bptt.forward(x, h0, *weights)
    o.requires_grad_()
    (g_o,) = torch.autograd.grad(cross_entropy(o, text[1:], reduction="sum"), o)
    expected = bptt.truncated(x, h0, h, cell.W.detach(), head.weight.detach(), g_o, chunk=chunk)

    found = bptt.Gradients(
        c=head.bias.grad, V=head.weight.grad, b=cell.b.grad, W=cell.W.grad, U=cell.U.grad
    )
    torch.testing.assert_close(found._asdict(), expected._asdict())


def test_the_mean_loss_weighs_every_token_the_same(language_model):
    batches = [lines([2, 5, 6, 7, 3]), lines([2, 3], [2, 4, 3])]
    found = mean_loss(language_model, batches, carries=False)
    total = sum(float(batch_loss(language_model, batch).total.detach()) for batch in batches)
    assert found["loss"] == pytest.approx(total / 7)
    assert found["perplexity"] == pytest.approx(math.exp(total / 7))


def test_the_mean_loss_of_a_stream_does_not_depend_on_how_it_was_cut(language_model):
    text = [2, 5, 6, 7, 3, 4, 8]
    pieces = [lines(text[:3]), lines(text[2:6]), lines(text[5:])]
    whole = mean_loss(language_model, [lines(text)], carries=True)["loss"]
    assert mean_loss(language_model, pieces, carries=True)["loss"] == pytest.approx(whole)
    assert mean_loss(language_model, pieces, carries=False)["loss"] != pytest.approx(whole)


def test_the_mean_loss_of_nothing_is_not_a_number(language_model):
    assert math.isnan(mean_loss(language_model, [], carries=False)["loss"])

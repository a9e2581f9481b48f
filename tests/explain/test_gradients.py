import pytest
import torch

from seqlab.explain.gradients import gradient_flow, matrices
from seqlab.tasks import subject

from .conftest import TRANSFORMER

LONG = "the cat saw a dog " * 6


def recurrent(bundle_of, kind, scale):
    """A language model of one layer with orthogonal matrices times `scale`, whose states stay small."""
    bundle = bundle_of(
        "lm", f"model.decoder.kind={kind} model.decoder.layers=1 model.decoder.size=16"
    )
    layer = bundle.model.decoder.stack.layers[0].recurrence
    with torch.no_grad():
        generator = torch.Generator().manual_seed(1)
        for block in layer.W.split(layer.size):
            q, _ = torch.linalg.qr(torch.randn(layer.size, layer.size, generator=generator))
            block.copy_(scale * q)
        layer.U.mul_(1e-6 / layer.U.abs().max())
        layer.b.zero_()
        if kind == "lstm":
            layer.b[layer.size : 2 * layer.size] = 6.0  # an open forget gate
            layer.W.mul_(0.1)
    return bundle


@pytest.mark.parametrize(
    ("scale", "verdict"), [(0.5, "vanishing"), (1.0, "healthy"), (1.5, "exploding")]
)
def test_the_verdict_on_an_rnn_follows_from_its_matrix(scale, verdict, bundle_of):
    flow = gradient_flow(subject(recurrent(bundle_of, "rnn", scale), LONG[:24]), each=False)
    layer = flow.names.index("decoder.0.h")
    assert flow.verdict(layer) == verdict
    assert flow.factor(layer) == pytest.approx(scale, rel=0.05)
    assert verdict in flow.sentence(layer)
    assert flow.matrices[0].singular_value == pytest.approx(scale, abs=1e-5)
    assert flow.matrices[0].spectral_radius == pytest.approx(scale, abs=1e-5)


def test_gradients_of_an_lstm_reach_100_steps_back_and_those_of_an_rnn_do_not(bundle_of):
    reach = {}
    for kind, scale in (("rnn", 0.9), ("lstm", 1.0)):
        flow = gradient_flow(subject(recurrent(bundle_of, kind, scale), LONG[:104]), each=False)
        norms = flow.last[flow.names.index("decoder.0.h")]
        reach[kind] = float(norms[-101] / norms[-1])
    assert reach["rnn"] < 1e-4
    assert reach["lstm"] > 100 * reach["rnn"]


def test_the_loss_of_an_answer_has_no_gradient_at_later_positions(bundle_of):
    bundle = bundle_of(
        "lm", "model.decoder.kind=transformer model.decoder.size=12 model.decoder.heads=3"
    )
    flow = gradient_flow(subject(bundle, "the cat"))
    assert flow.each is not None
    for layer in range(len(flow.names)):
        future = torch.triu(torch.ones_like(flow.each[layer]), diagonal=1).bool()
        assert float(flow.each[layer][future].abs().max()) == 0.0
        assert float(flow.each[layer].diagonal().min()) > 0
    torch.testing.assert_close(flow.each[:, -1], flow.last)


def test_a_transformer_has_no_recurrent_matrices(bundle_of):
    assert matrices(bundle_of("translate", TRANSFORMER)) == ()

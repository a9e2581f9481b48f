"""The native scans against the equations they are made of."""

import pytest
import torch

from seqlab import lab, laws
from seqlab.data.synthetic import reversals
from seqlab.equations import bptt
from seqlab.equations import recurrent as equations
from seqlab.kernels import recurrent as kernels
from seqlab.layers.recurrence import WORTHWHILE, Recurrence, quicker
from seqlab.layers.stack import recurrent_stack
from seqlab.layers.tap import listening
from seqlab.padded import Padded
from seqlab.recipe import StackConfig

pytestmark = pytest.mark.usefixtures("kernels")
GATES = {"rnn": 1, "relu-rnn": 1, "lstm": 4, "gru": 3, "gru-torch": 3}
every_cell = pytest.mark.parametrize("kind", GATES)
# features, units, rows, steps: less than a vector, a bit more than one, more than a panel is deep, one row, one step
SIZES = [(3, 4, 2, 5), (17, 19, 7, 3), (5, 261, 13, 2), (33, 8, 1, 9), (2, 16, 32, 1)]


def numbers(*shape, seed=0, dtype=torch.float64):
    drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (0.5 * drawn).to(dtype)


def arguments(kind, features, units, rows, steps, *, dtype=torch.float64):
    """x, the state, W, U, b and what else there is, each with a gradient to come."""
    gates = GATES[kind] * units
    shapes = [(rows, steps, features), (rows, units), (gates, units), (gates, features), (gates,)]
    if kind == "lstm":
        shapes.insert(1, (rows, units))
    if kind == "gru-torch":
        shapes.append((units,))
    drawn = [numbers(*shape, seed=seed, dtype=dtype) for seed, shape in enumerate(shapes)]
    for W in drawn[-3:]:
        W /= 1 if W.dim() == 1 else W.shape[1] ** 0.5
    return [each.requires_grad_() for each in drawn]


def fast(kind, *given):
    """All states, and for an LSTM its last c."""
    if kind == "lstm":
        return kernels.lstm(*given)
    kernel = {"rnn": kernels.rnn, "relu-rnn": kernels.relu_rnn}.get(kind, kernels.gru)
    return (kernel(*given),)


def slow(kind, x, *given):
    """The same by the equations, step by step."""
    num = 2 if kind == "lstm" else 1
    state, weights, states = given[:num], given[num:], []
    step = {
        "rnn": equations.rnn_step,
        "relu-rnn": lambda *parts: equations.rnn_step(*parts, torch.relu),
        "lstm": equations.lstm_step,
        "gru": equations.gru_step,
        "gru-torch": equations.gru_torch_step,
    }[kind]
    for x_t in x.unbind(1):
        after = step(x_t, *state, *weights)
        state = after if kind == "lstm" else (after,)
        states.append(state[0])
    return (torch.stack(states, dim=1), *state[1:])


def gradients(outputs, given):
    loss = sum(
        (output * numbers(*output.shape, seed=50, dtype=output.dtype)).sum() for output in outputs
    )
    return torch.autograd.grad(loss, given)


@every_cell
@pytest.mark.parametrize("sizes", SIZES)
def test_each_scan_is_its_equation_repeated_with_its_gradients(kind, sizes):
    given = arguments(kind, *sizes)
    found, expected = fast(kind, *given), slow(kind, *given)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradients(found, given), gradients(expected, given))


@every_cell
def test_the_gradients_are_right_by_finite_differences(kind):
    assert torch.autograd.gradcheck(lambda *given: fast(kind, *given), arguments(kind, 2, 3, 2, 3))


def test_backpropagation_through_time_as_the_lecture_writes_it():
    """E31-E34, for one sequence of a tanh RNN whose every state is an output (V is the identity)."""
    x, h, W, U, b = arguments("rnn", 3, 5, 1, 7)
    g_o = numbers(7, 5, seed=9)
    states = kernels.rnn(x, h, W, U, b)
    expected = bptt.gradients(x[0], h[0], states[0], W, torch.eye(5, dtype=torch.float64), g_o)
    found = torch.autograd.grad(states, [b, W, U], g_o[None])
    torch.testing.assert_close(found, (expected.b, expected.W, expected.U))


@every_cell
def test_single_precision_differs_by_rounding_alone(kind):
    given = arguments(kind, 20, 40, 6, 30)
    single = [each.detach().float().requires_grad_() for each in given]
    found, expected = fast(kind, *single), fast(kind, *given)
    for one, other in zip(
        (*found, *gradients(found, single)), (*expected, *gradients(expected, given)), strict=True
    ):
        assert one.dtype == torch.float32
        assert (one - other).abs().max() < 5e-6 * max(1.0, float(other.detach().abs().max()))


def test_the_hyperbolic_tangent_is_precise_everywhere():
    """Within a few units of the last place, from the smallest argument to the largest: h = tanh(1 x)."""
    x = torch.cat(
        [torch.logspace(-30, 3, 5000), torch.linspace(0, 12, 5000), torch.tensor([torch.inf])]
    )
    x = torch.cat([x, -x])
    one, nothing = torch.ones(1, 1), torch.zeros(1)
    found = kernels.rnn(x[:, None, None], torch.zeros(len(x), 1), torch.zeros(1, 1), one, nothing)[
        :, 0, 0
    ]
    torch.testing.assert_close(found.double(), x.double().tanh(), rtol=4e-7, atol=0)


def test_the_sigmoid_is_precise_everywhere():
    """h = (1 - z) n + z h_0 with n = 0 and h_0 = 1 is z = sigmoid(x)."""
    x = torch.cat([torch.linspace(-80, 80, 9999), torch.tensor([-torch.inf, torch.inf])])
    U, W, b = torch.tensor([[0.0], [1.0], [0.0]]), torch.zeros(3, 1), torch.zeros(3)
    drive = x.where(x.isfinite(), x.sign() * 3e38)[:, None, None]
    found = kernels.gru(drive, torch.ones(len(x), 1), W, U, b, torch.zeros(1))[:, 0, 0]
    torch.testing.assert_close(
        found.double(), drive[:, 0, 0].double().sigmoid(), rtol=4e-6, atol=1e-36
    )


@every_cell
def test_what_is_not_a_number_is_not_hidden(kind):
    given = [each.detach().float() for each in arguments(kind, 3, 9, 3, 4)]
    given[0][1, 2, 0] = torch.nan
    states = fast(kind, *given)[0]
    assert states[1, 2:].isnan().all()
    assert states[1, :2].isfinite().all()
    assert states[[0, 2]].isfinite().all()


@every_cell
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_row_is_the_same_to_the_bit_whatever_rows_stand_beside_it(kind, dtype):
    given = [each.detach() for each in arguments(kind, 20, 40, 33, 6, dtype=dtype)]
    num = 3 if kind == "lstm" else 2
    together = fast(kind, *given)
    for rows in (slice(0, 1), slice(5, 12), slice(20, 33)):
        alone = fast(kind, *(part[rows] for part in given[:num]), *given[num:])
        assert all(one.equal(other[rows]) for one, other in zip(alone, together, strict=True))


@every_cell
def test_going_back_twice_gives_the_same_gradients(kind):
    given = arguments(kind, 3, 4, 2, 5)
    outputs = fast(kind, *given)
    loss = sum(output.square().sum() for output in outputs)
    first = torch.autograd.grad(loss, given, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(loss, given), first, rtol=0, atol=0)


@every_cell
def test_no_rows_are_no_trouble(kind):
    given = arguments(kind, 3, 4, 0, 5)
    found = fast(kind, *given)
    assert found[0].shape == (0, 5, 4)
    assert all(each.eq(0).all() for each in gradients(found, given))


@every_cell
def test_any_layout_of_the_input_will_do(kind):
    given = arguments(kind, 6, 4, 3, 5)
    torch.testing.assert_close(
        fast(kind, given[0].detach().mT.contiguous().mT, *given[1:]),
        fast(kind, *given),
        rtol=0,
        atol=0,
    )
    every_other = torch.stack([given[0], given[0]], dim=-1)[..., 0]
    torch.testing.assert_close(
        fast(kind, every_other, *given[1:]), fast(kind, *given), rtol=0, atol=0
    )


def layer_of(kind, monkeypatch):
    torch.manual_seed(1)
    layer = Recurrence(kind, 6, 12, name="cell")
    with torch.no_grad():
        layer.b.normal_()
    return layer, lambda on: monkeypatch.setenv("SEQLAB_NATIVE", "1" if on else "0")


def is_native(states):
    """Whether a function of our own stands behind them."""
    return type(states.grad_fn).__module__ == "torch.autograd.function"


@every_cell
def test_a_layer_gives_the_same_with_and_without(kind, monkeypatch):
    layer, native = layer_of(kind, monkeypatch)
    x, state = torch.randn(4, WORTHWHILE, 6, requires_grad=True), layer.start(4)
    results = []
    for on in (True, False):
        native(on)
        states, after = layer(x, state)
        assert is_native(states) == (on and quicker(kind))
        assert after[0].equal(states[:, -1])
        loss = states.square().sum() + sum(part.sum() for part in after)
        results.append((states, *after, *torch.autograd.grad(loss, [x, *layer.parameters()])))
    torch.testing.assert_close(results[0], results[1])


@every_cell
def test_a_few_steps_and_a_listener_go_the_other_way(kind, monkeypatch):
    layer, _ = layer_of(kind, monkeypatch)
    assert not is_native(layer(torch.randn(4, WORTHWHILE - 1, 6), layer.start(4))[0])
    heard = []
    with listening(lambda name, value: heard.append(name) or value):
        layer(torch.randn(4, WORTHWHILE, 6), layer.start(4))
    assert heard.count("cell.h") == WORTHWHILE


@every_cell
def test_reading_at_once_equals_reading_piece_by_piece(kind, monkeypatch):
    """Some pieces long enough for the native scan, some not; the state goes in and comes out, its gradient too."""
    layer, _ = layer_of(kind, monkeypatch)
    x = torch.randn(3, 24, 6, requires_grad=True)
    whole, _ = layer(x, layer.start(3))
    state, pieces = layer.start(3), []
    for piece in x.split([1, 12, 3, 8], dim=1):
        states, state = layer(piece, state)
        pieces.append(states)
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole)
    loss = [states[:, -1].square().sum() for states in (whole, pieces[-1])]
    torch.testing.assert_close(
        *(torch.autograd.grad(each, [x, *layer.parameters()]) for each in loss)
    )


@pytest.mark.parametrize("bidirectional", [False, True])
@every_cell
def test_padded_rows_are_the_same_with_and_without(kind, bidirectional, monkeypatch):
    torch.manual_seed(2)
    described = StackConfig(kind=kind, size=8, layers=2, bidirectional=bidirectional)
    stack = recurrent_stack(6, described, dropout=0.0, name="encoder").double()
    rows = Padded(torch.randn(4, 15, 6, dtype=torch.float64), torch.tensor([15, 9, 1, 0]))
    results = []
    for on in ("1", "0"):
        monkeypatch.setenv("SEQLAB_NATIVE", on)
        states, last = stack.encode(rows)
        loss = states.values.square().sum() + last.square().sum()
        results.append((states.values, last, *torch.autograd.grad(loss, list(stack.parameters()))))
    torch.testing.assert_close(results[0], results[1])
    assert results[0][0][~rows.real].eq(0).all()


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_model_learns_the_same_and_keeps_the_laws(kind, tmp_path, monkeypatch):
    pairs = "".join(f"{a}\t{b}\n" for a, b in reversals(60, seed=1, longest=14))
    (tmp_path / "pairs.tsv").write_text(pairs)
    settings = [
        f"model.{side}.{setting}"
        for side in ("encoder", "decoder")
        for setting in (f"kind={kind}", "size=10")
    ]
    settings += [
        "model.embedding=8",
        "train.steps=5",
        "source.kind=characters",
        "target.kind=characters",
    ]
    trained = {}
    for on in ("1", "0"):
        monkeypatch.setenv("SEQLAB_NATIVE", on)
        options = {"recipe": "seq2seq", "settings": settings, "out": tmp_path / on}
        trained[on] = lab.train("translate", tmp_path / "pairs.tsv", **options).model.bundle.model
    for one, other in zip(*(model.parameters() for model in trained.values()), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    monkeypatch.setenv("SEQLAB_NATIVE", "1")
    model = lab.load(tmp_path / "1")
    kept = list(laws.check(model.bundle.model, model.some_batch()))
    assert len(kept) > 5
    assert all(each.kept for each in kept), kept

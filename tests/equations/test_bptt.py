import pytest
import torch
from torch import nn

from seqlab.equations import bptt

D, H, V, T = 3, 4, 5, 7
LETTERS = ["W", "U", "b", "V", "c"]


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def rnn():
    """x, h0 and the five parameters by their letters, the way `forward` takes them."""
    shapes = {"x": (T, D), "h0": (H,), "W": (H, H), "U": (H, D), "b": (H,), "V": (V, H), "c": (V,)}
    return {
        name: 0.7 * numbers(*shape, seed=seed) for seed, (name, shape) in enumerate(shapes.items())
    }


def loss(o, gold=None):
    """Σ_t L_t with a softmax at each step."""
    gold = torch.arange(len(o)) % V if gold is None else gold
    return nn.functional.cross_entropy(o, gold, reduction="sum")


def explicit(rnn, gradients, **options):
    """The gradients by the equations: autograd sees no more than the step from o to L."""
    h, o = bptt.forward(**rnn)
    o.requires_grad_()
    (g_o,) = torch.autograd.grad(loss(o), o)
    return gradients(rnn["x"], rnn["h0"], h, rnn["W"], rnn["V"], g_o, **options)


def by_autograd(rnn, *, chunk):
    """The same by autograd, the state detached every `chunk` steps."""
    rnn = {name: value.clone().requires_grad_() for name, value in rnn.items()}
    h, outputs = rnn["h0"].detach(), []
    for x in rnn["x"].detach().split(chunk):
        states, o = bptt.forward(**{**rnn, "x": x, "h0": h.detach()})
        h = states[-1]
        outputs.append(o)
    found = torch.autograd.grad(loss(torch.cat(outputs)), [rnn[letter] for letter in LETTERS])
    return dict(zip(LETTERS, found, strict=True))


def test_the_forward_pass_equals_torch(rnn):
    module = nn.RNN(D, H).double()
    module.weight_hh_l0.data, module.weight_ih_l0.data = rnn["W"], rnn["U"]
    module.bias_ih_l0.data, module.bias_hh_l0.data = rnn["b"], torch.zeros_like(rnn["b"])
    expected, _ = module(rnn["x"], rnn["h0"][None])

    h, o = bptt.forward(**rnn)

    torch.testing.assert_close(h, expected)
    torch.testing.assert_close(o, nn.functional.linear(expected, rnn["V"], rnn["c"]))


def test_explicit_bptt_equals_autograd(rnn):
    """E29 to E34."""
    torch.testing.assert_close(explicit(rnn, bptt.gradients)._asdict(), by_autograd(rnn, chunk=T))


@pytest.mark.parametrize("letter", LETTERS)
def test_explicit_bptt_equals_finite_differences(rnn, letter):
    """Central differences along a random direction in the space of one parameter."""
    direction, step = numbers(*rnn[letter].shape, seed=9), 1e-5

    def at(distance):
        return loss(bptt.forward(**{**rnn, letter: rnn[letter] + distance * direction})[1])

    slope = (at(step) - at(-step)) / (2 * step)
    gradient = getattr(explicit(rnn, bptt.gradients), letter)
    torch.testing.assert_close((gradient * direction).sum(), slope, rtol=1e-7, atol=1e-7)


def test_state_gradients_equal_autograd(rnn):
    """E31, state by state: each h_t is the h0 of what comes after it, plus its own output."""
    h, o = bptt.forward(**rnn)
    (g_o,) = torch.autograd.grad(loss(o.requires_grad_()), o)
    g_h = bptt.state_gradients(h, rnn["W"], rnn["V"], g_o)
    gold = torch.arange(T) % V
    for t in range(T):
        h_t = h[t].clone().requires_grad_()
        _, later = bptt.forward(**{**rnn, "x": rnn["x"][t + 1 :], "h0": h_t})
        now = nn.functional.linear(h_t, rnn["V"], rnn["c"])
        (expected,) = torch.autograd.grad(loss(torch.cat([now[None], later]), gold[t:]), h_t)
        torch.testing.assert_close(g_h[t], expected)


@pytest.mark.parametrize("chunk", [1, 2, 3, T, T + 1])
def test_truncated_bptt_equals_autograd_with_detached_state(rnn, chunk):
    """E35."""
    torch.testing.assert_close(
        explicit(rnn, bptt.truncated, chunk=chunk)._asdict(), by_autograd(rnn, chunk=chunk)
    )


def test_truncation_changes_recurrent_gradients_but_not_those_of_the_output(rnn):
    full, cut = explicit(rnn, bptt.gradients), explicit(rnn, bptt.truncated, chunk=2)
    torch.testing.assert_close((cut.c, cut.V), (full.c, full.V))
    assert (cut.W - full.W).norm() > 0.01 * full.W.norm()


@pytest.mark.parametrize("distance", [0, 1, 5])
def test_no_gradient_exceeds_the_bound(distance):
    """E36: ∂h_m/∂h_0 of the tanh RNN, whose slope is at most 1."""
    W, U, b, x = (
        0.9 * numbers(H, H),
        numbers(H, D, seed=1),
        numbers(H, seed=2),
        numbers(distance, D, seed=3),
    )

    def last_state(h0):
        h, _ = bptt.forward(x, h0, W, U, b, torch.zeros(1, H).double(), torch.zeros(1).double())
        return torch.cat([h0[None], h])[-1]

    jacobian = torch.autograd.functional.jacobian(last_state, numbers(H, seed=4))
    assert torch.linalg.matrix_norm(jacobian, ord=2) <= bptt.bound(W, 1.0, distance) * (1 + 1e-9)


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
def test_scaled_orthogonal_matrices_reach_the_bound(scale):
    """C1: for the linear RNN the bound is what happens, so below 1 vanishes and above 1 explodes."""
    W = scale * torch.linalg.qr(numbers(H, H)).Q
    left = torch.linalg.matrix_norm(torch.linalg.matrix_power(W, 10), ord=2)
    torch.testing.assert_close(bptt.bound(W, 1.0, 10), left)
    torch.testing.assert_close(bptt.bound(W, 0.25, 10), left * 0.25**10)


def test_clipping_equals_torch():
    gradients = [numbers(3, 4), numbers(5, seed=1)]
    parameters = [nn.Parameter(torch.zeros_like(g)) for g in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.clone()

    expected_norm = nn.utils.clip_grad_norm_(parameters, 0.5)
    clipped, norm = bptt.clip_by_norm(gradients, 0.5)

    torch.testing.assert_close(norm, expected_norm)
    for ours, parameter in zip(clipped, parameters, strict=True):
        torch.testing.assert_close(
            ours, parameter.grad, rtol=1e-5, atol=0
        )  # torch divides by ‖g‖ + 1e-6
    assert gradients[0].equal(numbers(3, 4))


def test_clipping_keeps_the_direction_of_the_gradient():
    """The slide's code compares the squared norm: (3, 4) has norm 5, not 25."""
    (clipped,), norm = bptt.clip_by_norm([torch.tensor([3.0, 4.0])], 1.0)
    assert norm == 5
    torch.testing.assert_close(clipped, torch.tensor([0.6, 0.8]))


@pytest.mark.parametrize("threshold", [5.0, 24.0])
def test_gradients_below_the_threshold_are_unchanged_bit_for_bit(threshold):
    gradient = torch.tensor([3.0, 4.0])
    (clipped,), _ = bptt.clip_by_norm([gradient], threshold)
    assert clipped.equal(gradient)
    assert clipped is not gradient


@pytest.mark.parametrize("threshold", [0.0, 1.0])
def test_clipping_a_zero_gradient_or_no_gradients(threshold):
    (clipped,), norm = bptt.clip_by_norm([torch.zeros(3)], threshold)
    assert clipped.equal(torch.zeros(3))
    assert norm == 0
    assert bptt.clip_by_norm([], threshold) == ([], 0)


def test_the_expanded_sum_equals_autograd():
    """W9: h_t = W_hx x_t + W_hh h_{t-1}, y_t = W_hy h_t, L = mean of losses."""
    x, target, h0 = numbers(T, D), numbers(T, 2, seed=1), numbers(H, seed=2)
    W_hx, W_hh, W_hy = (
        numbers(*shape, seed=3).requires_grad_() for shape in [(H, D), (H, H), (2, H)]
    )

    states = [h0]
    for x_t in x:
        states.append(W_hx @ x_t + W_hh @ states[-1])
    h = torch.stack(states)
    losses = ((h[1:] @ W_hy.mT - target) ** 2).sum(-1)
    expected = torch.autograd.grad(losses.mean(), [W_hx, W_hh])

    with torch.no_grad():
        g_h = 2 / T * (h[1:] @ W_hy.mT - target) @ W_hy  # what each loss asks of its own state
        by_input = torch.einsum("ta,tabd->bd", g_h, bptt.linear_rnn_gradient(W_hh, x))
        by_state = torch.einsum("ta,tabd->bd", g_h, bptt.linear_rnn_gradient(W_hh, h[:-1]))

    torch.testing.assert_close((by_input, by_state), expected)

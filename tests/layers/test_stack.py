from itertools import product
from typing import get_args

import pytest
import torch
from torch import nn

from seqlab.equations import recurrent
from seqlab.layers.inputs import Embedding
from seqlab.layers.stack import BidirectionalStack, CausalStack, recurrent_stack
from seqlab.layers.tap import listening
from seqlab.padded import Padded
from seqlab.randomness import noise
from seqlab.recipe import Cell, Connection, StackConfig

D, H, B, T = 3, 4, 4, 5
CELLS, CONNECTIONS = get_args(Cell), get_args(Connection)
every_stack = pytest.mark.parametrize(("cell", "connection"), list(product(CELLS, CONNECTIONS)))


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def stack(cell="lstm", connection="plain", *, layers=2, bidirectional=False, dropout=0.0):
    settings = StackConfig(
        kind=cell, size=H, layers=layers, bidirectional=bidirectional, connection=connection
    )
    made = recurrent_stack(D, settings, dropout=dropout, name="encoder").double()
    for seed, parameter in enumerate(made.parameters()):
        parameter.data = 0.5 * numbers(*parameter.shape, seed=seed)
    return made


@pytest.fixture
def sources():
    """Rows of unequal length, one of them empty, with what is not a number at the pads."""
    padded = Padded(numbers(B, T, D, seed=50), torch.tensor([3, 5, 0, 1]))
    return padded.with_values(padded.values.masked_fill(~padded.real[..., None], 99.0))


def copy_from_torch(layers, theirs):
    """Our weights from torch's: its two biases are one here."""
    for depth, recurrence in layers:
        recurrence.U.data = getattr(theirs, f"weight_ih_{depth}").data
        recurrence.W.data = getattr(theirs, f"weight_hh_{depth}").data
        recurrence.b.data = (
            getattr(theirs, f"bias_ih_{depth}") + getattr(theirs, f"bias_hh_{depth}")
        ).data


def test_a_causal_stack_is_torchs():
    theirs = nn.LSTM(D, H, num_layers=3, batch_first=True).double()
    ours = stack(layers=3)
    copy_from_torch(
        [(f"l{depth}", layer.recurrence) for depth, layer in enumerate(ours.layers)], theirs
    )
    x, start = numbers(B, T, D, seed=50), [numbers(B, H, seed=60 + part) for part in range(6)]

    expected, (h, c) = theirs(x, (torch.stack(start[::2]), torch.stack(start[1::2])))
    found, state = ours(x, tuple(start))

    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.stack(state[::2]), h)
    torch.testing.assert_close(torch.stack(state[1::2]), c)


def test_a_bidirectional_stack_is_torchs_over_packed_rows(sources):
    theirs = nn.LSTM(D, H, num_layers=2, batch_first=True, bidirectional=True).double()
    ours = stack(bidirectional=True)
    names = [(f"l{depth}{way}", depth, way) for depth in range(2) for way in ("", "_reverse")]
    copy_from_torch(
        [(name, getattr(ours.layers[d], "back" if way else "ahead")) for name, d, way in names],
        theirs,
    )
    full = sources.lengths > 0  # torch does not pack an empty row
    packed = nn.utils.rnn.pack_padded_sequence(
        sources.values[full], sources.lengths[full], batch_first=True, enforce_sorted=False
    )

    out, (h, _) = theirs(packed)
    expected, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
    states, summary = ours.encode(sources)

    torch.testing.assert_close(states.values[full], expected)
    torch.testing.assert_close(summary[full], torch.cat([h[-2], h[-1]], dim=-1))
    assert states.values[~full].eq(0).all()
    assert summary[~full].eq(0).all()


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_layers_are_joined_by_their_connection(connection):
    """E20 with E26 to E28 between the layers, by hand."""
    ours, x = stack("rnn", connection), numbers(B, T, D, seed=50)
    found, _ = ours(x, ours.start(B))

    for layer in ours.layers:
        h = [torch.zeros(B, H, dtype=torch.float64)]
        for x_t in x.unbind(1):
            h.append(
                recurrent.rnn_step(
                    x_t, h[-1], layer.recurrence.W, layer.recurrence.U, layer.recurrence.b
                )
            )
        hx = torch.stack(h[1:], dim=1)
        joined = layer.connection
        if joined.project is not None:
            x = x @ joined.project.weight.mT
        if connection == "highway":
            x = recurrent.highway(x, hx, joined.transform(x).sigmoid())
        else:
            x = {
                "plain": lambda x, hx: hx,
                "residual": recurrent.residual,
                "dense": recurrent.dense,
            }[connection](x, hx)

    torch.testing.assert_close(found, x)


def test_layers_stand_on_each_other_as_the_equation_says():
    """E20, which has no bias."""
    ours, x = stack("rnn", layers=3), numbers(B, T, D, seed=50)
    layers = [layer.recurrence for layer in ours.layers]
    for layer in layers:
        layer.b.data.zero_()
    h = tuple(numbers(B, H, seed=60 + depth) for depth in range(3))
    found, after = ours(x, h)

    for step in range(T):
        h = recurrent.stacked_step(
            x[:, step], h, [layer.U for layer in layers], [layer.W for layer in layers]
        )
        torch.testing.assert_close(found[:, step], h[-1])
    torch.testing.assert_close(after, h)


@every_stack
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_stack_has_the_sizes_it_announces(cell, connection, bidirectional, sources):
    ours = stack(cell, connection, bidirectional=bidirectional)
    assert isinstance(ours, BidirectionalStack if bidirectional else CausalStack)
    states, summary = ours.encode(sources)
    assert states.values.shape == (B, T, ours.output_size)
    assert summary.shape == (B, ours.summary_size)
    width = 2 * H if bidirectional else H
    assert ours.output_size == (D + 2 * width if connection == "dense" else width)
    assert states.values[~states.real].eq(0).all()


@every_stack
def test_a_state_carried_on_equals_one_long_reading(cell, connection):
    ours, x = stack(cell, connection), numbers(B, T, D, seed=50)
    start = tuple(numbers(B, size, seed=60) for size in ours.state_sizes)
    whole, after = ours(x, start)

    state, pieces = start, []
    for piece in x.split([2, 0, 1, 2], dim=1):
        out, state = ours(piece, state)
        pieces.append(out)

    torch.testing.assert_close(torch.cat(pieces, dim=1), whole)
    torch.testing.assert_close(state, after)


def test_a_causal_stack_does_not_see_the_future_and_a_bidirectional_one_does():
    x = Padded(numbers(1, T, D, seed=50), torch.tensor([T]))
    changed = x.with_values(torch.cat([x.values[:, :3], x.values[:, 3:] + 1], dim=1))
    for bidirectional in (False, True):
        ours = stack(bidirectional=bidirectional)
        past, other_past = (ours.encode(rows)[0].values[:, :3] for rows in (x, changed))
        assert past.equal(other_past) != bidirectional


def test_the_summary_of_a_causal_stack_is_its_last_real_output(sources):
    states, summary = stack().encode(sources)
    assert summary.equal(states.last())
    assert summary[2].eq(0).all()


@pytest.mark.parametrize("bidirectional", [False, True])
def test_sources_of_no_length_at_all_are_encoded_as_zeros(bidirectional):
    empty = Padded(torch.zeros(2, 0, D, dtype=torch.float64), torch.tensor([0, 0]))
    states, summary = stack("gru", "highway", bidirectional=bidirectional).encode(empty)
    assert states.values.shape[:2] == (2, 0)
    assert summary.eq(0).all()


def test_taps_are_named_by_direction_and_depth(sources):
    heard = set()
    with listening(lambda name, value: heard.add(name) or value):
        stack("rnn", bidirectional=True).encode(sources)
        stack("rnn", "highway").encode(sources)
    ways = ("", "forward.", "backward.")
    both = {
        f"encoder.{depth}.{way}{what}"
        for depth in range(2)
        for way in ways
        for what in ("enters", "h")
    }
    assert heard == both | {f"encoder.{depth}.transform" for depth in range(2)}


@pytest.mark.parametrize("bidirectional", [False, True])
def test_dropout_acts_after_each_layer_within_a_noise_block(sources, bidirectional):
    ours = stack("rnn", layers=2, bidirectional=bidirectional, dropout=0.5)
    quiet, _ = ours.encode(sources)
    with noise(1, 1, torch.arange(B)):
        noisy, _ = ours.encode(sources)
    real = noisy.values[noisy.real]
    assert 0.2 < real.eq(0).double().mean() < 0.8
    kept = real != 0
    assert not torch.allclose(
        real[kept], 2 * quiet.values[quiet.real][kept]
    )  # the layer below was noisy too


def test_an_embedding_looks_up_its_rows():
    embedding = Embedding(7, D, name="encoder")
    ids = torch.tensor([[1, 6], [0, 1]])
    seen = {}
    with listening(lambda name, value: seen.setdefault(name, value)):
        found = embedding(ids)
    assert found.equal(embedding.weight[ids])
    assert seen["encoder.embedding"] is found

"""Recurrence and self-attention as graphs of operations: what must wait (C11), and how far it is (C20)."""

import torch
from torch import Tensor
from torch.autograd.graph import Node

from seqlab.equations.attention import self_attention
from seqlab.equations.recurrent import rnn_step
from seqlab.layers.recurrence import Recurrence
from seqlab.layers.transformer import MultiHeadAttention
from seqlab_claims.claim import Finding
from seqlab_claims.settings import Settings, lines, means, timed


def last_outputs(length: int) -> tuple[dict[str, Tensor], list[Tensor]]:
    """The last output of a tanh network (E17) and of self-attention (E46), and the inputs of both."""
    inputs = [torch.randn(1, 4, requires_grad=True) for _ in range(length)]
    square = torch.ones(4, 4)
    h = torch.zeros(1, 4)
    for x in inputs:
        h = rnn_step(x, h, square, square, torch.zeros(4))
    visible = torch.ones(1, 1, length, dtype=torch.bool)
    outputs, _ = self_attention(torch.stack(inputs, dim=1), square, square, square, visible)
    return {"recurrent": h, "self-attention": outputs[:, -1]}, inputs


def shortest(output: Tensor, leaf: Tensor) -> int:
    """Operations on the shortest way from an input to an output, in the graph that autograd recorded."""
    level, visited, steps = {output.grad_fn}, set[Node | None](), 0
    while not any(getattr(node, "variable", None) is leaf for node in level):
        visited |= level
        level = {
            node for each in level if each is not None for node, _ in each.next_functions
        } - visited
        steps += 1
    return steps


def longest(output: Tensor) -> int:
    """Operations of which each waits for the one before: what no number of processors can shorten."""
    depth, stack = dict[Node | None, int]({None: 0}), [output.grad_fn]
    while stack:
        below = [node for node, _ in stack[-1].next_functions] if stack[-1] is not None else []
        waiting = [node for node in below if node not in depth]
        stack += waiting
        if not waiting:
            depth[stack.pop()] = 1 + max((depth[node] for node in below), default=0)
    return depth[output.grad_fn]


def parallel(at: Settings) -> Finding:
    """C11: the time of a layer, and the longest chain of operations in it."""
    sizes = at.sizes("C11")
    lengths = sizes["lengths"]
    size = 64
    layer, heads = (
        Recurrence("lstm", size, size, name=""),
        MultiHeadAttention(size, num_heads=4, name=""),
    )

    def attend(x: Tensor) -> Tensor:
        q, k, v = heads.project_all(x)
        return heads(q, (k, v), None)

    chains: dict[str, list[list[float]]] = {
        "recurrent, in a row": [],
        "self-attention, in a row": [],
    }
    taken: dict[str, list[list[float]]] = {"recurrent, ms": [], "self-attention, ms": []}
    for length in lengths:
        x = torch.randn(1, length, size)
        with torch.inference_mode():
            works = [lambda x=x: layer(x, layer.start(1)), lambda x=x: attend(x)]
            seconds = timed(works, rounds=sizes["rounds"])
        for each, output in zip(chains.values(), last_outputs(length)[0].values(), strict=True):
            each.append([float(longest(output))])
        for each, one in zip(taken.values(), seconds, strict=True):
            each.append([1000 * one])
    grown = {name: rows[-1][0] / rows[0][0] for name, rows in (chains | taken).items()}
    ratio, places = lengths[-1] / lengths[0], list(map(str, lengths))
    return Finding(
        {
            "time": [grown["recurrent, ms"] / ratio],
            "chain": [grown["recurrent, in a row"] / ratio],
            "attention": [grown["self-attention, in a row"]],
        },
        [
            means(
                "operations in a row, and CPU time, for one sequence by its length",
                places,
                chains | taken,
            )
        ],
        lines("CPU time for one sequence", ("length", "ms"), places, taken),
    )


def distances(at: Settings) -> Finding:
    """C20: the shortest way between two positions."""
    apart = at.sizes("C20")["distances"]
    outputs, inputs = last_outputs(apart[-1] + 1)
    results = {
        name: [[float(shortest(out, inputs[-1 - n]))] for n in apart]
        for name, out in outputs.items()
    }
    added = {name: rows[-1][0] - rows[0][0] for name, rows in results.items()}
    return Finding(
        {
            "recurrent": [added["recurrent"] / (apart[-1] - apart[0])],
            "attention": [added["self-attention"]],
        },
        [means("operations between an output and an input, by their distance", apart, results)],
        lines(
            "The shortest path between two positions", ("distance", "operations"), apart, results
        ),
    )

"""Checks whether a Transformer has a counterpart in other programs, and its position table, for all exports."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqlab.bundle import Bundle
from seqlab.equations.attention import sinusoidal_positions
from seqlab.errors import UsageError
from seqlab.layers.inputs import Positions, TokenInputs
from seqlab.recipe import TransformerConfig


def refuse(to: str, reason: str) -> UsageError:
    """Return the error for a model that a format does not support."""
    return UsageError(
        f"this model has no counterpart in {to}: {reason}",
        hint="its own directory works with `seqlab predict` and `seqlab serve`; nothing was written.",
    )


def transformer(bundle: Bundle, side: str, to: str) -> TransformerConfig:
    """Return the settings of the encoder or decoder; raise an error if it is not a standard Transformer."""
    stack = getattr(bundle.recipe.model, side)
    model = bundle.model
    if not isinstance(stack, TransformerConfig) or stack.kind != "transformer":
        raise refuse(to, f"its {side} is of kind '{stack.kind}', not a Transformer")
    unsupported = {
        "rotary positions": stack.positions == "rotary",
        "batch norms": stack.normalise == "batch",
        "a window": stack.window is not None,
        "a causal encoder": stack.causal,
        "inputs that are not tokens": side == "encoder"
        and not isinstance(model.encoder.inputs, TokenInputs),
    }
    for feature, is_used in unsupported.items():
        if is_used:
            raise refuse(to, f"it has {feature}")
    return stack


def translator(bundle: Bundle, to: str) -> tuple[TransformerConfig, TransformerConfig]:
    """Return the settings of encoder and decoder of a translator; raise an error if they differ."""
    if bundle.recipe.model.pointer:
        raise refuse(to, "it copies tokens of its source ('model.pointer')")
    encoder = transformer(bundle, "encoder", to)
    decoder = transformer(bundle, "decoder", to)
    for setting in ("size", "norm", "activation", "scale", "epsilon"):
        if getattr(encoder, setting) != getattr(decoder, setting):
            raise refuse(to, f"its encoder and its decoder differ in '{setting}'")
    if encoder.entrance_norm or decoder.entrance_norm or encoder.segments:
        raise refuse(to, "it has a norm on its embeddings, or segments")
    return encoder, decoder


def position_table(part: nn.Module, *, most: int = 0) -> Float[Tensor, "P D"]:
    """Return the position embeddings as a table; sinusoids for the longest text of the recipe, or `most` positions."""
    positions = next(module for module in part.modules() if isinstance(module, Positions))
    if positions.table is not None:
        return positions.table.detach()
    table = sinusoidal_positions(max(most, positions.most), positions.size)
    return table if positions.kind == "sinusoidal" else torch.zeros_like(table)

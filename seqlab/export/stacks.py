"""Transformers as other programs know them: what they must not be, and the parts that are written in another way."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqlab.bundle import Bundle
from seqlab.equations.attention import sinusoidal_positions
from seqlab.errors import UsageError
from seqlab.layers.inputs import Positions, TokenInputs
from seqlab.recipe import TransformerConfig


def refuse(to: str, reason: str) -> UsageError:
    """Why a model cannot be written in a format."""
    return UsageError(
        f"this model has no counterpart in {to}: {reason}",
        hint="its own directory works with `seqlab predict` and `seqlab serve`; nothing was written.",
    )


def transformer(bundle: Bundle, side: str, to: str) -> TransformerConfig:
    """The settings of the encoder or the decoder, where they are those of a Transformer as everybody builds it."""
    stack, model = getattr(bundle.recipe.model, side), bundle.model
    if not isinstance(stack, TransformerConfig) or stack.kind != "transformer":
        raise refuse(to, f"its {side} is of kind '{stack.kind}', not a Transformer")
    odd = {
        "rotary positions": stack.positions == "rotary",
        "batch norms": stack.normalise == "batch",
        "a window": stack.window is not None,
        "a causal encoder": stack.causal,
        "inputs that are not tokens": side == "encoder"
        and not isinstance(model.encoder.inputs, TokenInputs),
    }
    for what, is_so in odd.items():
        if is_so:
            raise refuse(to, f"it has {what}")
    return stack


def translator(bundle: Bundle, to: str) -> tuple[TransformerConfig, TransformerConfig]:
    """Encoder and decoder of a translator whose two sides are built alike."""
    if bundle.recipe.model.pointer:
        raise refuse(to, "it copies tokens of its source ('model.pointer')")
    encoder, decoder = transformer(bundle, "encoder", to), transformer(bundle, "decoder", to)
    for what in ("size", "norm", "activation", "scale", "epsilon"):
        if getattr(encoder, what) != getattr(decoder, what):
            raise refuse(to, f"its encoder and its decoder differ in '{what}'")
    if encoder.entrance_norm or decoder.entrance_norm or encoder.segments:
        raise refuse(to, "it has a norm on its embeddings, or segments")
    return encoder, decoder


def position_table(part: nn.Module, *, most: int = 0) -> Float[Tensor, "P D"]:
    """What is added at each position, written out. Sinusoids are a table too: as long as the recipe's longest text, or
    as `most`."""
    positions = next(module for module in part.modules() if isinstance(module, Positions))
    if positions.table is not None:
        return positions.table.detach()
    table = sinusoidal_positions(max(most, positions.most), positions.size)
    return table if positions.kind == "sinusoidal" else torch.zeros_like(table)

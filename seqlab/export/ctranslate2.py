"""Export of a translator to CTranslate2: `ctranslate2.Translator(folder).translate_batch([tokens])`.

`tokens_of` gives the tokens. Tokens that a search never writes get a bias that excludes them there, too.
"""

from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from seqlab.bundle import Bundle
from seqlab.errors import UsageError
from seqlab.export.stacks import position_table, refuse, translator
from seqlab.tasks.text_generation import NEVER, target_limits
from seqlab.text import EOS, SOS, UNK, Tokenizer

TO = "CTranslate2"
EXCLUDED_BIAS = -1e4  # of tokens that are never written


def write(bundle: Bundle, folder: Path) -> None:
    """Write model.bin, config.json and the vocabularies."""
    try:
        from ctranslate2 import specs
    except ImportError:
        raise UsageError(
            "the package ctranslate2 is not installed", hint="pip install ctranslate2"
        ) from None
    if set(bundle.codec.tokenizers) != {"source", "target"}:
        raise refuse(
            TO, f"it is a '{bundle.recipe.task}' model, and only translators of text are supported"
        )
    encoder, decoder = translator(bundle, TO)
    model = bundle.model
    kinds = {"relu": "RELU", "gelu": "GELU", "gelu-tanh": "GELUTanh"}
    like = {
        "pre_norm": encoder.norm == "pre",
        "activation": getattr(specs.Activation, kinds[encoder.activation]),
    }
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(encoder.layers, encoder.heads, **like),
        specs.TransformerDecoderSpec(decoder.layers, decoder.heads, **like),
    )
    spec.encoder.embeddings[0].weight = _numbers(model.encoder.inputs.embedding.weight)
    spec.decoder.embeddings.weight = _numbers(model.decoder.embedding.weight)
    _linear(
        spec.decoder.projection, model.decoder.head.output.weight, model.decoder.head.output.bias
    )
    spec.decoder.projection.bias[list(NEVER)] = EXCLUDED_BIAS
    most = target_limits(bundle, bundle.recipe.decode).most
    for side, part, longest in (
        (spec.encoder, model.encoder, 0),
        (spec.decoder, model.decoder, most),
    ):
        side.scale_embeddings = encoder.scale
        side.position_encodings.encodings = _numbers(position_table(part, most=longest))
        if part.norm is not None:
            _norm(side.layer_norm, part.norm)
        for theirs, ours in zip(side.layer, part.blocks, strict=True):
            _block(theirs, ours)
    spec.register_source_vocabulary(tokens_of(bundle.codec.source_tokenizer))
    spec.register_target_vocabulary(targets := tokens_of(bundle.codec.target_tokenizer))
    spec.config.bos_token = spec.config.decoder_start_token = targets[SOS]
    spec.config.eos_token, spec.config.unk_token = targets[EOS], targets[UNK]
    spec.config.add_source_bos = spec.config.add_source_eos = False
    spec.config.layer_norm_epsilon = encoder.epsilon
    spec.validate()
    spec.optimize()
    folder.mkdir(parents=True)
    spec.save(str(folder))


def tokens_of(tokenizer: Tokenizer) -> list[str]:
    """Return a unique token for each id; for byte pairs, those of the `tokenizers` library."""
    ids = tokenizer.to_json()["library"]["model"]["vocab"] if tokenizer.kind == "bpe" else None
    return list(tokenizer.vocabulary) if ids is None else sorted(ids, key=ids.__getitem__)


def _block(theirs: Any, ours: Any) -> None:
    _norm(theirs.self_attention.layer_norm, ours.first.norm)
    _linear(theirs.self_attention.linear[0], *ours.attention.query_key_value.parameters())
    _linear(theirs.self_attention.linear[1], *ours.attention.mix.parameters())
    if hasattr(theirs, "attention"):
        weight, bias = ours.cross.query_key_value.parameters()
        size = weight.shape[1]
        _norm(theirs.attention.layer_norm, ours.third.norm)
        _linear(theirs.attention.linear[0], weight[:size], bias[:size])
        _linear(theirs.attention.linear[1], weight[size:], bias[size:])
        _linear(theirs.attention.linear[2], *ours.cross.mix.parameters())
    _norm(theirs.ffn.layer_norm, ours.second.norm)
    _linear(theirs.ffn.linear_0, *ours.feed_forward.widen.parameters())
    _linear(theirs.ffn.linear_1, *ours.feed_forward.narrow.parameters())


def _linear(theirs: Any, weight: Tensor, bias: Tensor) -> None:
    theirs.weight, theirs.bias = _numbers(weight), _numbers(bias)


def _norm(theirs: Any, ours: Any) -> None:
    theirs.gamma, theirs.beta = _numbers(ours.gain), _numbers(ours.bias)


def _numbers(tensor: Tensor) -> np.ndarray:
    return tensor.detach().numpy().copy()

"""Export of a model as a Hugging Face directory: config.json, model.safetensors, tokenizer.json.

encoders with the norm after the sum and on the embeddings   BERT
encoders with the norm before                                Megatron-BERT
translators with the norm before, or after                   Pegasus, Marian
"""

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Library
from torch import Tensor, nn

from seqlab.bundle import Bundle
from seqlab.export.stacks import position_table, refuse, transformer, translator
from seqlab.huggingface_import import ACTIVATIONS, LAYERS, their_name
from seqlab.models.classifier import Tagger
from seqlab.models.masked import MaskedLanguageModel
from seqlab.models.seq2seq import Seq2Seq
from seqlab.tasks.text_generation import NEVER, target_limits
from seqlab.text import EOS, MASK, PAD, SEP, SOS, SPECIALS, UNK, Tokenizer
from seqlab.text.wordpiece import INSIDE, LONGEST_WORD, WordPieceTokenizer

TO = "Hugging Face"
NAMES = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
OWN = {name: name for name in SPECIALS}
OF_BERT = OWN | {SPECIALS[PAD]: "[PAD]", SPECIALS[UNK]: "[UNK]", SPECIALS[SOS]: "[CLS]"}
ROLES = {
    "pad_token": PAD,
    "unk_token": UNK,
    "bos_token": SOS,
    "eos_token": EOS,
    "sep_token": SEP,
    "mask_token": MASK,
}
# layers whose names differ from those of BERT
MEGATRON = {
    "encoder.blocks.#.first.norm": "encoder.layer.#.attention.ln",
    "encoder.blocks.#.second.norm": "encoder.layer.#.ln",
    "encoder.norm": "encoder.ln",
}
# our layers and those of Pegasus and Marian, in the encoder or the decoder
SIDE = {
    "blocks.#.attention.query_key_value": "layers.#.self_attn",
    "blocks.#.attention.mix": "layers.#.self_attn.out_proj",
    "blocks.#.first.norm": "layers.#.self_attn_layer_norm",
    "blocks.#.cross.query_key_value": "layers.#.encoder_attn",
    "blocks.#.cross.mix": "layers.#.encoder_attn.out_proj",
    "blocks.#.third.norm": "layers.#.encoder_attn_layer_norm",
    "blocks.#.feed_forward.widen": "layers.#.fc1",
    "blocks.#.feed_forward.narrow": "layers.#.fc2",
    "blocks.#.second.norm": "layers.#.final_layer_norm",
    "norm": "layer_norm",
}
Table = dict[str, Any]
# the config, the weights, and the names of special tokens
Parts = tuple[Table, dict[str, Tensor], dict[str, str]]


def write(bundle: Bundle, folder: Path) -> None:
    """Write the directory; models without a counterpart are refused before anything is written."""
    writes = "target" in bundle.codec.tokenizers
    if "source" not in bundle.codec.tokenizers or not isinstance(
        bundle.model, MaskedLanguageModel | Tagger | Seq2Seq
    ):
        raise refuse(TO, f"it has no counterpart of the output layers of a '{bundle.recipe.name}'")
    config, weights, names = (_translator if writes else _encoder)(bundle)
    library = _library(bundle, bundle.codec.source_tokenizer, names)
    called = {role: names[SPECIALS[index]] for role, index in ROLES.items()}
    files = {
        "config.json": config | {"vocab_size": library.get_vocab_size(), "dtype": "float32"},
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", **called},
    }
    if writes:
        files["generation_config.json"] = _generation(bundle)
    folder.mkdir(parents=True)
    library.save(str(folder / "tokenizer.json"))
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", "utf-8")
    tensors = {name: weight.detach().contiguous().clone() for name, weight in weights.items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def _encoder(bundle: Bundle) -> Parts:
    """Return BERT, or Megatron-BERT; of a masked model only the encoder, because their heads have one layer more."""
    stack = transformer(bundle, "encoder", TO)
    labels = getattr(bundle.codec.target, "labels", None)
    post = stack.norm == "post"
    if post != stack.entrance_norm:
        raise refuse(
            TO, "it has a norm after its residual sums but none on its embeddings, or the reverse"
        )
    layers = {
        ours: f"bert.{theirs}" for ours, theirs in (LAYERS if post else LAYERS | MEGATRON).items()
    }
    layers["head.output"] = "classifier"
    renamed = _renamed(bundle.model, layers, ("query", "key", "value"))
    weights = {
        name: weight
        for name, weight in renamed.items()
        if labels or not name.startswith("classifier")
    }
    words, places, types = (
        f"bert.embeddings.{name}_embeddings.weight" for name in ("word", "position", "token_type")
    )
    weights[words] = weights[words] * (math.sqrt(stack.size) if stack.scale else 1.0)
    weights[places] = position_table(bundle.model.encoder)
    weights.setdefault(types, torch.zeros(1, stack.size))
    family = ("Bert" if post else "MegatronBert") + (
        "Model" if labels is None else "ForTokenClassification"
    )
    config: Table = {
        "model_type": "bert" if post else "megatron-bert",
        "architectures": [family],
        "pad_token_id": PAD,
        "hidden_size": stack.size,
        "num_hidden_layers": stack.layers,
        "num_attention_heads": stack.heads,
        "intermediate_size": stack.inner,
        "hidden_act": NAMES[stack.activation],
        "layer_norm_eps": stack.epsilon,
        "max_position_embeddings": len(weights[places]),
        "type_vocab_size": len(weights[types]),
        "hidden_dropout_prob": bundle.recipe.model.dropout,
        "attention_probs_dropout_prob": 0.0,
    }
    if labels is not None:
        config["id2label"] = dict(enumerate(labels.names))
    return config, weights, OF_BERT


def _translator(bundle: Bundle) -> Parts:
    """Return Pegasus or Marian: shared embeddings, a bias on the logits, and any table of positions."""
    encoder, decoder = translator(bundle, TO)
    model = bundle.model
    if not (bundle.recipe.shared and bundle.recipe.model.tie):
        raise refuse(
            TO, "source, target and output do not share one vocabulary and one embedding table"
        )
    if encoder.epsilon != 1e-5:
        raise refuse(TO, f"its norms add {encoder.epsilon} to the variance, and theirs 1e-05")
    layers = {
        f"{s}.{ours}": f"model.{s}.{theirs}"
        for s in ("encoder", "decoder")
        for ours, theirs in SIDE.items()
    }
    layers |= {"encoder.inputs.embedding": "model.shared", "decoder.embedding": "model.shared"}
    weights = _renamed(model, layers, ("q_proj", "k_proj", "v_proj"))
    weights["final_logits_bias"] = model.decoder.head.output.bias[None]
    most = target_limits(bundle, bundle.recipe.decode).most
    tables = {
        "encoder": position_table(model.encoder),
        "decoder": position_table(model.decoder, most=most),
    }
    most = max(map(len, tables.values()))
    for side, table in tables.items():
        weights[f"model.{side}.embed_positions.weight"] = nn.functional.pad(
            table, (0, 0, 0, most - len(table))
        )
    pre = encoder.norm == "pre"
    config = {
        "model_type": "pegasus" if pre else "marian",
        "architectures": ["PegasusForConditionalGeneration" if pre else "MarianMTModel"],
        "tie_word_embeddings": True,
        "d_model": encoder.size,
        "max_position_embeddings": most,
        "scale_embedding": encoder.scale,
        "activation_function": NAMES[encoder.activation],
        "dropout": bundle.recipe.model.dropout,
        "pad_token_id": PAD,
        "bos_token_id": SOS,
        "eos_token_id": EOS,
        "forced_eos_token_id": None,
    }
    for side, stack in (("encoder", encoder), ("decoder", decoder)):
        config[f"{side}_layers"] = stack.layers
        config[f"{side}_attention_heads"] = stack.heads
        config[f"{side}_ffn_dim"] = stack.inner
    return config, weights, OWN


def _generation(bundle: Bundle) -> Table:
    """Return the settings of their `generate` for [decode] of the recipe."""
    decode = bundle.recipe.decode
    return {
        "decoder_start_token_id": SOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
        "max_new_tokens": target_limits(bundle, decode).most,
        "suppress_tokens": list(NEVER),
        "num_beams": decode.beam if decode.method == "beam" else 1,
        "length_penalty": decode.length_penalty,
        "do_sample": decode.method == "sample",
    }


def _renamed(model: nn.Module, layers: dict[str, str], parts: tuple[str, ...]) -> dict[str, Tensor]:
    """Return our parameters by their names; queries, keys and values become three `parts`."""
    weights: dict[str, Tensor] = {}
    for name, weight in model.named_parameters():
        owner, theirs, part = their_name(name, layers)
        if theirs and owner.endswith("query_key_value"):
            weights |= {
                f"{theirs}.{each}.{part}": w for each, w in zip(parts, weight.chunk(3), strict=True)
            }
        elif theirs:
            weights[f"{theirs}.{part}"] = weight
    return weights


def _library(bundle: Bundle, tokenizer: Tokenizer, names: dict[str, str]) -> Library:
    """Return our tokenizer as one of the `tokenizers` library, with the special tokens of the model family."""
    settings = tokenizer.normaliser
    if tokenizer.kind not in ("bpe", "wordpiece") or settings.letters_only:
        what = (
            "letters only" if settings.letters_only else f"a tokenizer of kind '{tokenizer.kind}'"
        )
        raise refuse(TO, f"it reads {what}, which their tokenizer.json does not support")
    form = [] if settings.form == "none" else [getattr(normalizers, settings.form)()]
    steps = [*form, *([normalizers.Lowercase(), *form] if settings.lower else [])]
    if isinstance(tokenizer, WordPieceTokenizer):
        ids = {names.get(piece, piece): index for index, piece in enumerate(tokenizer.vocabulary)}
        library = Library(
            models.WordPiece(
                ids, unk_token=names[SPECIALS[UNK]], max_input_chars_per_word=LONGEST_WORD
            )
        )
        flags = {"clean_text": tokenizer.clean, "handle_chinese_chars": tokenizer.space_ideographs}
        flags |= {"strip_accents": tokenizer.strip_accents, "lowercase": settings.lower}
        steps = [*form, normalizers.BertNormalizer(**flags)]
        library.pre_tokenizer, library.decoder = (
            pre_tokenizers.BertPreTokenizer(),
            decoders.WordPiece(prefix=INSIDE),
        )
    else:
        stored = tokenizer.to_json()["library"]
        model = stored["model"]
        model["vocab"] = {names.get(piece, piece): index for piece, index in model["vocab"].items()}
        library = Library.from_str(json.dumps(stored))
    if steps:
        library.normalizer = steps[0] if len(steps) == 1 else normalizers.Sequence(steps)
    if getattr(bundle.codec.source, "markers", False):
        library.add_special_tokens(
            [AddedToken(SPECIALS[i], lstrip=True, normalized=False) for i in (SEP, MASK)]
        )
    if getattr(bundle.codec.source, "frame", False):
        first, end = names[SPECIALS[SOS]], names[SPECIALS[SEP]]
        frame = {"single": f"{first} $A {end}", "pair": f"{first} $A {end} $B:1 {end}:1"}
        library.post_processor = processors.TemplateProcessing(
            **frame, special_tokens=[(first, SOS), (end, SEP)]
        )
    return library

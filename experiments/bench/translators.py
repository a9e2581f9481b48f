"""The same random translator in three libraries, each in a worker process that decodes on request."""

import json
import sys
import time
from collections.abc import Callable
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from seqlab.decode.beam import Beam, beam_search
from seqlab.decode.generate import Greedy, Limits, generate
from seqlab.equations.attention import sinusoidal_positions
from seqlab.layers.inputs import Embedding, Entrance, TokenInputs
from seqlab.layers.linear import Head, round_to_bytes
from seqlab.layers.transformer import MultiHeadAttention
from seqlab.models.seq2seq import Seq2Seq
from seqlab.models.transformer import TransformerDecoder, TransformerEncoder
from seqlab.padded import Padded
from seqlab.recipe import TransformerConfig
from seqlab.text import EOS, PAD, SOS

SHAPES = {
    "small": TransformerConfig(size=256, layers=3, heads=4, feed_forward=1024, norm="post"),
    "base": TransformerConfig(size=512, layers=6, heads=8, feed_forward=2048, norm="post"),
}
VOCABULARY, LONGEST, LENGTH = (
    8000,
    20,
    24,
)  # tokens there are, of the longest source, of every output
ENOUGH = 0.8  # seconds of decoding after which a time is believed

Translate = Callable[[list[list[int]], int], list[list[int]]]
"""Sources and the width of the beam (1: greedy) to outputs of LENGTH tokens."""


def run_worker() -> None:
    """Main function of a worker: build the model named by the first argument, then time each cell read from stdin."""
    order = json.loads(sys.argv[1])
    torch.set_num_threads(order["threads"])
    with torch.inference_mode(), TemporaryDirectory() as folder:
        translate = SIDES[order["side"]](random_model(order["shape"]), order, folder)
        for line in sys.stdin:
            rows, width = json.loads(line)
            sys.stdout.write(json.dumps(_timed(translate, rows * order["batches"], width)) + "\n")
            sys.stdout.flush()


def _timed(translate: Translate, rows: int, width: int) -> dict[str, Any]:
    """Return wall-clock and CPU seconds per output token, and the tokens."""
    sources = _sources(rows)
    outputs = translate(sources, width)
    clock, processor = list[float](), list[float]()
    while sum(clock) < ENOUGH or len(clock) < 2:
        began, cpu_began = time.perf_counter(), time.process_time()
        translate(sources, width)
        clock.append(time.perf_counter() - began)
        processor.append(time.process_time() - cpu_began)
    return {
        "seconds": median(clock) / (rows * LENGTH),
        "cpu": median(processor) / (rows * LENGTH),
        "tokens": outputs,
    }


def random_model(shape: str, *, dropout: float = 0.0) -> Seq2Seq:
    """Return a Transformer with random weights and one embedding for source and target."""
    settings = SHAPES[shape]
    torch.manual_seed(1)
    table = Embedding(VOCABULARY, settings.size, name="shared")
    entrance = Entrance(settings.size, settings, most=200, dropout=dropout, name="both")
    encoder = TransformerEncoder(TokenInputs(table), entrance, settings, dropout=dropout)
    head = Head(settings.size, VOCABULARY)  # a tied one would say the same token for ever
    decoder = TransformerDecoder(
        table, entrance, settings, head, memory_size=settings.size, dropout=dropout
    )
    return Seq2Seq(encoder, decoder)


def _sources(rows: int) -> list[list[int]]:
    """Return sources from half the largest to the largest length, so that there is padding."""
    drawn = torch.Generator().manual_seed(rows)
    lengths = torch.randint(LONGEST // 2, LONGEST + 1, (rows,), generator=drawn).tolist()
    lengths[0] = LONGEST
    return [
        torch.randint(10, VOCABULARY, (length,), generator=drawn).tolist() for length in lengths
    ]


def _seqlab(model: Seq2Seq, order: dict[str, Any], folder: str) -> Translate:
    if order["type"] == "int8":
        round_to_bytes(model)
    limits = Limits(end=None, most=LENGTH, never=(EOS,))

    def translate(sources: list[list[int]], width: int) -> list[list[int]]:
        memory, prefix = (
            model.encoder(Padded.from_rows(sources)),
            Padded.from_rows([[SOS]] * len(sources)),
        )
        if width == 1:
            rows = torch.arange(len(sources))
            return generate(
                model.decoder, memory, prefix, Greedy(), limits, rows=rows
            ).tokens.values.tolist()
        found = beam_search(model.decoder, memory, prefix, Beam(width=width), limits).best
        return [list(hypotheses[0].tokens) for hypotheses in found]

    return translate


@torch.no_grad()
def huggingface(model: Any, *, dropout: float = 0.0) -> Any:
    """Hugging Face's model with the same weights."""
    from transformers import MarianConfig, MarianMTModel

    settings: TransformerConfig = model.decoder.settings
    parts = {
        "layers": settings.layers,
        "attention_heads": settings.heads,
        "ffn_dim": settings.inner,
    }
    sides = {
        f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in parts.items()
    }
    peer: Any = MarianMTModel(
        MarianConfig(
            vocab_size=VOCABULARY,
            d_model=settings.size,
            max_position_embeddings=200,
            activation_function="relu",
            scale_embedding=True,
            pad_token_id=PAD,
            eos_token_id=EOS,
            decoder_start_token_id=SOS,
            forced_eos_token_id=None,
            tie_word_embeddings=False,
            dropout=dropout,
            **sides,
        )
    ).eval()
    for table in (peer.model.encoder.embed_tokens, peer.model.decoder.embed_tokens):
        table.weight.copy_(model.decoder.embedding.weight)
    peer.lm_head.weight.copy_(model.decoder.head.output.weight)
    peer.final_logits_bias.zero_()
    for side, blocks in (
        (peer.model.encoder, model.encoder.blocks),
        (peer.model.decoder, model.decoder.blocks),
    ):
        side.embed_positions.weight.copy_(sinusoidal_positions(200, settings.size))
        for layer, block in zip(side.layers, blocks, strict=True):
            _copy_attention(layer.self_attn, block.attention)
            _copy_norm(layer.self_attn_layer_norm, block.first.norm)
            if getattr(block, "cross", None) is not None:
                _copy_attention(layer.encoder_attn, block.cross)
                _copy_norm(layer.encoder_attn_layer_norm, block.third.norm)
            for one, other in (
                (layer.fc1, block.feed_forward.widen),
                (layer.fc2, block.feed_forward.narrow),
            ):
                one.weight.copy_(other.weight)
                one.bias.copy_(other.bias)
            _copy_norm(layer.final_layer_norm, block.second.norm)
    return peer


def _huggingface(model: Any, order: dict[str, Any], folder: str) -> Translate:
    peer = huggingface(model)

    def translate(sources: list[list[int]], width: int) -> list[list[int]]:
        padded = Padded.from_rows(sources)
        found = peer.generate(
            input_ids=padded.values,
            attention_mask=padded.real.long(),
            num_beams=width,
            do_sample=False,
            min_new_tokens=LENGTH,
            max_new_tokens=LENGTH,
        )
        return found[:, 1:].tolist()

    return translate


def _ctranslate2(model: Any, order: dict[str, Any], folder: str) -> Translate:
    import ctranslate2
    from ctranslate2.specs import Activation, TransformerSpec

    settings: TransformerConfig = model.decoder.settings
    depth = (settings.layers, settings.layers)
    spec = TransformerSpec.from_config(
        depth, settings.heads, pre_norm=False, activation=Activation.RELU
    )
    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = (
        model.decoder.embedding.weight.detach().numpy()
    )
    for side in (spec.encoder, spec.decoder):
        side.scale_embeddings = True
        side.position_encodings.encodings = sinusoidal_positions(200, settings.size).numpy()
    _spell(
        spec.decoder.projection, model.decoder.head.output.weight, model.decoder.head.output.bias
    )
    for side, blocks in (
        (spec.encoder, model.encoder.blocks),
        (spec.decoder, model.decoder.blocks),
    ):
        for layer, block in zip(side.layer, blocks, strict=True):
            size = settings.size
            own = block.attention
            _spell(
                layer.self_attention.linear[0], own.query_key_value.weight, own.query_key_value.bias
            )
            _spell(layer.self_attention.linear[1], own.mix.weight, own.mix.bias)
            _spell_norm(layer.self_attention.layer_norm, block.first.norm)
            if getattr(block, "cross", None) is not None:
                weight, bias = block.cross.query_key_value.weight, block.cross.query_key_value.bias
                _spell(layer.attention.linear[0], weight[:size], bias[:size])
                _spell(layer.attention.linear[1], weight[size:], bias[size:])
                _spell(layer.attention.linear[2], block.cross.mix.weight, block.cross.mix.bias)
                _spell_norm(layer.attention.layer_norm, block.third.norm)
            _spell(
                layer.ffn.linear_0, block.feed_forward.widen.weight, block.feed_forward.widen.bias
            )
            _spell(
                layer.ffn.linear_1, block.feed_forward.narrow.weight, block.feed_forward.narrow.bias
            )
            _spell_norm(layer.ffn.layer_norm, block.second.norm)
    names = {PAD: "<blank>", SOS: "<s>", EOS: "</s>"}
    words = [names.get(token, str(token)) for token in range(VOCABULARY)]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.validate()
    spec.optimize()
    spec.save(folder)
    peer = ctranslate2.Translator(
        folder,
        compute_type=order["type"],
        inter_threads=order["batches"],
        intra_threads=order["threads"],
    )
    numbers = {word: token for token, word in enumerate(words)}

    def translate(sources: list[list[int]], width: int) -> list[list[int]]:
        found = peer.translate_batch(
            [[words[token] for token in source] for source in sources],
            beam_size=width,
            max_batch_size=len(sources) // order["batches"],
            min_decoding_length=LENGTH,
            max_decoding_length=LENGTH,
        )
        return [[numbers[word] for word in row.hypotheses[0]] for row in found]

    return translate


SIDES: dict[str, Callable[[Seq2Seq, dict[str, Any], str], Translate]] = {
    "seqlab": _seqlab,
    "transformers": _huggingface,
    "ctranslate2": _ctranslate2,
}


def _copy_attention(peer: Any, ours: MultiHeadAttention) -> None:
    weights, biases = ours.query_key_value.weight.chunk(3), ours.query_key_value.bias.chunk(3)
    for one, weight, bias in zip(
        (peer.q_proj, peer.k_proj, peer.v_proj), weights, biases, strict=True
    ):
        one.weight.copy_(weight)
        one.bias.copy_(bias)
    peer.out_proj.weight.copy_(ours.mix.weight)
    peer.out_proj.bias.copy_(ours.mix.bias)


def _copy_norm(peer: Any, ours: Any) -> None:
    peer.weight.copy_(ours.gain)
    peer.bias.copy_(ours.bias)


def _spell(peer: Any, weight: Tensor, bias: Tensor) -> None:
    peer.weight, peer.bias = weight.detach().numpy(), bias.detach().numpy()


def _spell_norm(peer: Any, ours: Any) -> None:
    peer.gamma, peer.beta = ours.gain.detach().numpy(), ours.bias.detach().numpy()


if __name__ == "__main__":
    run_worker()

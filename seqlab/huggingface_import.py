"""Import of a BERT or GPT-2 from the files of Hugging Face as a bundle: offline, and without their library.

bundle = read_huggingface("all-MiniLM-L6-v2")       # config.json, model.safetensors, tokenizer.json
save_bundle(bundle, Path("minilm"))                 # now it is a model like any other

Weights get our names, and their rows the order of our ids; no code of theirs is run.
"""

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from seqlab import text
from seqlab.bundle import Bundle
from seqlab.codecs.codec import Codec, Nothing
from seqlab.codecs.text import TextSource, TextTarget
from seqlab.errors import BundleError, RecipeError, SeqlabWarning, shorten
from seqlab.recipe import Recipe, TransformerConfig, build_recipe
from seqlab.tasks import build_model, check_recipe
from seqlab.text import EOS, SOS, SPECIALS, Normaliser, Tokenizer

Table = dict[str, Any]
T = TypeVar("T")
Rows = list[int | None]  # for each of our ids the row of their tables, or None if it has none

MAX_BYTES = 64 * 2**20  # of a text file; a large vocabulary has a quarter of that
UNLIKELY = -100.0  # the bias of a token that the model has not learnt
HINT = "such a directory has config.json, model.safetensors and tokenizer.json as they were published; copy it again."
COMMON = {"kind": "transformer", "positions": "learned", "scale": False}
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "relu": "relu",
}
# their names of our special tokens, in the order of SPECIALS; BERT has no EOS, GPT-2 uses one token for SOS and EOS
SPECIALS_OF_BERT = ("[PAD]", "[UNK]", "[CLS]", None, "[SEP]", "[MASK]")
SPECIALS_OF_GPT2 = (None, None, "<|endoftext|>", "<|endoftext|>", None, None)

# our layers and theirs, with # for the depth; first those of BERT, then those of GPT-2
LAYERS = {
    "encoder.inputs.embedding": "embeddings.word_embeddings",
    "encoder.entrance.positions": "embeddings.position_embeddings",
    "encoder.entrance": "embeddings.token_type_embeddings",
    "encoder.entrance.norm": "embeddings.LayerNorm",
    "encoder.blocks.#.attention.query_key_value": "encoder.layer.#.attention.self",
    "encoder.blocks.#.attention.mix": "encoder.layer.#.attention.output.dense",
    "encoder.blocks.#.first.norm": "encoder.layer.#.attention.output.LayerNorm",
    "encoder.blocks.#.feed_forward.widen": "encoder.layer.#.intermediate.dense",
    "encoder.blocks.#.feed_forward.narrow": "encoder.layer.#.output.dense",
    "encoder.blocks.#.second.norm": "encoder.layer.#.output.LayerNorm",
    "head.output": "cls.predictions",
    "decoder.embedding": "wte",
    "decoder.entrance.positions": "wpe",
    "decoder.blocks.#.first.norm": "h.#.ln_1",
    "decoder.blocks.#.attention.query_key_value": "h.#.attn.c_attn",
    "decoder.blocks.#.attention.mix": "h.#.attn.c_proj",
    "decoder.blocks.#.second.norm": "h.#.ln_2",
    "decoder.blocks.#.feed_forward.widen": "h.#.mlp.c_fc",
    "decoder.blocks.#.feed_forward.narrow": "h.#.mlp.c_proj",
    "decoder.norm": "ln_f",
    "decoder.head.output": "lm_head",
}


def read_huggingface(folder: str | Path) -> Bundle:
    """Read the model in a directory with config.json, model.safetensors and the files of a tokenizer."""
    folder = Path(folder)
    if not folder.is_dir():
        raise _malformed(f"{folder}: there is no such directory")
    config = _Config(folder / "config.json")
    family = config.one_of("model_type", {"bert": _bert, "gpt2": _gpt2})
    table, codec, rows = family(config)
    try:
        recipe = check_recipe(
            build_recipe({"name": folder.resolve().name, **table}, where=str(config.path))
        )
    except RecipeError as error:
        raise _malformed(error) from None
    file = _Weights(folder / "model.safetensors")
    bundle = Bundle(recipe, codec, _build(recipe, codec, file, rows), {})
    if recipe.model.encoder is not None:
        reason = "is not in the file"
        if "cls.predictions.bias" in file.tensors:
            reason = "has a layer that Seqlab does not have"
        message = f"{folder}: the head that predicts [MASK] {reason} and must be learnt: train with --from"
        warnings.warn(
            f"{message}; or use only the encoder: `seqlab predict --embed`",
            SeqlabWarning,
            stacklevel=2,
        )
    return bundle


def _bert(config: "_Config") -> tuple[Table, Codec, Rows]:
    _expect(
        config.path,
        config,
        position_embedding_type="absolute",
        is_decoder=False,
        add_cross_attention=False,
    )
    tokenizer, rows = _word_pieces(config.path.parent)
    source = {
        "kind": "wordpiece",
        "size": len(tokenizer),
        "form": "none",
        "lower": tokenizer.normaliser.lower,
    }
    encoder = COMMON | {
        "size": config["hidden_size"],
        "layers": config["num_hidden_layers"],
        "heads": config["num_attention_heads"],
        "feed_forward": config["intermediate_size"],
        "norm": "post",
        "activation": config.one_of("hidden_act", ACTIVATIONS),
        "entrance_norm": True,
        "segments": config["type_vocab_size"],
        "epsilon": config.get("layer_norm_eps", 1e-12),
    }
    table = {
        "task": "mask",
        "about": "A BERT encoder, read from Hugging Face's files.",
        "data": {"max_source": config["max_position_embeddings"]},
        "source": source | {"markers": True, "frame": True},
        "model": {
            "encoder": encoder,
            "tie": True,
            "dropout": config.get("hidden_dropout_prob", 0.1),
        },
        "train": {"steps": 1},
    }
    return table, Codec(TextSource(tokenizer, markers=True, frame=True), Nothing()), rows


def _gpt2(config: "_Config") -> tuple[Table, Codec, Rows]:
    _expect(
        config.path,
        config,
        add_cross_attention=False,
        tie_word_embeddings=True,
        scale_attn_weights=True,
        scale_attn_by_inverse_layer_idx=False,
    )
    tokenizer, rows = _byte_pairs(config.path.parent)
    positions = config.whole("n_positions")
    decoder = COMMON | {
        "size": config["n_embd"],
        "layers": config["n_layer"],
        "heads": config["n_head"],
        "feed_forward": config.get("n_inner"),
        "norm": "pre",
        "activation": config.one_of("activation_function", ACTIVATIONS),
        "epsilon": config.get("layer_norm_epsilon", 1e-5),
    }
    table = {
        "task": "lm",
        "about": "A GPT-2, read from Hugging Face's files.",
        "data": {
            "unit": "stream",
            "max_target": positions - 2,
        },  # SOS and EOS have positions as well
        "target": {"kind": "bpe", "size": len(tokenizer), "form": "none"},
        "model": {"decoder": decoder, "tie": True, "dropout": config.get("resid_pdrop", 0.1)},
        "train": {"steps": 1, "bptt": positions},
    }
    return table, Codec(Nothing(), TextTarget(tokenizer)), rows


def _build(recipe: Recipe, codec: Codec, file: "_Weights", rows: Rows) -> nn.Module:
    """Build the model of a recipe with these weights.

    It is first built without memory, to compare its shapes: a config may ask for sizes that no machine has.
    """
    stack = recipe.model.encoder or recipe.model.decoder
    assert isinstance(stack, TransformerConfig)
    positions = recipe.data.max_source if recipe.model.encoder else recipe.data.max_target
    if (
        stack.layers > len(file.tensors)
        or max(stack.size, stack.inner, stack.segments, positions) > file.largest
    ):
        raise _malformed(f"{file.path}: smaller than the model that config.json describes")
    with torch.device("meta"):
        shapes = {name: tuple(p.shape) for name, p in build_model(recipe, codec).named_parameters()}
    weights = {name: _weight(name, shape, file, rows) for name, shape in shapes.items()}
    model = build_model(recipe, codec)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
    return model


def their_name(name: str, layers: Mapping[str, str]) -> tuple[str, str, str]:
    """Split the name of our parameter: our layer, their name of it ("" if it has none), and weight or bias."""
    owner, _, part = name.rpartition(".")
    depth = "".join(re.findall(r"\.(\d+)\.", owner))
    theirs = layers.get(re.sub(r"\.\d+\.", ".#.", owner), "")
    return owner, theirs.replace("#", depth), "bias" if part == "bias" else "weight"


def _weight(name: str, shape: tuple[int, ...], file: "_Weights", rows: Rows) -> Tensor:
    """Return the value of our parameter from their file: a layer, three concatenated ones, or rows in our order."""
    owner, theirs, part = their_name(name, LAYERS)
    if owner.endswith("embedding"):
        table = file.take(f"{theirs}.weight", (None, shape[1]))
        return file.rows_in_order(table, rows, absent=table.mean(0))
    if owner.endswith("head.output"):
        has_bias = f"{theirs}.bias" in file.tensors
        bias = file.take(f"{theirs}.bias", (None,)) if has_bias else torch.zeros(file.largest)
        # SOS may have the row of EOS, but must not take half of its probability
        outputs: Rows = [*rows[:SOS], None if rows[SOS] == rows[EOS] else rows[SOS], *rows[EOS:]]
        return file.rows_in_order(bias, outputs, absent=torch.tensor(UNLIKELY))
    if theirs.endswith(".self"):
        third = (shape[0] // 3, *shape[1:])
        return torch.cat(
            [file.take(f"{theirs}.{each}.{part}", third) for each in ("query", "key", "value")]
        )
    if ".c_" in theirs and part == "weight":  # GPT-2 stores matrices as inputs by outputs
        return file.take(f"{theirs}.weight", shape[::-1]).mT
    return file.take(f"{theirs}.{part}", shape)


def _word_pieces(folder: Path) -> tuple[Tokenizer, Rows]:
    """Read a WordPiece tokenizer from tokenizer.json, or from vocab.txt and tokenizer_config.json."""
    path = folder / "tokenizer.json"
    if path.is_file():
        stored = _read_json(path)
        settings = {
            "type": "WordPiece",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
        }
        _expect(f"{path}: model", stored.get("model"), **settings)
        _expect(f"{path}: pre_tokenizer", stored.get("pre_tokenizer"), type="BertPreTokenizer")
        rules = _expect(f"{path}: normalizer", stored.get("normalizer"), type="BertNormalizer")
        names = ("lowercase", "clean_text", "handle_chinese_chars")
    else:
        path = folder / "vocab.txt"
        options = folder / "tokenizer_config.json"
        lines = _read_text(path).removesuffix("\n").split("\n")
        stored = {"model": {"vocab": {piece: row for row, piece in enumerate(lines)}}}
        rules = _read_json(options) if options.is_file() else {}
        names = ("do_lower_case", "clean_text", "tokenize_chinese_chars")
    pieces, rows = _arrange(path, stored, SPECIALS_OF_BERT)
    lower, clean, spaced = (rules.get(name) is not False for name in names)
    accents = lower if rules.get("strip_accents") is None else rules["strip_accents"] is True
    data = {
        "kind": "wordpiece",
        "normaliser": Normaliser("none", lower).to_json(),
        "vocabulary": pieces,
    }
    return _tokenizer(
        path, data | {"clean": clean, "strip_accents": accents, "space_ideographs": spaced}
    ), rows


def _byte_pairs(folder: Path) -> tuple[Tokenizer, Rows]:
    """Read a byte-pair tokenizer from tokenizer.json, or from vocab.json and merges.txt.

    Our own tokenizer checks the rules by which it splits.
    """
    path = folder / "tokenizer.json"
    if path.is_file():
        stored = _read_json(path)
    else:
        path = folder / "vocab.json"
        lines = _read_text(folder / "merges.txt").split("\n")
        merges = [line for line in lines if line and not line.startswith("#version")]
        stored = {
            "model": {"vocab": _read_json(path), "merges": merges},
            "pre_tokenizer": {"type": "ByteLevel"},
        }
    model = _expect(f"{path}: model", stored.get("model"), type="BPE")
    pieces, rows = _arrange(path, stored, SPECIALS_OF_GPT2)
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    pairs = model.get("merges")
    if isinstance(pairs, list):  # a pair is a line in older files, a list in newer ones
        pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in pairs]
    library = {key: stored.get(key) for key in ("pre_tokenizer", "normalizer")}
    library["model"] = {**model, "type": "BPE", "vocab": vocabulary, "merges": pairs}
    return _tokenizer(
        path, {"kind": "bpe", "normaliser": Normaliser("none").to_json(), "library": library}
    ), rows


def _malformed(message: object) -> BundleError:
    return BundleError(str(message), hint=HINT)


def _expect(where: object, table: object, **expected: object) -> Table:
    """Return a table of settings; raise an error if one of them has another value. A missing one has its default."""
    if not isinstance(table, dict):
        raise _malformed(f"{where}: not a JSON object")
    for key, value in expected.items():
        if table.get(key) not in (None, value):
            message = f"{where}: '{key}' is {shorten(str(table[key]))}"
            raise BundleError(message, hint=f"Seqlab only reads models in which it is {value!r}.")
    return table


def _arrange(path: Path, stored: Table, special: Sequence[str | None]) -> tuple[list[str], Rows]:
    """Return the pieces in our order, and the row of each in theirs; `special` are their names of special tokens."""
    added = stored.get("added_tokens") or []
    try:
        rows: dict[str, int] = stored["model"]["vocab"] | {
            token["content"]: token["id"] for token in added
        }
        are_indices = all(type(row) is int and row >= 0 for row in rows.values())
        is_valid = are_indices and len({*rows.values()}) == len(rows)
    except (TypeError, KeyError):
        is_valid = False
    if not is_valid:
        raise _malformed(f"{path}: the vocabulary must give each piece a different number")
    names = [
        name or (ours if ours in rows else None)
        for name, ours in zip(special, SPECIALS, strict=True)
    ]
    for name in names:
        if name is not None and name not in rows:
            raise _malformed(f"{path}: the vocabulary does not fit this model: there is no {name}")
    rest = [piece for piece in sorted(rows, key=rows.__getitem__) if piece not in names]
    return [*SPECIALS, *rest], [None if name is None else rows[name] for name in (*names, *rest)]


def _tokenizer(path: Path, data: Table) -> Tokenizer:
    try:
        return text.from_json(data)
    except BundleError as error:
        raise _malformed(f"{path}: {error}") from None


class _Config(Table):
    """The settings of config.json; a missing one is an error."""

    def __init__(self, path: Path) -> None:
        super().__init__(_read_json(path))
        self.path = path

    def __missing__(self, key: str) -> Any:
        raise _malformed(f"{self.path}: there is no '{key}'")

    def whole(self, key: str) -> int:
        if type(self[key]) is not int:
            raise _malformed(f"{self.path}: '{key}' is {shorten(str(self[key]))}, not an integer")
        return self[key]

    def one_of(self, key: str, choices: Mapping[str, T]) -> T:
        if self[key] not in tuple(choices):
            message = f"{self.path}: '{key}' is {shorten(str(self[key]))}"
            raise BundleError(
                message,
                hint=f"Seqlab only reads models in which it is one of: {', '.join(choices)}.",
            )
        return choices[self[key]]


class _Weights:
    """The tensors of model.safetensors, by their names without that of the model family."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tensors: dict[str, Tensor] = {}
        if not path.is_file():
            pickled = path.with_name("pytorch_model.bin").is_file()
            message = "pytorch_model.bin is a pickle, which Seqlab never opens; convert it to safetensors."
            raise BundleError(f"{path}: there is no such file", hint=message if pickled else HINT)
        try:
            tensors = load_file(path)
        except (SafetensorError, OSError) as error:
            raise _malformed(f"{path}: not a safetensors file: {error}") from None
        old = {"gamma": "weight", "beta": "bias"}  # names in the first BERT files
        for name in tensors:
            owner, _, part = re.sub(r"^(bert|transformer)\.", "", name).rpartition(".")
            self.tensors[f"{owner}.{old.get(part, part)}"] = tensors[name]
        self.largest = max(
            (size for tensor in tensors.values() for size in tensor.shape), default=0
        )

    def take(self, name: str, shape: tuple[int | None, ...]) -> Tensor:
        """Return a tensor; raise an error if its shape is another one."""
        if name not in self.tensors:
            raise _malformed(f"{self.path}: there is no weight '{name}'")
        tensor = self.tensors[name]
        fits = [
            expected in (None, size) for expected, size in zip(shape, tensor.shape, strict=False)
        ]
        if len(shape) != tensor.dim() or not all(fits) or not tensor.is_floating_point():
            message = f"{self.path}: weight '{name}' has shape {tuple(tensor.shape)} and type {tensor.dtype}"
            expected = " by ".join("any" if size is None else str(size) for size in shape)
            raise _malformed(f"{message}, but config.json asks for {expected} real numbers")
        return tensor.float()

    def rows_in_order(self, table: Tensor, rows: Rows, *, absent: Tensor) -> Tensor:
        """Return the rows in the order of our ids, with `absent` for those that are None."""
        if max(row for row in rows if row is not None) >= len(table):
            raise _malformed(
                f"{self.path}: the tokenizer has more pieces than the model, which has {len(table)}"
            )
        return torch.cat([table, absent[None]])[
            [len(table) if row is None else row for row in rows]
        ]


def _read_json(path: Path) -> Table:
    try:
        return _expect(path, json.loads(_read_text(path)))
    except (ValueError, RecursionError) as error:
        raise _malformed(f"{path}: not valid JSON: {error}") from None


def _read_text(path: Path) -> str:
    if not path.is_file():
        raise _malformed(f"{path}: there is no such file")
    if path.stat().st_size > MAX_BYTES:
        raise _malformed(f"{path}: larger than the limit of {MAX_BYTES // 2**20} MB")
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        raise _malformed(f"{path}: not valid UTF-8") from None

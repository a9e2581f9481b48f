"""Everything that Seqlab parses, each with a good file, and ways to damage one: for tests, and for the fuzzer."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet
import torch
from PIL import Image as Pillow

from seqlab import lab
from seqlab.bundle import read_codec_file
from seqlab.data.picture_files import load_picture, read_pictures
from seqlab.data.series_files import read_series
from seqlab.data.store import Column, TokenStore, write_stores
from seqlab.data.tagged import read_tagged
from seqlab.data.text_pairs import read_labelled, read_pairs
from seqlab.data.vector_files import read_vectors, read_word_vectors
from seqlab.errors import SeqlabError
from seqlab.recipe import ImageConfig, load_recipe, parse_recipe, to_toml
from seqlab.tasks import codec_of, load_bundle
from seqlab.trace import Trace
from seqlab.training.checkpoint import Progress, read_checkpoint, write_checkpoint

NAMES = [
    "recipe",
    "pairs",
    "table",
    "json",
    "labelled",
    "conllu",
    "conll",
    "series",
    "word-vectors",
    "vectors",
]
NAMES += ["parquet", "pictures", "png", "jpeg", "checkpoint", "trace", "store", "tokenizer"]
NAMES += ["bundle-weights", "bundle-recipe", "bundle-metrics"]
SERIES = b"day,x\n2024-01-01,1.5\n2024-01-02,\n2024-01-03,3\n2024-01-04,2.5\n"
WORDS = [
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\n\n",
    b"\t\t\t",
    b"../../etc/passwd",
    b"NaN",
    b"1e999",
    b"-1",
    b"{",
    b"]",
]
WORDS += [
    b"99999999999999999999",
    b"\xed\xa0\x80",
    b'"',
    b"\\u0000",
    b"%s",
    b"[model]\n",
    b"true",
    b"null",
    b"\r",
]


def damaged(content: bytes, draw: random.Random) -> bytes:
    """A few wounds: bytes changed, cut out, doubled, put in, or the end torn off."""
    wounded = bytearray(content)
    for _ in range(draw.choice([1, 1, 2, 5])):
        at, length = draw.randrange(len(wounded) + 1), draw.choice([1, 1, 4, 64])
        wound = draw.randrange(5)
        if wound == 0 and wounded:
            wounded[min(at, len(wounded) - 1)] = draw.randrange(256)
        elif wound == 1:
            del wounded[at : at + length]
        elif wound == 2:
            wounded[at:at] = wounded[at : at + length] * draw.choice([1, 3])
        elif wound == 3:
            wounded[at:at] = draw.choice(WORDS)
        else:
            del wounded[at:]
    return bytes(wounded)


@dataclass(frozen=True)
class Parser:
    """How a kind of file is read, the end of its name, and one that is good."""

    read: Callable[[Path], object]
    suffix: str
    good: bytes

    def refuses(self, path: Path) -> bool:
        """Whether it refuses a file, with a sentence and a hint; anything else that happens is a defect."""
        try:
            self.read(path)
        except SeqlabError as error:
            if not (str(error) and error.hint):
                raise AssertionError("it is refused without a word") from error
            return True
        return False


def parsers(folder: Path) -> dict[str, Parser]:
    """All of them; what their good files are made of lies in the folder."""
    small = [
        "model.embedding=4",
        "model.encoder.size=4",
        "model.decoder.size=4",
        "train.steps=1",
        "source.size=300",
    ]
    pairs = folder / "pairs.tsv"
    pairs.write_text("".join(f"{n} cats\t{n} chats\n" for n in range(40)))
    model = lab.train("translate", pairs, recipe="seq2seq", settings=small, out=folder / "m").model

    def saved(name: str, **arrays: np.ndarray) -> bytes:
        np.savez(folder / name, **arrays)
        return (folder / name).read_bytes()

    write_checkpoint(folder / "last", Progress(step=3), {"model": {"w": torch.ones(3, 4)}})
    trace = Trace({"source": ("a", "b"), "written": ("c",), "answered": ("d",)})
    trace.save(folder / "trace.safetensors")
    write_stores([Column(folder / "store", 50)], [([1, 2, 3],), ([4],)])
    header = next(path for path in folder.glob("store*") if path.suffix == ".json")
    picture = folder / "picture.png"
    pixels = np.arange(8 * 8 * 3, dtype=np.uint8).reshape(8, 8, 3)
    Pillow.fromarray(pixels).save(picture)
    Pillow.fromarray(pixels).save(folder / "picture.jpg")
    image = ImageConfig(height=8, width=8)
    vectors = {
        "values": np.ones((3, 4, 2), np.float32),
        "lengths": np.array([4, 3, 2]),
        "labels": np.array(list("aab")),
    }
    pictures = {"images": np.stack([pixels] * 3), "captions": np.array(["a", "b", "c"])}
    conllu = "1\tcats\tcat\tNOUN\tNNS\t_\t0\troot\t_\t_\n2\trun\trun\tVERB\tVB\t_\t1\tx\t_\t_\n\n"
    tensors = (folder / "m" / "model.safetensors").read_bytes()

    def whole(path: Path, name: str) -> object:
        """A bundle one of whose files is this one; its sums are right, as an attacker's would be."""
        copy = path.with_suffix(".bundle")
        copy.mkdir(exist_ok=True)
        for file in (folder / "m").iterdir():
            if file.is_file():
                (copy / file.name).write_bytes(
                    path.read_bytes() if file.name == name else file.read_bytes()
                )
        manifest = json.loads((folder / "m" / "manifest.json").read_text())
        manifest["files"][name] = sha256(path.read_bytes()).hexdigest()
        (copy / "manifest.json").write_text(json.dumps(manifest))
        return load_bundle(copy)

    def read(function: Callable[..., object], **options: object) -> Callable[[Path], object]:
        return lambda path: list(function([str(path)], **options))  # type: ignore[call-overload]

    parquet.write_table(
        arrow.table({"words": [["a", "b"], ["c"]] * 4, "tags": ["x y", "z"] * 4}),
        folder / "t.parquet",
    )
    recipe = to_toml(load_recipe("bahdanau")).encode()
    return {
        "recipe": Parser(
            lambda path: parse_recipe(path.read_text("utf-8", "replace"), where="r"),
            ".toml",
            recipe,
        ),
        "pairs": Parser(read(read_pairs), ".tsv", pairs.read_bytes()),
        "table": Parser(read(read_pairs), ".csv", b'source,target\n"a, b",c\nd,"e ""f"""\n' * 3),
        "json": Parser(read(read_labelled), ".jsonl", b'{"text": "a b", "label": "x"}\n' * 4),
        "labelled": Parser(read(read_labelled), ".tsv", b"good\tvery nice\nbad\tvery dull\n" * 3),
        "conllu": Parser(read(read_tagged), ".conllu", conllu.encode() * 3),
        "conll": Parser(read(read_tagged), ".conll", b"cats NOUN\nrun VERB\n\n" * 4),
        "parquet": Parser(read(read_tagged), ".parquet", (folder / "t.parquet").read_bytes()),
        "series": Parser(lambda path: read_series(str(path)), ".csv", SERIES),
        "word-vectors": Parser(
            lambda path: list(read_word_vectors(str(path))),
            ".txt",
            b"cat 0.1 0.2\ndog 0.3 1e-3\n" * 3,
        ),
        "vectors": Parser(read(read_vectors, target="labels"), ".npz", saved("v.npz", **vectors)),
        "pictures": Parser(
            lambda path: list(read_pictures([str(path)], image, labels=False)),
            ".npz",
            saved("p.npz", **pictures),
        ),
        "png": Parser(lambda path: load_picture(str(path), image), ".png", picture.read_bytes()),
        "jpeg": Parser(
            lambda path: load_picture(str(path), image),
            ".jpg",
            (folder / "picture.jpg").read_bytes(),
        ),
        "checkpoint": Parser(read_checkpoint, ".safetensors", (folder / "last").read_bytes()),
        "trace": Parser(Trace.load, ".safetensors", (folder / "trace.safetensors").read_bytes()),
        "store": Parser(partial(_store, folder), ".json", header.read_bytes()),
        "tokenizer": Parser(
            lambda path: read_codec_file(path.read_bytes(), path, partial(codec_of, model.recipe)),
            ".json",
            json.dumps(model.bundle.codec.to_json()).encode(),
        ),
        "bundle-weights": Parser(partial(whole, name="model.safetensors"), ".w", tensors),
        "bundle-recipe": Parser(
            partial(whole, name="recipe.toml"), ".r", (folder / "m" / "recipe.toml").read_bytes()
        ),
        "bundle-metrics": Parser(
            partial(whole, name="metrics.json"), ".m", (folder / "m" / "metrics.json").read_bytes()
        ),
    }


def _store(folder: Path, path: Path) -> object:
    """A store of tokens whose header is this one."""
    for file in folder.glob("store*"):
        (path.parent / file.name).write_bytes(
            path.read_bytes() if file.suffix == ".json" else file.read_bytes()
        )
    store = TokenStore.open(path.parent / "store")
    return (
        [store[row] for row in range(len(store))]
        if hasattr(store, "__getitem__")
        else store.gather(np.array([0]))
    )

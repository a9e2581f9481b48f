"""A trained thing on disk: text, JSON and safetensors, each file's sha256 in the manifest. Never pickle.

recipe.toml         what it is and how it was trained
model.safetensors   its weights
tokenizer.json      its vocabularies, for machines
vocabulary.txt      the same, for people
metrics.json        how good it was when it was made, beside its baselines
CARD.md             all of this in a page
manifest.json       format number, and the sha256 of each file above

Format 2 is a bundle in bytes: each matrix of its weights is int8, and NAME.scale has the scale of each output.
Some lie in shipped/ and come with the package: they are called by their names.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from seqlab.codecs.codec import Codec, Json
from seqlab.errors import BundleError, RecipeError, RunError, UsageError
from seqlab.layers.linear import dequantise, is_rounded, quantise, round_to_bytes
from seqlab.models.build import fill
from seqlab.recipe import Recipe, parse_recipe, to_toml
from seqlab.training.checkpoint import write_together

FORMAT, BYTES = 1, 2
MANIFEST = "manifest.json"
SHIPPED = Path(__file__).parent / "shipped"
_NEEDED = ("recipe.toml", "model.safetensors", "tokenizer.json", "metrics.json")
_RESTORE = "restore the file from where the bundle came from, or train again."

FORMER = {"floors": "baselines", "floor_note": "baseline_note"}  # names of scores in older bundles


@dataclass(frozen=True)
class Bundle:
    """A model with everything that is needed to use it."""

    recipe: Recipe
    codec: Codec
    model: Any  # the network, whose kind the task knows
    metrics: Json  # what was measured of it, and chosen by that: scores, and the temperature of its labels
    int8: bool = False  # its matrices are on the grid of int8

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())


def save_bundle(bundle: Bundle, folder: Path) -> None:
    """Write all files beside their places and move them there, the manifest last: a bundle that has one is whole.

    What lies there before stays whole until everything new is on the disk.
    """
    weights, number = _weights(bundle), BYTES if bundle.int8 else FORMAT
    files = {
        "recipe.toml": to_toml(bundle.recipe).encode(),
        "model.safetensors": save(weights, metadata={"format": str(number)}),
        "tokenizer.json": json.dumps(bundle.codec.to_json(), ensure_ascii=False, indent=1).encode(),
        "vocabulary.txt": bundle.codec.page().encode(),
        "metrics.json": json.dumps(bundle.metrics, indent=2).encode(),
        "CARD.md": card(bundle).encode(),
    }
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    files[MANIFEST] = json.dumps({"format": number, "files": digests}, indent=2).encode()
    write_together(folder, files)


def read_bundle(
    folder: str | Path,
    *,
    check: Callable[[Recipe], Recipe],
    codec: Callable[[Recipe, Any], Codec],
    build: Callable[[Recipe, Codec], nn.Module],
) -> Bundle:
    """Read a bundle, after checking that each of its files is there and is the one that was written.

    What depends on the task comes as an argument: how a recipe is checked, how its codec is read, how it is built.
    """
    folder = find_bundle(folder)
    files = _checked_files(folder)
    try:
        recipe = check(
            parse_recipe(
                files["recipe.toml"].decode("utf-8", "replace"), where=str(folder / "recipe.toml")
            )
        )
    except RecipeError as error:
        raise _broken(str(error)) from None
    tokenizers = read_codec_file(
        files["tokenizer.json"], folder / "tokenizer.json", partial(codec, recipe)
    )
    metrics = _json(files["metrics.json"], folder / "metrics.json")
    if not isinstance(metrics, dict):
        raise _broken(f"{folder / 'metrics.json'}: not a table of scores")
    held_out = metrics.get("validation")
    if isinstance(held_out, dict):
        metrics["validation"] = {FORMER.get(name, name): held_out[name] for name in held_out}
    model = build(recipe, tokenizers)
    in_bytes = _load_weights(model, files["model.safetensors"], folder / "model.safetensors")
    bundle = Bundle(recipe, tokenizers, model, metrics)
    return to_int8(bundle) if in_bytes else bundle


def to_int8(bundle: Bundle) -> Bundle:
    """The same model in bytes: its matrices rounded in place to the grid of int8, one scale for each output."""
    if not any(map(is_rounded, bundle.model.parameters())):
        raise UsageError(
            f"'{bundle.recipe.name}' has no matrix to round to int8", hint="leave out --int8."
        )
    round_to_bytes(bundle.model)
    return replace(bundle, int8=True)


def _weights(bundle: Bundle) -> dict[str, Tensor]:
    weights = {name: p.detach().contiguous() for name, p in bundle.model.named_parameters()}
    for name in [name for name, weight in weights.items() if bundle.int8 and is_rounded(weight)]:
        weights[name], weights[f"{name}.scale"] = quantise(weights[name])
    return weights


def read_codec_file(content: bytes, path: Path, codec: Callable[[Any], Codec]) -> Codec:
    """The codec in a tokenizer file; a refusal names the file."""
    try:
        return codec(_json(content, path))
    except BundleError as error:
        message = str(error)
        raise BundleError(
            message if message.startswith(str(path)) else f"{path}: {message}", hint=error.hint
        ) from None


def _broken(message: str) -> BundleError:
    return BundleError(message, hint=_RESTORE)


def refuse_existing(out: Path) -> None:
    """A model that is handed on goes into a new directory."""
    if out.exists():
        raise RunError(
            f"{out}: this is there already", hint="give another directory. It was not touched."
        )


def is_bundle(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def shipped() -> dict[str, Path]:
    """The models that come with the package, by name."""
    return {folder.name: folder for folder in sorted(SHIPPED.glob("*")) if is_bundle(folder)}


def find_bundle(folder: str | Path) -> Path:
    """The directory itself where there is one; else that of the shipped model with this name."""
    return Path(folder) if Path(folder).exists() else shipped().get(str(folder), Path(folder))


def _instead(folder: Path) -> str:
    """What to do with a directory that holds no finished model."""
    if (folder / "run").is_dir():
        return "train it to its end, or stop it with Ctrl-C."
    inside = [str(each) for each in sorted(folder.iterdir()) if is_bundle(each)]
    return f"it holds models: {', '.join(inside[:9])}." if inside else _RESTORE


def _checked_files(folder: Path) -> dict[str, bytes]:
    if folder.is_file():
        raise BundleError(
            f"{folder}: this is a file, not the directory of a model",
            hint="`seqlab train` makes one.",
        )
    if not folder.is_dir():
        near = get_close_matches(str(folder), shipped(), n=1)
        meant = f"did you mean '{near[0]}'? " if near else ""
        come = f"`seqlab train` makes one; these come with Seqlab: {', '.join(shipped())}."
        raise BundleError(f"{folder}: there is no such model", hint=meant + come)
    if not is_bundle(folder):
        raise BundleError(
            f"{folder}: this directory holds no finished model (no {MANIFEST})",
            hint=_instead(folder),
        )
    manifest = _json((folder / MANIFEST).read_bytes(), folder / MANIFEST)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise _broken(f"{folder / MANIFEST}: not a manifest of Seqlab's")
    if manifest.get("format") not in (FORMAT, BYTES):
        raise BundleError(
            f"{folder}: written in format {manifest.get('format')!r}; this version reads format {FORMAT} and {BYTES}",
            hint="use the version of Seqlab that made it, or a newer one.",
        )
    files = {}
    for name in _NEEDED:
        path = folder / name
        if not path.is_file():
            raise _broken(f"{path}: this file of the model is missing")
        files[name] = path.read_bytes()
        if hashlib.sha256(files[name]).hexdigest() != manifest["files"].get(name):
            raise _broken(f"{path}: not the file that was written: it was changed or cut off")
    return files


def _json(content: bytes, path: Path) -> Any:
    try:
        return json.loads(content)
    except ValueError as error:
        raise _broken(f"{path}: not valid JSON: {error}") from None


@torch.no_grad()
def _load_weights(model: nn.Module, content: bytes, path: Path) -> bool:
    """Fill the model; whether its weights were in bytes."""
    try:
        weights = load(content)
    except SafetensorError as error:
        raise _broken(f"{path}: not a safetensors file: {error}") from None
    scales = {
        name: weights.pop(f"{name}.scale") for name in list(weights) if f"{name}.scale" in weights
    }
    weights |= {name: dequantise(weights[name], scale) for name, scale in scales.items()}
    parameters = dict(model.named_parameters())
    for name in parameters.keys() ^ weights.keys():
        raise _broken(f"{path}: weight '{name}' is not where the recipe has one")
    for name, parameter in parameters.items():
        fill(parameter, weights[name].shape, weights[name].dtype)
        if parameter.shape != weights[name].shape:
            shape = tuple(weights[name].shape)
            raise _broken(
                f"{path}: weight '{name}' has shape {shape} where the recipe has {tuple(parameter.shape)}"
            )
        parameter.copy_(weights[name])
    return bool(scales)


def card(bundle: Bundle) -> str:
    """A page about the model, for people."""
    recipe = bundle.recipe
    scores = "\n".join(
        f"| {name} | {_figure(value)} |"
        for name, value in _flat(bundle.metrics.get("validation", {}))
    )
    notes = "".join(f"- {name}: {text}\n" for name, text in bundle.metrics.get("notes", {}).items())
    return f"""# {recipe.name}

{recipe.about}

- task: {recipe.task}
- parameters: {bundle.num_parameters:,}{", matrices as int8" if bundle.int8 else ""}
- trained: {bundle.metrics.get("steps", 0):,} steps, {bundle.metrics.get("seconds", 0):.0f} s
{notes}
## Scores on the held-out part

| score | value |
|---|---|
{scores}

Use it: `seqlab predict THIS_DIRECTORY`. All settings: `recipe.toml`.
"""


def _flat(table: Json, prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for name, value in table.items():
        if isinstance(value, dict):
            rows += _flat(value, f"{prefix}{name}: ")
        elif not isinstance(value, list):
            rows.append((prefix + name, value))
    return rows


def _figure(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)

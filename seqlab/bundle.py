"""A bundle: a trained model on disk as text, JSON and safetensors, without pickle.

recipe.toml         all settings of the model and of its training
model.safetensors   the weights
tokenizer.json      the vocabularies
vocabulary.txt      the vocabularies as plain text, for people
metrics.json        facts about the training, and the scores of the model and of its baselines
CARD.md             a summary of all of this
manifest.json       the format number, and the sha256 of each file above

In format 2 each matrix of weights is int8, and NAME.scale has the scale of each output.
The bundles in shipped/ come with the package and are loaded by their names.
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

FLOAT_FORMAT = 1
INT8_FORMAT = 2
MANIFEST = "manifest.json"
SHIPPED = Path(__file__).parent / "shipped"
_NEEDED = ("recipe.toml", "model.safetensors", "tokenizer.json", "metrics.json")
_RESTORE = "restore the file from where the bundle came from, or train again."

# keys in older bundles, and their present names
OLD_KEYS = {"floors": "baselines", "floor_note": "baseline_note"}


@dataclass(frozen=True)
class Bundle:
    """A model with everything that is needed to use it."""

    recipe: Recipe
    codec: Codec
    # the network; its class depends on the task
    model: Any
    # scores, facts about the training, and calibration parameters such as the temperature of labels
    metrics: Json
    # whether its matrices are rounded to int8
    int8: bool = False

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())


def save_bundle(bundle: Bundle, folder: Path) -> None:
    """Write all files under temporary names and rename them, the manifest last: with a manifest, a bundle is complete.

    An older bundle in the directory stays complete until all new files are on the disk.
    """
    number = INT8_FORMAT if bundle.int8 else FLOAT_FORMAT
    files = {
        "recipe.toml": to_toml(bundle.recipe).encode(),
        "model.safetensors": save(_weights(bundle), metadata={"format": str(number)}),
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
    """Read a bundle, after checking that its files are complete and unchanged.

    Functions that depend on the task are arguments: checking a recipe, reading its codec, and building its network.
    """
    folder = find_bundle(folder)
    files = _checked_files(folder)
    text = files["recipe.toml"].decode("utf-8", "replace")
    try:
        recipe = check(parse_recipe(text, where=str(folder / "recipe.toml")))
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
        metrics["validation"] = {OLD_KEYS.get(name, name): held_out[name] for name in held_out}
    model = build(recipe, tokenizers)
    is_int8 = _load_weights(model, files["model.safetensors"], folder / "model.safetensors")
    bundle = Bundle(recipe, tokenizers, model, metrics)
    return to_int8(bundle) if is_int8 else bundle


def to_int8(bundle: Bundle) -> Bundle:
    """Round the matrices of a model in place to int8, with one scale for each output; return it as an int8 bundle."""
    if not any(map(is_rounded, bundle.model.parameters())):
        raise UsageError(
            f"'{bundle.recipe.name}' has no matrix to round to int8", hint="leave out --int8."
        )
    round_to_bytes(bundle.model)
    return replace(bundle, int8=True)


def _weights(bundle: Bundle) -> dict[str, Tensor]:
    """Return the weights as they are stored: as floats, or as int8 with scales."""
    weights = {name: p.detach().contiguous() for name, p in bundle.model.named_parameters()}
    if not bundle.int8:
        return weights
    for name in [name for name, weight in weights.items() if is_rounded(weight)]:
        weights[name], weights[f"{name}.scale"] = quantise(weights[name])
    return weights


def read_codec_file(content: bytes, path: Path, codec: Callable[[Any], Codec]) -> Codec:
    """Read the codec in a tokenizer file; errors name the file."""
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
    """Raise an error if the directory for an exported model exists."""
    if out.exists():
        raise RunError(
            f"{out}: this exists already", hint="give another directory. It was not changed."
        )


def is_bundle(folder: Path) -> bool:
    """Whether the directory holds a complete bundle."""
    return (folder / MANIFEST).is_file()


def shipped() -> dict[str, Path]:
    """Return the directories of the models that come with the package, by name."""
    return {folder.name: folder for folder in sorted(SHIPPED.glob("*")) if is_bundle(folder)}


def find_bundle(folder: str | Path) -> Path:
    """Return the path if it exists, else the directory of the shipped model with this name."""
    return Path(folder) if Path(folder).exists() else shipped().get(str(folder), Path(folder))


def _hint_for_directory(folder: Path) -> str:
    """Say what to do with a directory that holds no complete model."""
    if (folder / "run").is_dir():
        return "train it to its end, or stop it with Ctrl-C."
    models = [str(path) for path in sorted(folder.iterdir()) if is_bundle(path)]
    return f"it holds models: {', '.join(models[:9])}." if models else _RESTORE


def _checked_files(folder: Path) -> dict[str, bytes]:
    """Read the files of a bundle and check them against the manifest."""
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
            hint=_hint_for_directory(folder),
        )
    manifest = _json((folder / MANIFEST).read_bytes(), folder / MANIFEST)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise _broken(f"{folder / MANIFEST}: not a manifest of Seqlab")
    if manifest.get("format") not in (FLOAT_FORMAT, INT8_FORMAT):
        raise BundleError(
            f"{folder}: written in format {manifest.get('format')!r}; "
            f"this version reads format {FLOAT_FORMAT} and {INT8_FORMAT}",
            hint="use the version of Seqlab that made it, or a newer one.",
        )
    files = {}
    for name in _NEEDED:
        path = folder / name
        if not path.is_file():
            raise _broken(f"{path}: this file of the model is missing")
        files[name] = path.read_bytes()
        if hashlib.sha256(files[name]).hexdigest() != manifest["files"].get(name):
            raise _broken(f"{path}: this file was changed or truncated")
    return files


def _json(content: bytes, path: Path) -> Any:
    try:
        return json.loads(content)
    except ValueError as error:
        raise _broken(f"{path}: not valid JSON: {error}") from None


@torch.no_grad()
def _load_weights(model: nn.Module, content: bytes, path: Path) -> bool:
    """Copy the stored weights into the model; return whether they were int8."""
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
        where = "missing" if name in parameters else "not part of the recipe's network"
        raise _broken(f"{path}: weight '{name}' is {where}")
    for name, parameter in parameters.items():
        fill(parameter, weights[name].shape, weights[name].dtype)
        if parameter.shape != weights[name].shape:
            shape = tuple(weights[name].shape)
            raise _broken(
                f"{path}: weight '{name}' has shape {shape}, but the recipe's network has {tuple(parameter.shape)}"
            )
        parameter.copy_(weights[name])
    return bool(scales)


def card(bundle: Bundle) -> str:
    """Return the model card in Markdown."""
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
    """Flatten nested scores to rows of names and values; lists are left out."""
    rows: list[tuple[str, Any]] = []
    for name, value in table.items():
        if isinstance(value, dict):
            rows += _flat(value, f"{prefix}{name}: ")
        elif not isinstance(value, list):
            rows.append((prefix + name, value))
    return rows


def _figure(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)

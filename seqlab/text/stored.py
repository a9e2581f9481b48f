"""What was written to disk, read back with suspicion: each part is there, is of its type, and nothing else is."""

from collections.abc import Mapping
from typing import Any

from seqlab.errors import BundleError, shorten

HINT = "the bundle's file was changed or cut; restore the bundle from its source or train again."

_CALLED = {str: "text", bool: "true or false", list: "a list", dict: "an object with named parts"}


def odd(message: str) -> BundleError:
    """The error for a stored thing that this package would not have written."""
    return BundleError(message, hint=HINT)


def parts(data: object, what: str, types: Mapping[str, type]) -> dict[str, Any]:
    """The parts of a JSON object called `what`, exactly those of `types`, each of exactly its type."""
    if not isinstance(data, dict):
        raise odd(f"{what} must be {_CALLED[dict]}, not {shorten(str(data))}")
    for key, kind in types.items():
        if key not in data:
            raise odd(f"{what} lacks its part '{key}'")
        # Not isinstance: True is an int to Python, and never to the person who wrote the file.
        if type(data[key]) is not kind:
            raise odd(f"{what}: '{key}' must be {_CALLED[kind]}, not {shorten(str(data[key]))}")
    for key in data:
        if key not in types:
            raise odd(f"{what} has a part that does not belong to it: {shorten(str(key))}")
    return data


def kind_of(data: object) -> str:
    """Which kind of tokenizer a JSON object says it is."""
    if not isinstance(data, dict) or not isinstance(data.get("kind"), str):
        raise odd(f"a tokenizer must be {_CALLED[dict]}, one of them its 'kind'")
    return data["kind"]


def strings(values: list[object], what: str) -> list[str]:
    """A list of texts, no two the same."""
    seen: dict[str, None] = {}
    for position, value in enumerate(values):
        if not isinstance(value, str):
            raise odd(f"{what}: entry {position} is not text: {shorten(str(value))}")
        if value in seen:
            raise odd(f"{what}: entry {position} is there twice: {shorten(value)}")
        seen[value] = None
    return list(seen)

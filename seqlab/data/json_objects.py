"""The rows of a JSON file, in whichever of the usual forms they stand.

One object a line; an array of objects or of arrays; columns by name, as pandas writes them; texts by label; values by
time; or any of these below a key, as in {"version": 1, "data": [...]}. What is nested in a row becomes cells of it.
"""

import json
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from seqlab.data.columns import KNOWN_NAMES
from seqlab.data.lines import display_name, lines
from seqlab.errors import DataError, shorten

_OBJECTS = "each line is one object, or the whole file is one array of objects."
_LEAST_KEYS = 8  # of an object whose keys are times or texts rather than names of columns
Object = dict[str, Any]


def json_objects(path: str, encoding: str | None) -> Iterator[tuple[int, Object]]:
    """The rows of a file as objects, each with its number or that of its line."""
    name = display_name(path)
    text = ((number, line) for number, line in lines(path, encoding) if line.strip())
    head = list(islice(text, 2))
    by_line = _is_object(head[0][1]) and len(head) > 1
    values: Iterator[tuple[int, Any]]
    if by_line or (len(head) == 1 and head[0][1].lstrip()[0] not in "[{"):
        values = (
            (n, _parsed(line, f"{name}:{n}: this line is not JSON"))
            for n, line in chain(head, text)
        )
    else:
        whole = _parsed(
            "\n".join(line for _, line in chain(head, text)), f"{name}: this is not JSON"
        )
        values = enumerate(_rows(whole), start=1)
    for number, value in values:
        if not isinstance(value, dict):
            problem = f"{name}:{number}: a JSON {type(value).__name__} where an object is needed"
            raise DataError(f"{problem}: {shorten(str(value))}", hint=_OBJECTS)
        yield number, _flat(value)


def _rows(value: Any) -> list[Any]:
    """The rows in a whole document."""
    if isinstance(value, list):
        if len(value) >= _LEAST_KEYS and all(isinstance(each, int | float) for each in value):
            return [{"value": each} for each in value]
        return [
            {str(place): cell for place, cell in enumerate(each, start=1)}
            if isinstance(each, list)
            else each
            for each in value
        ]
    if not isinstance(value, dict) or not value:
        return [value]
    parts = list(value.values())
    if all(isinstance(part, dict) and part.keys() == parts[0].keys() for part in parts):
        parts = [list(part.values()) for part in parts]
    if _are_columns(list(value), parts):
        return [dict(zip(value, row, strict=True)) for row in zip(*parts, strict=True)]
    lists = [part for part in parts if isinstance(part, list) and part]
    if len(lists) == len(parts) > 1 and all(isinstance(t, str) for part in lists for t in part):
        return [{"label": label, "text": text} for label in value for text in value[label]]
    if rows := max(
        (part for part in lists if isinstance(part[0], dict | list)), key=len, default=None
    ):
        return _rows(rows)
    if len(parts) >= _LEAST_KEYS and not any(isinstance(part, dict | list) for part in parts):
        return [{"key": key, "value": part} for key, part in value.items()]
    return [value]


def _are_columns(names: list[str], parts: list[Any]) -> bool:
    """Whether the values of an object are columns of one length, rather than the texts of each label."""
    if not all(isinstance(part, list) and len(part) == len(parts[0]) > 1 for part in parts):
        return False
    cells = [cell for part in parts for cell in part]
    if len(parts) == 1 and any(isinstance(cell, list) for cell in cells):
        return False
    if any(isinstance(cell, dict) for cell in cells):
        return False
    texts = all(isinstance(cell, str) for cell in cells)
    return not texts or any(name.lower() in KNOWN_NAMES for name in names)


def _flat(row: Object) -> Object:
    """A row whose nested objects are cells of their own, named by their own key where it is free."""
    flat: Object = {}
    for name, value in row.items():
        inner = _flat(value) if isinstance(value, dict) and value else {}
        for key, cell in inner.items():
            flat[f"{name}.{key}" if key in flat or key in row else key] = cell
        if not inner:
            flat[name] = value
    return flat


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _parsed(text: str, problem: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{problem}: {shorten(text)}", hint=f"{_OBJECTS} Python's parser says: {error}"
        ) from error

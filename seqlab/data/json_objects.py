"""Read the rows of a JSON file in any of the usual forms.

One object a line; an array of objects or of arrays; columns by name, as pandas writes them; texts by label; values by
time; or any of these below a key, as in {"version": 1, "data": [...]}. Nested objects of a row become cells of it.
"""

import json
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from seqlab.data.columns import KNOWN_NAMES
from seqlab.data.lines import display_name, lines
from seqlab.errors import DataError, shorten

_OBJECTS = "each line is one object, or the whole file is one array of objects."
_MIN_KEYS = 8  # of an object whose keys are times or texts rather than names of columns
Object = dict[str, Any]


def json_objects(path: str, encoding: str | None) -> Iterator[tuple[int, Object]]:
    """Yield the rows as objects, each with its number or the number of its line."""
    name = display_name(path)
    filled = ((number, line) for number, line in lines(path, encoding) if line.strip())
    head = list(islice(filled, 2))
    text = chain(head, filled)
    by_line = _is_object(head[0][1]) and len(head) > 1
    values: Iterator[tuple[int, Any]]
    if by_line or (len(head) == 1 and head[0][1].lstrip()[0] not in "[{"):
        values = ((n, _parse(line, f"{name}:{n}: this line is not JSON")) for n, line in text)
    else:
        document = _parse("\n".join(line for _, line in text), f"{name}: this is not JSON")
        values = enumerate(_rows(document), start=1)
    for number, value in values:
        if not isinstance(value, dict):
            problem = f"{name}:{number}: a JSON {type(value).__name__} where an object is needed"
            raise DataError(f"{problem}: {shorten(str(value))}", hint=_OBJECTS)
        yield number, _flat(value)


def _rows(value: Any) -> list[Any]:
    """Return the rows of a whole document."""
    if isinstance(value, list):
        return _rows_of_list(value)
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
    tables = [part for part in lists if isinstance(part[0], dict | list)]
    if tables:
        return _rows(max(tables, key=len))
    if len(parts) >= _MIN_KEYS and not any(isinstance(part, dict | list) for part in parts):
        return [{"key": key, "value": part} for key, part in value.items()]
    return [value]


def _rows_of_list(values: list[Any]) -> list[Any]:
    """Return a row for each entry: an object, an array whose cells are named "1", "2" and so on, or a number."""
    if len(values) >= _MIN_KEYS and all(isinstance(each, int | float) for each in values):
        return [{"value": each} for each in values]
    rows = []
    for each in values:
        is_array = isinstance(each, list)
        rows.append({str(n): cell for n, cell in enumerate(each, 1)} if is_array else each)
    return rows


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
    """Return a row with the entries of nested objects as cells, named by their own key if no other cell has it."""
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


def _parse(text: str, problem: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{problem}: {shorten(text)}", hint=f"{_OBJECTS} Python's parser says: {error}"
        ) from error

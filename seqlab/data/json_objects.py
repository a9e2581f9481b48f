"""Objects of a JSON file."""

import json
from collections.abc import Iterator
from itertools import chain
from typing import Any

from seqlab.data.lines import display_name, lines
from seqlab.errors import DataError, shorten

_OBJECTS = "each line is one object, or the whole file is one array of objects."


def json_objects(path: str, encoding: str | None) -> Iterator[tuple[int, dict[str, object]]]:
    """The objects of a file, one a line or all in one array, each with its number."""
    name = display_name(path)
    text = ((number, line) for number, line in lines(path, encoding) if line.strip())
    first = next(text)
    values: Iterator[tuple[int, object]]
    if first[1].lstrip().startswith("["):
        whole = "\n".join(line for _, line in chain([first], text))
        values = enumerate(_parsed(whole, f"{name}: this is not JSON"), start=1)
    else:
        values = (
            (n, _parsed(line, f"{name}:{n}: this line is not JSON"))
            for n, line in chain([first], text)
        )
    for number, value in values:
        if not isinstance(value, dict):
            problem = f"{name}:{number}: a JSON {type(value).__name__} where an object is needed"
            raise DataError(f"{problem}: {shorten(str(value))}", hint=_OBJECTS)
        yield number, value


def _parsed(text: str, problem: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{problem}: {shorten(text)}", hint=f"{_OBJECTS} Python's parser says: {error}"
        ) from error

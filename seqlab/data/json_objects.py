"""Objects of a JSON file."""

import json
from collections.abc import Iterator
from itertools import chain

from seqlab.data.lines import display_name, lines
from seqlab.errors import DataError, shorten

_OBJECTS = "each line is one object, or the whole file is one array of objects."


def json_objects(path: str, encoding: str | None) -> Iterator[tuple[int, dict[str, object]]]:
    """The objects of a file, one a line or all in one array, each with its number."""
    text = ((number, line) for number, line in lines(path, encoding) if line.strip())
    first = next(text)
    if first[1].lstrip().startswith("["):
        whole = "\n".join(line for _, line in chain([first], text))
        try:
            values: Iterator[tuple[int, object]] = enumerate(json.loads(whole), start=1)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{display_name(path)}: this is not JSON: {error}", hint=_OBJECTS) from error
    else:
        values = ((number, _parsed(line, f"{display_name(path)}:{number}")) for number, line in chain([first], text))
    for number, value in values:
        if not isinstance(value, dict):
            where = f"{display_name(path)}:{number}"
            kind = f"a JSON {type(value).__name__}"
            raise DataError(f"{where}: {kind} where an object is needed: {shorten(str(value))}", hint=_OBJECTS)
        yield number, value


def _parsed(line: str, where: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: this line is not JSON: {shorten(line)}", hint=_OBJECTS) from error

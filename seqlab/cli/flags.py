"""Flags that are made of declared options."""

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any, get_args, get_type_hints

import typer

Command = Callable[..., None]


def with_flags(command: Command, *, options: type, ranges: bool = True) -> Command:
    """The command with a flag for each of these options, which it takes by name, None where a flag is not set.

    Without `ranges` it is left to the command to refuse what is out of range.
    """
    own = signature(command)
    parameters = [
        each for each in own.parameters.values() if each.kind is not Parameter.VAR_KEYWORD
    ]
    kinds: dict[str, Any] = get_type_hints(options)
    for name, hint in get_type_hints(options, include_extras=True).items():
        _, bounds, text = get_args(hint)
        flag = typer.Option(None, min=bounds.least if ranges else None, help=text)
        parameters.append(
            Parameter(name, Parameter.KEYWORD_ONLY, default=flag, annotation=kinds[name] | None)
        )
    command.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command

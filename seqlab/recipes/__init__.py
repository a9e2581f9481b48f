"""The recipes of the package as plain tables; they are not validated here, so that `--help` stays fast."""

import tomllib
from importlib.resources import files
from typing import Any


def recipe_names() -> list[str]:
    """Return the names of the recipes in the package."""
    entries = files(__name__).iterdir()
    return sorted(
        entry.name.removesuffix(".toml") for entry in entries if entry.name.endswith(".toml")
    )


def recipe_table(name: str) -> dict[str, Any]:
    """Read the file of a recipe."""
    return tomllib.loads((files(__name__) / f"{name}.toml").read_text("utf-8"))


def default_recipes() -> dict[str, str]:
    """Return the default recipe of each task."""
    tables = {name: recipe_table(name) for name in recipe_names()}
    return {table["task"]: name for name, table in tables.items() if table.get("default")}

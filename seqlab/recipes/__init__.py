"""The recipes that come with the package, as plain tables: read without checking them, so that `--help` stays quick."""

import tomllib
from importlib.resources import files
from typing import Any


def recipe_names() -> list[str]:
    """The recipes that come with the package."""
    entries = files(__name__).iterdir()
    return sorted(
        entry.name.removesuffix(".toml") for entry in entries if entry.name.endswith(".toml")
    )


def recipe_table(name: str) -> dict[str, Any]:
    """What stands in the file of a recipe."""
    return tomllib.loads((files(__name__) / f"{name}.toml").read_text("utf-8"))


def default_recipes() -> dict[str, str]:
    """For each task the recipe that is trained where none is named."""
    tables = {name: recipe_table(name) for name in recipe_names()}
    return {table["task"]: name for name, table in tables.items() if table.get("default")}

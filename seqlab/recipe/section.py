"""What all sections of a recipe are: frozen tables in which no key is unknown."""

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, model_validator


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _nothing(cls, table: Any) -> Any:
        """TOML has no null: "none" is nothing where a value may be missing, and a word like any other elsewhere."""
        if not isinstance(table, dict):
            return table
        optional = {
            name
            for name, field in cls.model_fields.items()
            if type(None) in get_args(field.annotation)
        }
        return {
            key: None if value == "none" and key in optional else value
            for key, value in table.items()
        }

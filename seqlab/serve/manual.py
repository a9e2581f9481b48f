"""The manual at /docs: a page made of the interface's own document, without a script."""

import json
from html import escape
from typing import Any


def manual_html(document: dict[str, Any]) -> str:
    """Every route: what it is for, what its body may hold, and how it answers."""
    schemas = document["components"]["schemas"]
    parts = [
        _route(path, method, how, schemas)
        for path, ways in document["paths"].items()
        for method, how in ways.items()
    ]
    return (
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8><title>Seqlab over HTTP</title>"
        '<meta name=viewport content="width=device-width"><link rel=stylesheet href="/page/manual.css"></head>\n'
        f"<body><main><h1>Seqlab {escape(document['info']['version'])} over HTTP</h1>\n"
        '<p>For machines: <a href="/openapi.json">openapi.json</a>. To try a model: <a href="/">the page</a>. '
        'Every failure is <code>{"error": "what was wrong", "hint": "what to do"}</code>.</p>\n'
        f"{''.join(parts)}</main></body></html>\n"
    )


def _route(path: str, method: str, how: dict[str, Any], schemas: dict[str, Any]) -> str:
    rows = [
        _row(p["name"], p["schema"], f"in the {p['in']}", p.get("required"))
        for p in how.get("parameters", [])
    ]
    if "requestBody" in how:
        rows += _fields(how["requestBody"]["content"]["application/json"]["schema"], schemas, "")
    table = f"<table><tr><th>name<th>type<th></tr>{''.join(rows)}</table>" if rows else ""
    answers = "".join(
        f"<li><b>{code}</b> {escape(', '.join(answer.get('content', {})))} {escape(answer['description'])}</li>"
        for code, answer in sorted(how["responses"].items())
    )
    description = escape(how.get("description", ""))
    return f"<section><h2>{method.upper()} {escape(path)}</h2><p>{description}</p>{table}<ul>{answers}</ul></section>\n"


def _fields(schema: dict[str, Any], schemas: dict[str, Any], prefix: str) -> list[str]:
    """A row for each field of a body, those of the tables in it after their own."""
    table = _resolved(schema, schemas)
    rows = []
    for name, field in table.get("properties", {}).items():
        rows.append(
            _row(
                prefix + name,
                field,
                field.get("description", ""),
                name in table.get("required", []),
            )
        )
        if "properties" in _resolved(field, schemas):
            rows += _fields(field, schemas, f"{prefix}{name}.")
    return rows


def _row(name: str, schema: dict[str, Any], description: str, required: object) -> str:
    kinds = ", ".join(dict.fromkeys(_kinds(schema)))
    default = "" if required else f" = {json.dumps(schema.get('default'))}"
    return f"<tr><td><code>{escape(name)}</code><td>{escape(kinds + default)}<td>{escape(description)}</tr>"


def _kinds(schema: dict[str, Any]) -> list[str]:
    if "anyOf" in schema:
        return [kind for part in schema["anyOf"] for kind in _kinds(part) if kind != "null"]
    if "enum" in schema:
        return [" | ".join(schema["enum"])]
    bounds = {"maximum": "≤ ", "maxLength": "≤ ", "maxItems": "≤ "}
    most = "".join(f" {sign}{schema[key]}" for key, sign in bounds.items() if key in schema)
    return ["object" if "$ref" in schema else f"{schema.get('type', 'any')}{most}"]


def _resolved(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    return schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema

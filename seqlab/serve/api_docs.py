"""The page /docs: the OpenAPI document as HTML, without a script."""

import json
from html import escape
from typing import Any


def api_docs_html(document: dict[str, Any]) -> str:
    """Return a page with every route: its description, the fields of its body, and its answers."""
    schemas = document["components"]["schemas"]
    routes = [
        _route(path, method, operation, schemas)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    ]
    return (
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8><title>Seqlab over HTTP</title>"
        '<meta name=viewport content="width=device-width"><link rel=stylesheet href="/page/api_docs.css"></head>\n'
        f"<body><main><h1>Seqlab {escape(document['info']['version'])} over HTTP</h1>\n"
        '<p>The same as <a href="/openapi.json">openapi.json</a>. To try a model, open <a href="/">the page</a>. '
        'Every error is answered with <code>{"error": "what was wrong", "hint": "what to do"}</code>.</p>\n'
        f"{''.join(routes)}</main></body></html>\n"
    )


def _route(path: str, method: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    rows = [
        _row(p["name"], p["schema"], f"in the {p['in']}", p.get("required"))
        for p in operation.get("parameters", [])
    ]
    if "requestBody" in operation:
        rows += _fields(
            operation["requestBody"]["content"]["application/json"]["schema"], schemas, ""
        )
    table = f"<table><tr><th>name<th>type<th></tr>{''.join(rows)}</table>" if rows else ""
    answers = "".join(
        f"<li><b>{code}</b> {escape(', '.join(answer.get('content', {})))} {escape(answer['description'])}</li>"
        for code, answer in sorted(operation["responses"].items())
    )
    description = escape(operation.get("description", ""))
    return f"<section><h2>{method.upper()} {escape(path)}</h2><p>{description}</p>{table}<ul>{answers}</ul></section>\n"


def _fields(schema: dict[str, Any], schemas: dict[str, Any], prefix: str) -> list[str]:
    """Return a table row for each field of a body; fields of a nested object follow it."""
    body = _resolve(schema, schemas)
    rows = []
    for name, field in body.get("properties", {}).items():
        required = name in body.get("required", [])
        rows.append(_row(prefix + name, field, field.get("description", ""), required))
        if "properties" in _resolve(field, schemas):
            rows += _fields(field, schemas, f"{prefix}{name}.")
    return rows


def _row(name: str, schema: dict[str, Any], description: str, required: object) -> str:
    types = ", ".join(dict.fromkeys(_types(schema)))
    default = "" if required else f" = {json.dumps(schema.get('default'))}"
    return f"<tr><td><code>{escape(name)}</code><td>{escape(types + default)}<td>{escape(description)}</tr>"


def _types(schema: dict[str, Any]) -> list[str]:
    if "anyOf" in schema:
        return [name for part in schema["anyOf"] for name in _types(part) if name != "null"]
    if "enum" in schema:
        return [" | ".join(schema["enum"])]
    bounds = {"maximum": "≤ ", "maxLength": "≤ ", "maxItems": "≤ "}
    most = "".join(f" {sign}{schema[key]}" for key, sign in bounds.items() if key in schema)
    return ["object" if "$ref" in schema else f"{schema.get('type', 'any')}{most}"]


def _resolve(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    return schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema

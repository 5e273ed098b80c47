"""Checks requests against the API's document (openapi.json), so that handlers see only what it describes.

The same document tells clients what to send and tests what to generate. Schemas are compiled when an operation is first
called; the work is bounded by the size of the body. Knows neither Twisted nor the endpoints.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

MAX_FINDINGS = 5
_INTEGER = re.compile(r"-?[0-9]{1,18}\Z")
"""Longer numbers are not converted: no number of the API has so many digits."""
_NAMES_ONLY = {"required", "additionalProperties"}
"""Errors that quote only names of the document and of the body, not values."""
_OF_VALUE = re.compile(
    r".* ((?:is (?:not|shorter|longer|less|greater)|does not match|has (?:more|less|fewer))\b.*)", re.DOTALL
)
"""The part of an error that follows the value it is about."""
_NUMBER = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?\Z")


class Unfit(Exception):
    """A request that the document does not describe; the text names the parts."""


class _Schema:
    """A schema of the document, compiled when it is first needed."""

    __slots__ = ("_document", "_schema", "_validator")

    def __init__(self, document: dict[str, Any], schema: dict[str, Any]) -> None:
        self._document, self._schema = document, schema
        self._validator: Any = None

    def iter_errors(self, value: object) -> Iterator[Any]:
        """The errors in a value."""
        if self._validator is None:
            import jsonschema_rs

            components = self._document.get("components", {})
            self._validator = jsonschema_rs.validator_for({"components": components, **self._schema})
        found: Iterator[Any] = self._validator.iter_errors(value)
        return found


class _Operation:
    __slots__ = ("body", "body_needed", "needed", "query")

    def __init__(self, document: dict[str, Any], item: dict[str, Any], operation: dict[str, Any]) -> None:
        described = [
            _resolved(document, one) for one in (*item.get("parameters", ()), *operation.get("parameters", ()))
        ]
        in_query = [one for one in described if one["in"] == "query"]
        self.query = {one["name"]: (one["schema"].get("type"), _Schema(document, one["schema"])) for one in in_query}
        self.needed = frozenset(one["name"] for one in in_query if one.get("required"))
        body = operation.get("requestBody", {})
        schema = body.get("content", {}).get("application/json", {}).get("schema")
        self.body = None if schema is None else _Schema(document, schema)
        self.body_needed = bool(body.get("required"))


class Contract:
    """The operations of a document, by method and path template."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._operations = {
            (method.upper(), path): _Operation(document, item, operation)
            for path, item in document["paths"].items()
            for method, operation in item.items()
            if method in {"get", "put", "post", "delete"}
        }

    def check_query(self, method: str, path: str, query: Mapping[str, Sequence[str]]) -> None:
        """Raise Unfit unless the parameters are those of the document."""
        operation = self._operations.get((method, path))
        if operation is None:
            return
        wrong = [f"{name} is needed" for name in sorted(operation.needed - query.keys())]
        for name, values in query.items():
            known = operation.query.get(name)
            if known is None:
                wrong.append(f"there is no parameter {name[:40]!r}; there are: {', '.join(operation.query) or 'none'}")
            elif len(values) != 1:
                wrong.append(f"{name} is given {len(values)} times")
            else:
                wrong += [f"{name}: {what}" for what in _wrong(known[1], _converted(values[0], known[0]))]
        _raise(wrong)

    def check_body(self, method: str, path: str, body: object) -> None:
        """Raise Unfit unless the body (None: there is none) is as the document says."""
        operation = self._operations.get((method, path))
        if operation is None or operation.body is None or (body is None and not operation.body_needed):
            return
        if body is None:
            raise Unfit("a body is needed: a JSON object")
        _raise(_wrong(operation.body, body, quoted=False))


def shipped() -> Contract:
    """The contract in the document of this package."""
    return Contract(json.loads(files("gateway.net").joinpath("static", "openapi.json").read_bytes()))


def _resolved(document: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    found: Any = document
    if "$ref" not in node:
        return node
    for part in node["$ref"].split("/")[1:]:
        found = found[part]
    return dict(found)


def _converted(text: str, kind: object) -> object:
    """A parameter converted to the type in its schema; text that cannot be converted is left for the schema to
    refuse."""
    if kind == "integer" and _INTEGER.match(text):
        return int(text)
    if kind == "number" and _NUMBER.match(text):
        return float(text)
    if kind == "boolean" and text in {"true", "false"}:
        return text == "true"
    return text


def _wrong(validator: _Schema, value: object, *, quoted: bool = True) -> list[str]:
    """The errors in a value, as texts. `quoted`: whether they may quote values. A body may hold a password or a
    message, and refusals are audited."""
    found = []
    for error in validator.iter_errors(value):
        place = ".".join(str(part) for part in error.instance_path)
        text = error.message if quoted or error.schema_path[-1] in _NAMES_ONLY else _without_value(error)
        text = text if len(text) <= 200 else text[:200] + "..."
        found.append(f"{place}: {text}" if place else text)
        if len(found) == MAX_FINDINGS:
            break
    return found


def _without_value(error: Any) -> str:
    found = _OF_VALUE.match(error.message)
    return found[1] if found is not None else f"does not fit `{error.schema_path[-1]}`"


def _raise(wrong: list[str]) -> None:
    if wrong:
        raise Unfit("; ".join(wrong[:MAX_FINDINGS]))

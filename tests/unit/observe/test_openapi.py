"""The OpenAPI document is whole: references resolve, schemas are schemas, every operation is described the same way."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

DOCUMENT: dict[str, Any] = json.loads((Path("gateway/net/static/openapi.json")).read_text())
METHODS = {"get", "put", "post", "delete"}


def operations() -> Iterator[tuple[str, str, dict[str, Any], list[dict[str, Any]]]]:
    for path, item in DOCUMENT["paths"].items():
        for method in METHODS & item.keys():
            yield path, method, item[method], [*item.get("parameters", []), *item[method].get("parameters", [])]


def references(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def resolve(reference: str) -> Any:
    node: Any = DOCUMENT
    for part in reference.removeprefix("#/").split("/"):
        node = node[part]
    return node


def test_every_reference_resolves_and_every_schema_is_used() -> None:
    used = set(references(DOCUMENT))
    for reference in used:
        assert resolve(reference)
    for kind in ("schemas", "parameters", "responses"):
        for name in DOCUMENT["components"][kind]:
            assert f"#/components/{kind}/{name}" in used, f"{name} is described and never used"


@pytest.mark.parametrize("name", DOCUMENT["components"]["schemas"])
def test_schemas_are_json_schema_2020_12(name: str) -> None:
    schema = {"components": DOCUMENT["components"], "$ref": f"#/components/schemas/{name}"}
    jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
    jsonschema_rs.validator_for(schema)


def test_operations_have_unique_names_roles_and_their_path_parameters() -> None:
    names = [operation["operationId"] for _, _, operation, _ in operations()]
    assert len(names) == len(set(names))
    for path, method, operation, parameters in operations():
        resolved = [resolve(each["$ref"]) if "$ref" in each else each for each in parameters]
        in_path = {each["name"] for each in resolved if each["in"] == "path"}
        assert in_path == set(re.findall(r"\{(\w+)\}", path)), path
        assert "401" in operation["responses"]
        changes = method != "get" and operation["operationId"] not in {"explain", "checkMapping", "signIn", "signOut"}
        assert operation["x-role"] in {"none", "viewer", "operator", "administrator"}
        assert not changes or operation["x-role"] in {"operator", "administrator"}, path
        refusable = operation["x-role"] in {"operator", "administrator"} or path == "/session" or "/messages" in path
        assert ("403" in operation["responses"]) == refusable, path

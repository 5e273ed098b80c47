"""JSON Schema (draft-07, which editors support) of the configuration files, from the field lists that read them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from gateway.config.model import Settings

DRAFT = "http://json-schema.org/draft-07/schema#"


def settings_schema() -> dict[str, Any]:
    """The schema of a file of settings."""
    return json_schema(Settings, "Settings of mqgate")


def json_schema(model: type[BaseModel], title: str) -> dict[str, Any]:
    """The schema of one kind of file."""
    schema = model.model_json_schema(by_alias=True, ref_template="#/definitions/{model}")
    definitions = schema.pop("$defs", {})
    draft_07: dict[str, Any] = _older({**schema, "definitions": definitions})
    return {"$schema": DRAFT, **draft_07, "title": title}


def _older(value: Any) -> Any:
    """Translate pydantic's draft 2020-12 into draft-07, and drop generated titles."""
    if isinstance(value, list):
        return [_older(item) for item in value]
    if not isinstance(value, dict):
        return value
    older = {key: _older(inner) for key, inner in value.items() if not (key == "title" and isinstance(inner, str))}
    if "prefixItems" in older:
        older["items"] = older.pop("prefixItems")
        older["additionalItems"] = False
    if "$ref" in older and len(older) > 1:  # draft-07 ignores what stands beside a $ref
        older["allOf"] = [{"$ref": older.pop("$ref")}]
    return older

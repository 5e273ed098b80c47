"""Validators of payloads: what they cannot read is refused, and does not end the process."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import jsonschema_rs
import pytest

from gateway.rules.payload_schema import compile_schema


class PanicException(BaseException):
    """An exception as a library in Rust raises it, which is no Exception."""


@pytest.mark.parametrize(
    ("raised", "refused"),
    [(PanicException("index out of bounds"), True), (KeyboardInterrupt(), False), (ValueError(), True)],
)
def test_a_validator_that_panics_refuses_the_document(
    monkeypatch: pytest.MonkeyPatch, raised: BaseException, refused: bool
) -> None:
    def panics(_document: object) -> bool:
        raise raised

    def validator_for(*_args: Any, **_options: Any) -> Any:
        return SimpleNamespace(is_valid=panics, validate=panics)

    monkeypatch.setattr(jsonschema_rs, "validator_for", validator_for)
    differs = compile_schema.__wrapped__("{}")
    if refused:
        assert differs({}, True) == "the schema cannot be applied to the document"
    else:
        with pytest.raises(type(raised)):
            differs({}, True)


TREE = {
    "$ref": "#/$defs/term",
    "$defs": {"term": {"oneOf": [
        {"type": "object", "required": ["op"],
         "properties": {"of": {"$ref": "#/$defs/term"}, "op": {"const": op}}} for op in ("sum", "product", "mean")
    ]}},
}  # fmt: skip


def test_alternatives_within_themselves_are_judged_and_not_told_apart() -> None:
    """Describing what is wrong with each alternative, and with each of its own, would take 6 to the power of the
    depth."""
    document: object = "neither"
    for _ in range(40):
        document = {"op": "sum", "of": document}
    differs = compile_schema(json.dumps(TREE))
    assert differs(document, True) == "the document does not match the schema"
    assert differs({"op": "sum"}, True) == ""


def test_the_place_is_told_where_alternatives_end() -> None:
    for schema in ({"properties": {"a": {"oneOf": [{"type": "null"}]}}},
                   {"$defs": {"n": {"type": "null"}}, "properties": {"a": {"$ref": "#/$defs/n"}}}):  # fmt: skip
        assert compile_schema(json.dumps(schema))({"a": 1}, True).startswith("a: the value")

"""Validators of payloads: what they cannot take in is refused, and ends nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jsonschema_rs
import pytest

from gateway.rules.payload_schema import compile_schema


class PanicException(BaseException):
    """As a library in Rust raises it: no Exception."""


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

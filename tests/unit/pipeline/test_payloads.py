"""Payload decoders: a document or an error for every payload, whatever a payload or a hook does."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from gateway.pipeline.decode.payloads import decoder
from gateway.pipeline.errors import WrongOption


def one(name: str, payload: bytes) -> tuple[object, str | None]:
    documents, errors = decoder(name)([payload])
    return (json.loads(documents[0]) if documents[0] is not None else None), errors[0]


def test_json_text_and_raw() -> None:
    assert one("json", b'{"a": 1}') == ({"a": 1}, None)
    assert one("text", "wärme".encode()) == ({"text": "wärme"}, None)
    assert one("raw", b"\xff\x00") == ({"length": 2, "base64": "/wA="}, None)


@pytest.mark.parametrize(
    ("name", "payload"), [("json", b"{"), ("json", b'{"a": NaN}'), ("text", b"\xff"), ("sparkplug_b", b"\x09")]
)
def test_bad_payloads_are_errors(name: str, payload: bytes) -> None:
    document, error = one(name, payload)
    assert document is None
    assert error


def test_cbor() -> None:
    cbor2 = pytest.importorskip("cbor2", reason="cbor2 is not installed: pip install '.[spark]'")
    assert one("cbor", cbor2.dumps({"t": 21.5, "raw": b"\1"})) == ({"t": 21.5, "raw": "AQ=="}, None)
    assert one("cbor", b"\xff")[0] is None
    assert "follow" in (one("cbor", cbor2.dumps(1) + b"\0")[1] or "")


def test_a_hook_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plant_hook.py").write_text("def read(payload):\n    return {'n': int(payload)}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert one("python:plant_hook:read", b"7") == ({"n": 7}, None)
    assert one("python:plant_hook:read", b"x")[1] == "ValueError: invalid literal for int() with base 10: b'x'"
    with pytest.raises(WrongOption, match="cannot be loaded"):
        decoder("python:plant_hook:absent")([b""])
    sys.modules.pop("plant_hook", None)


def test_an_unknown_decoder() -> None:
    with pytest.raises(WrongOption, match="use one of json, cbor"):
        decoder("jsn")([b""])

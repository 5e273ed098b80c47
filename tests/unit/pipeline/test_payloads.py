"""Payload decoders: a document or an error for every payload, whatever a payload or a hook does."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

import pytest

from gateway.pipeline.decode.payloads import decode_texts, decoder
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


def test_floats_that_json_does_not_have_are_null() -> None:
    """A metric or a reading that is not a number leaves the others of its payload what they are."""
    cbor2 = pytest.importorskip("cbor2", reason="cbor2 is not installed: pip install '.[spark]'")
    nan, inf = float("nan"), float("inf")
    assert one("cbor", cbor2.dumps({"t": nan, "n": 1, "list": [inf, {"a": -inf}]})) == (
        {"t": None, "n": 1, "list": [None, {"a": None}]}, None,
    )  # fmt: skip
    metric = b"\x0a\x01t\x20\x09\x65" + struct.pack("<f", nan)  # name, datatype Float, float_value
    good = b"\x0a\x01g\x20\x09\x65" + struct.pack("<f", 1.5)
    document, error = one("sparkplug_b", b"".join(b"\x12" + bytes([len(each)]) + each for each in (metric, good)))
    assert error is None
    assert isinstance(document, dict)
    assert document["values"] == {"t": None, "g": 1.5}


LONGER = "Größe: 日本 €"


@pytest.mark.parametrize(
    ("ccsid", "encoding", "codec", "text"),
    [
        (37, 785, "cp037", "Größe"), (500, 785, "cp500", "Größe"), (1047, 785, "ebcdic_1047", "Größe [x]"),
        (1140, 785, "cp1140", "Größe €"), (1141, 785, "ebcdic_1141", "Größe €"), (939, 785, "host_939", "日本 abc"),
        (943, 546, "cp932", "日本 abc"), (1200, 785, "utf-16-be", LONGER), (1200, 546, "utf-16-le", LONGER),
        (1202, 785, "utf-16-le", LONGER), (1208, 546, "utf-8", LONGER), (1252, 546, "cp1252", "Größe €"),
        (819, 273, "latin-1", "Größe"), (13488, 1, "utf-16-be", LONGER),
    ],
)  # fmt: skip
def test_text_of_character_sets(ccsid: int, encoding: int, codec: str, text: str) -> None:
    given = json.dumps({"text": text}, ensure_ascii=False)
    payloads = [text.encode(codec), given.encode(codec), None]
    documents, errors = decode_texts("text", payloads, [ccsid] * 3, [encoding] * 3)
    assert (json.loads(documents[0] or ""), errors) == ({"text": text}, [None] * 3)
    assert decode_texts("json", payloads, [ccsid] * 3, [encoding] * 3)[0] == [text, given, None]


def test_text_that_cannot_be_converted_is_an_error() -> None:
    wrong = {
        (b"x", 60000): "MQRC 2111: CCSID 60000 of the message is not known here",
        (b"{\x00}", 1200): "MQRC 2119: byte 2 is not a character of utf-16-be: truncated data",
        (b"\x81", 943): "MQRC 2119: byte 0 is not a character of cp932: incomplete multibyte sequence",
    }
    for (payload, ccsid), error in wrong.items():
        assert decode_texts("json", [payload], [ccsid], [785]) == ([None], [error])
    assert decode_texts("json", ["\ufeff{}".encode("utf-16-be")], [1200], [785]) == (["{}"], [None])


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

"""JSON text: what is not JSON by RFC 8259 is refused, and whatever is read can be written again."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.mqtt.json_text import read_json

HALF = [
    b'{"a": "\\ud800"}', b'{"a": "\\uDFFF"}', b'{"\\ud800": 1}', b'["\\udc00\\ud800"]', b'"\xed\xa0\x80"',
    '{"a": "\ud800"}'.encode("utf-16", "surrogatepass"), b'{"a": "\\\\\\ud800"}',
]  # fmt: skip


@pytest.mark.parametrize("raw", HALF)
def test_half_of_a_surrogate_pair_is_no_character(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_json(raw)


@pytest.mark.parametrize(
    "raw", [b'{"a": NaN}', b'{"a": -Infinity}', b"{", b"\xff", b"1" * 5000, b"", b'{"a": 1}{}', b'"\n"', b"1e999"]
)
def test_what_is_no_json_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_json(raw)


@pytest.mark.parametrize(("raw", "document"), [
    (b'{"a": "\\ud83d\\ude00"}', {"a": "\U0001f600"}), (b'"\\\\ud800"', "\\ud800"), (b'\xef\xbb\xbf"x"', "x"),
    ('{"a": "\U0001f600"}'.encode("utf-16"), {"a": "\U0001f600"}),
    (b'{"a": 1, "a": 2}', {"a": 2}), (b"1" * 4000, int("1" * 4000)), (b"-18446744073709551617", -(2**64) - 1),
])  # fmt: skip
def test_what_is_json_is_read(raw: bytes, document: object) -> None:
    assert read_json(raw) == document


def test_nesting() -> None:
    """500 levels are read wherever the reader is in the stack; nesting without end is an error, not a crash."""
    document: object = read_json(b'{"a":' * 500 + b"1" + b"}" * 500)
    for _ in range(500):
        assert isinstance(document, dict)
        document = document["a"]
    for endless in (b"[" * 1_000_000, b"[" * 1_000_000 + b"]" * 1_000_000):
        with pytest.raises((ValueError, RecursionError)):
            read_json(endless)


@given(st.binary(max_size=40) | st.text(alphabet='\\ud8D0cFf9"{}[]:,1e-', max_size=30).map(str.encode))
def test_whatever_is_read_can_be_written(raw: bytes) -> None:
    try:
        document = read_json(raw)
    except (ValueError, RecursionError):
        return
    json.dumps(document, ensure_ascii=False).encode()

"""The notation of the conformance cases says what it means, and every step of every case can be read."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from conformance_client import Client
from conformance_notation import to_bytes, to_pattern

CONFORMANCE = Path(__file__).parent


@pytest.mark.parametrize(
    ("text", "version", "encoded"),
    [
        ("C000", 4, "C000"),
        ("30 [ s'a/b' p() 'x' ]", 4, "3006 0003 612F62 78"),
        ("30 [ s'a/b' p(0101) 'x' ]", 5, "3009 0003 612F62 020101 78"),
        ("10 [ N 02 000A s'c' ]", 3, "100F 0006 4D5149736470 03 02 000A 0001 63"),
        ("5(01) 3(02) 31(03) 311(04)", 4, "0204"),
        ("b(78*3)", 4, "0003 787878"),
        ("30 [ 78*200 ]", 4, "30C801" + "78" * 200),
    ],
)
def test_bytes(text, version, encoded):
    assert to_bytes(text, version) == bytes.fromhex(encoded)


def test_patterns():
    assert to_pattern("40 [ 0001 5(*) ]", 5).fullmatch(b"\x40\x00\x01\x10")
    assert not to_pattern("40 [ 0001 5(*) ]", 4).fullmatch(b"\x40\x00\x01\x10")
    assert to_pattern("20 [ 0000 p(*) ]", 5).fullmatch(b"\x20\0\0\x03\x21\0\x0a")
    assert to_pattern("32 [ s'a' .. .. p() * ]", 4).fullmatch(b"\x32\0\1a\x12\x34anything\n")


@pytest.mark.parametrize("path", sorted(CONFORMANCE.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_step_can_be_read(path):
    for case in yaml.safe_load(path.read_text()):
        assert set(case) <= {"name", "versions", "profile", "steps"}
        for step in filter(None, map(str.strip, case["steps"].splitlines())):
            name, _, rest = step.partition(" ")
            if name in {"restart", "kill", "wait", "shares"}:
                continue
            verb, _, text = rest.partition(" ")
            if verb == ">":
                to_bytes(text, 5)
            elif verb in {"<", "<|"}:
                assert all(to_pattern(part, 5) for part in text.split("||"))
            else:
                assert hasattr(Client, verb), step

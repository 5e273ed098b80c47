"""The compiled loops over copies of a session against the Python that does the same."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.session import copy_columns
from gateway.session.copies import Copies
from gateway.session.outflow import Item
from gateway.session.publication import Publication

COMPILED = copy_columns.compiled is not None
PAYLOADS = st.lists(st.binary(max_size=5) | st.integers(120, 130).map(bytes), max_size=8)

pytestmark = pytest.mark.skipif(not COMPILED, reason="no compiler where the gateway was installed")


def test_the_compiled_loops_are_there() -> None:
    assert COMPILED or not os.environ.get("CI"), "tests/run installs a compiler and Python's headers"


@given(
    PAYLOADS, st.integers(0, 65_528), st.none() | st.lists(st.binary(max_size=3), min_size=8, max_size=8), st.binary()
)
def test_what_is_stored(payloads: list[bytes], first: int, blocks: list[bytes] | None, back: bytes) -> None:
    blocks = blocks and blocks[: len(payloads)]
    given_ = (payloads, first, blocks, back)
    assert copy_columns.numbered(*given_) == copy_columns.numbered_in_python(*given_)


@given(
    PAYLOADS, st.sampled_from([0x30, 0x32, 0x34]),
    st.binary(max_size=4) | st.lists(st.binary(max_size=3), min_size=8, max_size=8), st.binary(max_size=4),
    st.integers(1, 65_528),
    st.integers(0, 8), st.integers(0, 8), st.integers(0, 2), st.integers(0, 160),
    st.none() | st.lists(st.binary(max_size=3) | st.integers(120, 130).map(bytes), min_size=8, max_size=8),
    st.binary(max_size=3),
)  # fmt: skip
@example([bytes(16_400), b"", bytes(2_097_152)], 0x32, b"t", b"", 1, 0, 3, 0, 1 << 28, None, b"")
def test_packets(
    payloads: list[bytes], first: int, topic: bytes | list[bytes], middle: bytes, packet_id: int, one: int, other: int,
    width: int, longest: int, blocks: list[bytes] | None, back: bytes,
) -> None:  # fmt: skip
    bodies = [bytes(width) + payload for payload in payloads]
    begin, end = sorted((min(one, len(bodies)), min(other, len(bodies))))
    topic = topic[: end - begin] if isinstance(topic, list) else topic
    given_ = (first, topic, middle, packet_id, bodies, begin, end, width, longest, blocks, back)
    assert copy_columns.wire(*given_) == copy_columns.wire_in_python(*given_)


def puback(packet_id: int, reason: int | None = None, block: bytes | None = None, first: int = 0x40) -> bytes:
    rest = packet_id.to_bytes(2, "big") + (b"" if reason is None else bytes((reason,))) + (block or b"")
    return bytes((first, len(rest))) + rest


PUBACKS = st.one_of(
    st.builds(puback, st.integers(1, 14)),
    st.builds(puback, st.integers(1, 14)),
    st.builds(puback, st.integers(1, 14), st.sampled_from([0, 0x10, 0x80, 0x99, 0x11])),
    st.builds(puback, st.integers(1, 14), st.sampled_from([0, 0x87]), st.sampled_from([b"\x00", b"\x01", b"\x00x"])),
    st.sampled_from([b"\x40", b"\x40\x02", b"\x40\x02\x00", b"\xc0\x00", b"\x41\x02\x00\x01", b"\x40\x00"]),
    st.just(b"\x40\x82\x00\x00\x01"),
    st.builds(puback, st.integers(1, 14), st.sampled_from([None, 0, 0x92, 0x10]), st.none(), st.just(0x70)),
)  # fmt: skip


def in_flight(kinds: list[str]) -> dict[int, Any]:
    """Packet identifiers from 1: runs of copies, stored or not, and single ones."""
    found: dict[int, Any] = {}
    at = 1
    for kind in kinds:
        qos = 2 if kind in {"qos 2", "released", "released one"} else 1
        like = Publication(b"t", b"p" * at, qos, False, report=b"r" if kind == "report" else b"")
        if kind in {"stored", "memory", "qos 2", "released"}:
            bodies = [b"ab" + bytes(number) for number in range(3)]
            several = Copies(like, qos, (), bodies, 2, at, range(at, at + 3) if kind in {"stored", "released"} else ())
            several.released = kind == "released"
            found.update(dict.fromkeys(range(at, at + 3), several))
            at += 3
        elif kind != "nothing":
            found[at] = Item(like, qos, False, (), at, None if kind == "single" else at)
            found[at].released = kind == "released one"
            at += 1
        else:
            at += 1
    return found


KINDS = st.sampled_from(
    ["stored", "stored", "memory", "qos 2", "released", "released one", "single", "kept", "report", "nothing"]
)


@given(st.lists(KINDS, max_size=6), st.lists(PUBACKS, max_size=8).map(b"".join), st.integers(0, 3),
       st.sampled_from([0x40, 0x70]), st.booleans())  # fmt: skip
@example(["stored"], b"".join(map(puback, (1, 2, 3))), 0, 0x40, False)
@example(["stored"], b"".join(map(puback, (3, 2, 2, 1))), 0, 0x40, True)
@example(["released"], b"\x70\x02\x00\x01\x70\x02\x00\x02\x70\x03\x00\x03\x92", 0, 0x70, True)
def test_acknowledgements(kinds: list[str], data: bytes, offset: int, first: int, version_5: bool) -> None:
    results = []
    for settle in (copy_columns.settle, copy_columns.settle_in_python):
        inflight, tokens = in_flight(kinds), ["one before"]
        offset = min(offset, len(data))
        found = settle(data, offset, first, version_5, inflight, tokens)
        results.append((found, tokens, list(inflight)))
    assert results[0] == results[1]


def test_wrong_arguments_are_refused() -> None:
    compiled = copy_columns.compiled
    like = Publication(b"t", b"", 1, False)
    for call in (
        lambda: compiled.numbered((b"",), 1),
        lambda: compiled.numbered([1], 1),
        lambda: compiled.numbered([b""], 65_536),
        lambda: compiled.wire(0x32, b"t", b"", 65_535, [b"", b""], 0, 2, 0, 99),
        lambda: compiled.wire(0x32, b"t", b"", 1, [b""], 0, 1, 2, 99),
        lambda: compiled.wire(0x32, b"t", b"", 1, [b""], 2, 1, 0, 99),
        lambda: compiled.wire(0x32, [b"t"], b"", 1, [b"", b""], 0, 2, 0, 99),
        lambda: compiled.wire(0x32, [1], b"", 1, [b""], 0, 1, 0, 99),
        lambda: compiled.wire(0x32, (b"t",), b"", 1, [b""], 0, 1, 0, 99),
        lambda: compiled.wire(0x40, b"t", b"", 1, [b""], 0, 1, 0, 99),
        lambda: compiled.settle(b"", -1, 0x40, False, {}, []),
        lambda: compiled.settle(bytearray(), 0, 0x40, False, {}, []),
        lambda: compiled.settle(puback(9), 0, 0x40, False, {9: Copies(like, 1, (), [b""], 0, 1)}, []),
        lambda: compiled.settle(b"", 0, 0x50, False, {}, []),
        lambda: compiled.numbered([b"", b""], 1, [b""], b""),
        lambda: compiled.wire(0x32, b"t", b"", 1, [b"", b""], 0, 2, 0, 99, [b""], b""),
        lambda: compiled.configure(Copies, Copies, Publication),
    ):
        with pytest.raises((TypeError, ValueError, AttributeError)):
            call()

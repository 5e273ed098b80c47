"""The bytes of the buffer's records: plain where packing gains nothing, packed to the same bytes whichever packer wrote
them. What is deflated may be other bytes with another zlib, and is read all the same."""

from __future__ import annotations

import hashlib
import textwrap
from pathlib import Path

import pytest

from gateway.backends.buffer import heads
from gateway.backends.buffer.record import Record, decode, encode, front_of
from gateway.ports.batch import Puts, Replace, Takes, Unit
from gateway.queue_manager.store.packed_heads import NoPacking, PackingInPython, new_packing

GOLDEN = Path(__file__).parent / "buffer"
PACKINGS = [PackingInPython] if new_packing is NoPacking else [PackingInPython, new_packing]


def golden(name: str) -> bytes:
    return bytes.fromhex((GOLDEN / f"record-{name}.hex").read_text())


def head(line: int) -> bytes:
    return b"MD  " + bytes(range(96)) + b"<mqps><Top>plant/lima/line/%d/temperature</Top></mqps>" % line


def record() -> Record:
    heads = [head(line) for line in (7, 8, 10, 7)]
    retained = Puts("topic://plant/é", heads=[head(8)], bodies=[b"on"], persistent=False)
    retained.retain = True
    puts = [
        Puts("TELEMETRY", "QM2", b"", 4, heads=heads, bodies=[b"21.5", b"", b"x" * 300, b"22"]),
        retained,
        Puts("EMPTY", key=b"device", priority=-1),
    ]
    takes = [Takes("COMMANDS", b"", [b"m" * 24]), Takes("MQGATE.STAGED", b"device", [1 << 40 | 7, 2])]
    replaces = [Replace("MQGATE.STATE", b"a", b"body"), Replace("MQGATE.STATE", b"b", None)]
    return Record(3 << 40 | 1, 1_767_225_600.25, Unit(puts, takes, [], replaces), ["line temperature", "retained", ""])


def test_a_plain_record_is_read_and_written_where_packing_gains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert decode(golden("plain")) == record()
    monkeypatch.setattr(heads, "FEW_ROWS", 0)
    assert encode(record()) == encode(record(), NoPacking()) == golden("plain")


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_packed_record_is_read_and_written(packing: type, monkeypatch: pytest.MonkeyPatch) -> None:
    assert decode(golden("packed")) == record()
    assert front_of(golden("packed")) == (3 << 40 | 1, 1_767_225_600.25, 5)
    monkeypatch.setattr(heads, "FEW_ROWS", 0)
    assert encode(record(), packing()).hex() == golden("packed").hex()


@pytest.mark.parametrize("name", ["deflated", "packed-deflated"])
def test_what_is_deflated_is_read(name: str) -> None:
    assert decode(golden(name)) == record()
    packing = NoPacking() if name == "deflated" else PackingInPython()
    assert len(encode(record(), packing)) == pytest.approx(len(golden(name)), rel=0.05)


def test_the_dictionary_is_part_of_the_format() -> None:
    assert hashlib.sha256(heads.DICTIONARY).hexdigest() == (
        "08a9974d1f4eb4bbb33467106ac2fbc74210b508fbe5842b5928c7882df05643"
    )


def write(name: str, data: bytes) -> None:
    """What made the files."""
    (GOLDEN / f"record-{name}.hex").write_text("\n".join(textwrap.wrap(data.hex(), 120)) + "\n")

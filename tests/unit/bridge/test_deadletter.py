"""Dead letters: bytes of the header, truncation, and the way back."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.bridge import deadletter
from gateway.errors import HeaderError
from gateway.mq import mqmd
from gateway.mq.headers import dlh

NOW = 1_800_000_000.25
MD = mqmd.build(
    persistence=1, msg_id=b"m" * 24, correl_id=b"c" * 24, format="MQHRF2", coded_char_set_id=1208,
    user_identifier="bob", expiry=50, report=0x100,
)  # fmt: skip


def test_the_header_is_exactly_these_bytes():
    letter = deadletter.build(MD + b"RFH2", b"body", reason=2053, queue="Q1", queue_manager="QM1", now=NOW)
    wanted = struct.pack(
        "<4sii48s48sii8si28s8s8s",
        b"DLH ", 1, 2053, b"Q1".ljust(48), b"QM1".ljust(48), 546, 1208, b"MQHRF2  ", 6, b"mqgate".ljust(28),
        b"20270115", b"08000025",
    )  # fmt: skip
    assert letter.head[364:] == wanted
    assert letter.body == b"RFH2body"


def test_what_is_refused_together_keeps_what_each_says_of_its_data():
    described = [("MQSTR", 273, 37), ("MQHRF2", 546, 1208), ("", 273, 37)]
    for name, encoding, ccsid in described:
        md = mqmd.with_described(MD, encoding, ccsid, name.encode().ljust(8))
        header = dlh.parse(deadletter.build(md, b"", reason=2053, queue="Q1", now=NOW).head, 364)
        assert (header.format, header.encoding, header.coded_char_set_id) == (name.encode().ljust(8), encoding, ccsid)


def test_identity_context_and_persistence_stay_and_expiry_goes():
    md = mqmd.unpack(deadletter.build(MD, b"", reason=1, queue="Q", now=NOW).head)
    assert (md.format, md.coded_char_set_id, md.encoding) == ("MQDEAD", 1208, 546)
    assert (md.msg_id, md.correl_id, md.persistence, md.user_identifier) == (b"m" * 24, b"c" * 24, 1, "bob")
    assert (md.expiry, md.report) == (-1, 0x100)


@pytest.mark.parametrize(("limit", "kept"), [(None, 10), (182, 10), (181, 9), (172, 0), (100, 0)])
def test_what_is_too_long_is_cut_and_the_header_counts(limit, kept):
    letter = deadletter.build(MD, b"0123456789", reason=1, queue="Q", now=NOW, max_length=limit)
    header = dlh.parse(letter.head, 364)
    assert (len(letter.body), deadletter.cut_bytes(header)) == (kept, 10 - kept)
    assert header.put_appl_name == ("mqgate" if kept == 10 else f"mqgate: {10 - kept} bytes cut")


@given(st.binary(max_size=40), st.binary(max_size=40), st.text(max_size=80), st.integers(0, 2**31 - 1))
def test_stripping_restores_the_message(first, rest, queue, reason):
    letter = deadletter.build(MD + first, rest, reason=reason, queue=queue, now=NOW)
    header, md, data = deadletter.strip(letter.head[:364], letter.head[364:] + letter.body)
    assert header.reason == reason
    assert data == first + rest
    assert mqmd.with_expiry(md, 50) == MD


def test_a_message_without_the_header_is_no_dead_letter():
    with pytest.raises(HeaderError):
        deadletter.strip(MD, b"short")


def test_a_header_in_another_character_set_and_byte_order():
    """As queue managers on z/OS write it."""

    def ebcdic(text: str, length: int) -> bytes:
        return text.ljust(length).encode("cp500")

    header = struct.pack(
        ">4sii48s48sii8si28s8s8s",
        ebcdic("DLH", 4), 1, 2053, ebcdic("Q1", 48), ebcdic("QM1", 48), 785, 500, ebcdic("MQSTR", 8), 1,
        ebcdic("CICS", 28), ebcdic("20270115", 8), ebcdic("08000025", 8),
    )  # fmt: skip
    described = mqmd.with_described(MD, 785, 500, b"MQDEAD  ")
    found, md, data = deadletter.strip(described, header + b"\xc1")
    assert (found.reason, found.dest_q_name, found.dest_q_mgr_name) == (2053, "Q1", "QM1")
    assert (found.put_date, found.put_time) == ("20270115", "08000025")
    assert md == mqmd.with_described(MD, 785, 500, b"MQSTR   ")
    assert data == b"\xc1"

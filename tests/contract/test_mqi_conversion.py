"""The contract of the MQI port: MQGMO_CONVERT. Section 7 of the MQI reference, Conversion."""

from __future__ import annotations

import pytest
from embedded_rig import md

from gateway.mq import pcf
from gateway.mq.headers import chain, dlh, header
from gateway.queue_manager.descriptor import Descriptor

CONVERT, ACCEPT, NO_SYNC, BROWSE = 0x4000, 64, 4, 16
EBCDIC, BIG_ENDIAN = 500, 785


@pytest.fixture
def handle(mqi):
    """A queue open for everything."""
    return mqi.open("A")


def wanted(ccsid=EBCDIC, encoding=BIG_ENDIAN):
    """The caller's MQMD before MQGET."""
    return md(ccsid=ccsid, encoding=encoding)


def put(mqi, handle, data, form=b"MQSTR", ccsid=1208, encoding=546):
    mqi.put(handle, data, descriptor=md(format=form, ccsid=ccsid, encoding=encoding))


def get(mqi, handle, descriptor=None, options=0, length=1 << 20):
    return mqi.get(handle, CONVERT | NO_SYNC | options, descriptor or wanted(), length)


def outcome(got):
    """Completion, reason, and what the descriptor says of the data."""
    found = Descriptor(got.md)
    return got.comp_code, got.reason, found.ccsid, found.encoding


def test_text(mqi, handle):
    put(mqi, handle, "größe".encode())
    got = get(mqi, handle)
    assert (got.data, got.length) == ("größe".encode("cp500"), 5)
    assert outcome(got) == (0, 0, EBCDIC, BIG_ENDIAN)


def test_nothing_asked_is_native_and_the_queue_managers(mqi, handle):
    put(mqi, handle, "größe".encode("cp500"), ccsid=EBCDIC, encoding=BIG_ENDIAN)
    got = get(mqi, handle, wanted(0, 0))
    assert (got.data, *outcome(got)) == ("größe".encode(), 0, 0, 1208, 546)


def test_headers_and_what_follows(mqi, handle):
    data = dlh.build(2053, "WANTED", "QM1", md(format=b"MQSTR", ccsid=1208)) + b"text"
    put(mqi, handle, data, b"MQDEAD")
    got = get(mqi, handle)
    assert outcome(got) == (0, 0, EBCDIC, BIG_ENDIAN)
    walked = chain.walk(got.md, got.data)
    assert (walked.headers[0]["Reason"], walked.headers[0].text("DestQName")) == (2053, "WANTED")
    assert (walked.body.ccsid, walked.body.encoding, walked.payload) == (EBCDIC, BIG_ENDIAN, "text".encode("cp500"))


def test_command_messages(mqi, handle):
    data = pcf.build(pcf.Message(1, 13, [pcf.string(2016, "APP.*"), pcf.integer(20, 1)]))
    put(mqi, handle, data, b"MQADMIN")
    got = get(mqi, handle)
    assert outcome(got) == (0, 0, EBCDIC, BIG_ENDIAN)
    command = pcf.parse(got.data, order=">")
    assert (command.command, command.parameters[0].ccsid, command.parameters[1].value) == (13, EBCDIC, 1)


@pytest.mark.parametrize(
    ("form", "ccsid", "data", "target", "reason"),
    [
        (b"", 1208, b"\1\2", EBCDIC, 2110),
        (b"OWNKIND", 1208, b"abc", EBCDIC, 2110),
        (b"MQDEAD", 1208, b"short", EBCDIC, 2110),
        (b"MQSTR", 1208, b"a\xff", EBCDIC, 2119),
        (b"MQSTR", 60000, b"abc", EBCDIC, 2111),
        (b"MQSTR", 1208, b"abc", 60000, 2115),
        (b"MQDEAD", 819, header.build(
            "MQDLH", {"DestQName": "ß" * 48, "Format": "MQSTR", "CodedCharSetId": 819}, charset="latin-1"), 1208, 2190),
    ],
)  # fmt: skip
def test_what_cannot_be_converted_comes_as_it_is_and_is_gone(mqi, handle, form, ccsid, data, target, reason):
    put(mqi, handle, data, form, ccsid)
    got = get(mqi, handle, wanted(target))
    assert (got.data, got.length, *outcome(got)) == (data, len(data), 1, reason, ccsid, 546)
    assert mqi.depth("A") == 0


@pytest.mark.parametrize(("form", "data"), [(b"MQSTR", b""), (b"", b""), (b"", b"\1")])
def test_no_need_no_warning(mqi, handle, form, data):
    put(mqi, handle, data, form)
    got = get(mqi, handle, None if not data else wanted(1208, 546))
    assert (got.data, got.comp_code) == (data, 0)


# Buffers


def test_fits_before_but_not_after(mqi, handle):
    put(mqi, handle, "größe".encode("latin-1"), ccsid=819)
    got = get(mqi, handle, wanted(1208), BROWSE, 6)
    assert (got.data, got.length, *outcome(got)) == ("größe".encode("latin-1"), 5, 1, 2120, 819, 546)
    got = get(mqi, handle, wanted(1208), ACCEPT, 6)
    assert (got.data, got.length, *outcome(got)) == ("größe".encode()[:6], 5, 1, 2079, 1208, BIG_ENDIAN)
    assert mqi.depth("A") == 0


def test_too_long_and_not_accepted_stays_unconverted(mqi, handle):
    put(mqi, handle, b"0123456789")
    got = get(mqi, handle, length=4)
    assert (got.data, got.length, *outcome(got)) == (b"0123", 10, 1, 2080, 1208, 546)
    assert mqi.depth("A") == 1


def test_too_long_and_accepted_is_converted_as_far_as_it_goes(mqi, handle):
    put(mqi, handle, b"0123456789")
    got = get(mqi, handle, options=ACCEPT, length=4)
    assert (got.data, got.length, *outcome(got)) == ("0123".encode("cp500"), 10, 1, 2079, EBCDIC, BIG_ENDIAN)
    assert mqi.depth("A") == 0


def test_a_failed_conversion_says_so_even_when_cut(mqi, handle):
    put(mqi, handle, b"0123456789", b"OWNKIND")
    got = get(mqi, handle, options=ACCEPT, length=4)
    assert (got.data, got.length, *outcome(got)) == (b"0123", 10, 1, 2110, 1208, 546)


def test_no_buffer_no_conversion(mqi, handle):
    put(mqi, handle, b"abc")
    got = get(mqi, handle, options=ACCEPT, length=0)
    assert (got.data, got.length, *outcome(got)) == (b"", 3, 1, 2079, 1208, 546)

"""Reports: only when asked for, with the identifiers and as much data as asked for."""

from __future__ import annotations

import pytest

from gateway.bridge import reports
from gateway.mq import mqmd

ASKED = {"reply_to_q": "R", "reply_to_q_mgr": "QM", "msg_id": b"m" * 24, "correl_id": b"c" * 24, "persistence": 1}
DATA = bytes(range(256))


def md(report, **more):
    return mqmd.build(**ASKED | {"priority": 4, "format": "MQSTR", "coded_char_set_id": 1208, "report": report} | more)


@pytest.mark.parametrize(
    ("make", "option", "feedback"),
    [
        (lambda md, data: reports.exception(md, data, 2053), 0x1000000, 2053),
        (reports.expired, 0x200000, 258),
        (reports.positive, 1, 275),
        (reports.negative, 2, 276),
    ],
)
def test_a_report_is_made_when_its_option_is_set_and_there_is_a_queue(make, option, feedback):
    assert make(md(0), DATA) is None
    assert make(md(option, reply_to_q=""), DATA) is None
    report = make(md(option), DATA)
    made = mqmd.unpack(report.head)
    assert (report.queue, report.queue_manager, report.persistent, report.priority) == ("R", "QM", True, 4)
    assert (made.msg_type, made.feedback, made.report, made.expiry) == (4, feedback, 0, -1)
    assert (made.msg_id, made.correl_id) == (bytes(24), b"m" * 24)
    assert (report.body, made.format) == (b"", "")


def test_identifiers_are_passed_when_asked_for():
    made = mqmd.unpack(reports.positive(md(1 | 0x40 | 0x80), DATA).head)
    assert (made.msg_id, made.correl_id) == (b"m" * 24, b"c" * 24)


def test_expiry_and_discarding_are_passed_when_asked_for():
    made = mqmd.unpack(reports.positive(md(1 | 0x4000 | 0x8000000, expiry=50), DATA).head)
    assert (made.expiry, made.report) == (50, 0x8000000)
    made = mqmd.unpack(reports.expired(md(0x200000 | 0x4000, expiry=1), DATA).head)
    assert made.expiry == 600, "nothing is left of the message's own"
    assert reports.discards(md(0x8000000))
    assert not reports.discards(md(0))


@pytest.mark.parametrize(("option", "length"), [(0x1000000, 0), (0x3000000, 100), (0x7000000, 256)])
def test_as_much_data_as_asked_for(option, length):
    report = reports.exception(md(option), DATA, 1)
    made = mqmd.unpack(report.head)
    assert report.body == DATA[:length]
    assert (made.format, made.coded_char_set_id) == (("MQSTR", 1208) if length else ("", 0))


def test_headers_do_not_count_as_data_and_broken_ones_do_no_harm():
    report = reports.exception(md(0x3000000, format="MQHRF2"), b"not a header" + DATA, 1)
    assert len(report.body) == 100

"""Heads: descriptor and headers to column values; whatever is damaged becomes `header_error`."""

from __future__ import annotations

from device_fleet import descriptor, device_template
from hypothesis import given
from hypothesis import strategies as st

from gateway.mq import mqmd
from gateway.mq.headers import dlh, rfh2
from gateway.mq.headers.rfh2_folder import folder
from gateway.pipeline.decode.heads import decode_head, moment, put_micros


def test_a_device_message() -> None:
    template = device_template(3)
    data = template.head + template.tails[7] + b"payload"
    head = decode_head(descriptor(put_date="20261121", put_time="17304512"), data)
    values = head.values
    assert (values["topic"], values["client_id"], values["qos"]) == ("plant/site3/dev0003/telemetry", "dev0003", 1)
    assert (values["user_id"], values["persistence"], values["format"]) == ("plant", 1, "")
    assert head.properties == (("site", "site3"), ("line", "3"))
    assert data[head.body_at :] == b"payload"
    assert head.put_micros == 1_795_282_245_120_000


def test_a_dead_letter_with_headers_behind_it() -> None:
    usr = folder("usr", {"site": "lima", "received": "2026-11-21T10:00:00.500Z"})
    inner = rfh2.build([usr, folder("jms", {"Dst": "q"})])
    letter = dlh.build(2085, "ORDERS", "QM9", descriptor())
    head = decode_head(mqmd.build(format=b"MQDEAD  "), letter + inner + b"x")
    named = [head.values[name] for name in ("dlq_reason", "dlq_dest_q", "dlq_dest_qmgr")]
    assert named == [2085, "ORDERS", "QM9"]
    assert dict(head.properties) == {"site": "lima", "received": "2026-11-21T10:00:00.500Z", "jms.Dst": "q"}
    assert head.values["recv_ts"] == 1_795_255_200_500_000


def test_a_message_without_headers() -> None:
    head = decode_head(mqmd.build(format=b"MQSTR   ", coded_char_set_id=1208), b"text")
    assert (head.body_at, head.values["format"], head.values["ccsid"], head.values["header_error"]) == (
        0,
        "MQSTR",
        1208,
        None,
    )


@given(st.binary(max_size=120), st.sampled_from([b"MQHRF2  ", b"MQDEAD  ", b"MQXMIT  ", b"MQHMDE  "]))
def test_any_bytes_behind_any_format(data: bytes, format_name: bytes) -> None:
    head = decode_head(mqmd.build(format=format_name), data)
    assert 0 <= head.body_at <= len(data)


@given(st.data())
def test_damage_in_a_whole_message(data: st.DataObject) -> None:
    template = device_template(3)
    whole = bytearray(descriptor() + template.head + template.tails[7] + b"payload")
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(8, len(whole) - 1))] = data.draw(st.integers(0, 255))
    head = decode_head(bytes(whole[:364]), bytes(whole[364:]))
    assert head.body_at <= len(whole) - 364
    assert all(isinstance(name, str) for name, _ in head.properties)


def test_times() -> None:
    assert put_micros("20261121", "24000000") is not None
    assert put_micros("        ", "        ") is None
    assert put_micros("20261399", "10000000") is None
    assert moment("1700000000") == moment("1700000000000") == moment("2023-11-14T22:13:20Z") == 1_700_000_000_000_000
    assert [moment(one) for one in ("soon", "--5", "\u00b2")] == [None, None, None]
    assert put_micros("20261128", "12345\u00b27") is None
    assert [put_micros("20261128", time) for time in ("99000000", "12600000", "12006200")] == [None] * 3
    assert put_micros("20261128", "12006100") == put_micros("20261128", "12010100"), "a leap second (PutTime, note 1)"
    assert (put_micros("99991231", "23595999"), put_micros("99991231", "24000000")) == (253_402_300_799_990_000, None)
    assert put_micros("19691231", "23595999") == -10_000


def test_times_beyond_what_tables_hold() -> None:
    """A device may send any user property `received`."""
    outside = ("9" * 20, "-" + "9" * 20, "9" * 18, "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59")
    assert [moment(one) for one in outside] == [None] * 5
    assert moment("9999-12-31T23:59:59.999999Z") == 253_402_300_799_999_999

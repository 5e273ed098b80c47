"""W3C Trace Context, byte for byte: same trace, our span as the parent, everything else as it came."""

from __future__ import annotations

import pytest

from gateway.bridge import trace
from gateway.bridge.inbound import Origin, plan
from gateway.bridge.payload import Body
from gateway.mq import mqmd
from gateway.routing.table import compile_mappings
from gateway.rules.parse import parse_mappings

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
SPAN = bytes.fromhex("0123456789abcdef")


def our_span() -> bytes:
    return SPAN


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-0123456789abcdef-01"),
        (f"00-{TRACE}-{PARENT}-00", f"00-{TRACE}-0123456789abcdef-00"),
        (f"00-{TRACE}-{PARENT}-ff", f"00-{TRACE}-0123456789abcdef-03"),
        (f"cc-{TRACE}-{PARENT}-01-what-comes-then", f"00-{TRACE}-0123456789abcdef-01"),
        (f"00-{TRACE}-{PARENT}-01-more", None),
        (f"ff-{TRACE}-{PARENT}-01", None),
        (f"00-{'0' * 32}-{PARENT}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{PARENT}-01", None),
        (f"00-{TRACE}-{PARENT}-1", None),
        (f" 00-{TRACE}-{PARENT}-01", None),
        ("", None),
    ],
)
def test_a_trace_goes_on_and_what_is_none_stays_alone(given: str, made: str | None) -> None:
    assert trace.child(given, our_span) == made


def test_a_span_is_never_all_zeros() -> None:
    spans = iter([bytes(8), SPAN])
    assert trace.child(f"00-{TRACE}-{PARENT}-01", lambda: next(spans)) == f"00-{TRACE}-0123456789abcdef-01"


def test_properties_keep_their_order_and_tracestate_its_text() -> None:
    users = [("a", "1"), ("traceparent", f"00-{TRACE}-{PARENT}-01"), ("tracestate", "x=1,y=2"), ("a", "2")]
    passed = trace.passed_on({0x26: users, 0x02: 5}, our_span)
    assert passed == {0x26: [users[0], ("traceparent", f"00-{TRACE}-0123456789abcdef-01"), *users[2:]], 0x02: 5}
    assert users[1][1].startswith(f"00-{TRACE}-{PARENT}"), "what subscribers get is not changed"
    twice = {0x26: [users[1], users[1]]}
    assert trace.passed_on(twice, our_span) is twice


def test_the_message_on_the_queue_is_exactly_this() -> None:
    text = "to_mq: [{name: r, topic: '#', queue: Q, headers: [mcd]}]\n"
    users = [("traceparent", f"00-{TRACE}-{PARENT}-01"), ("tracestate", "x=1")]
    properties = trace.passed_on({0x26: users}, our_span)
    [prepared] = plan(
        compile_mappings(parse_mappings([("m.yaml", text)])), Origin("dev", "", "t", 1), properties
    ).prepared
    built = prepared.build(1, Body(b"body"), 0.0)
    usr = f"<usr><traceparent>00-{TRACE}-0123456789abcdef-01</traceparent><tracestate>x=1</tracestate></usr>".encode()
    mcd = b"<mcd><Msd>jms_bytes</Msd></mcd>"
    folders = b"".join(
        (len(text) + -len(text) % 4).to_bytes(4, "little") + text + b" " * (-len(text) % 4) for text in (mcd, usr)
    )
    data = built.head[mqmd.LENGTH :] + built.body
    assert data == (
        b"RFH \2\0\0\0" + (36 + len(folders)).to_bytes(4, "little") + (546).to_bytes(4, "little")
        + (1208).to_bytes(4, "little") + b" " * 8 + bytes(4) + (1208).to_bytes(4, "little") + folders + b"body"
    )  # fmt: skip

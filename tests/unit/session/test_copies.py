"""Copies that are alike, as columns and one by one."""

from __future__ import annotations

import pytest

from gateway.mqtt.packets import V5, V311
from gateway.session.copies import STORED_ID, Copies
from gateway.session.copy_columns import numbered, packet_ids
from gateway.session.outflow import Outflow
from gateway.session.publication import Publication

BLOCK = b"\x26\x00\x01a\x00\x01b"


def copies(
    count: int, *, first: int = 0, sub_ids: tuple[int, ...] = (), expires: float = 0.0, qos: int = 1,
    blocks: list[bytes] | None = None,
) -> Copies:  # fmt: skip
    like = Publication(b"t", b"", qos, False, BLOCK, expires, "me")
    payloads = [b"%d" % at for at in range(count)]
    if not first:
        return Copies(like, qos, sub_ids, payloads, blocks=blocks)
    return Copies(like, qos, sub_ids, numbered(payloads, first), STORED_ID, first, range(100, 100 + count), blocks)


def outflow(version: int = V311, window: int = 10, max_packet: int = 1000, alias_limit: int = 0) -> Outflow:
    made = Outflow()
    made.connected(version, window, max_packet, alias_limit)
    return made


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("sub_ids", [(), (7, 300)])
@pytest.mark.parametrize("first", [0, 1, 400])
@pytest.mark.parametrize("blocks", [None, [b"", BLOCK, BLOCK * 30, b"\x03\x00\x01t"]])
def test_they_are_sent_as_each_by_itself_would_be(
    version: int, sub_ids: tuple[int, ...], first: int, blocks: list[bytes] | None
) -> None:
    sent: list[list[bytes]] = []
    for alone in (False, True):
        flow, out = outflow(version), list[bytes]()
        flow.offer(copies(4, first=first, sub_ids=sub_ids, expires=100.0, blocks=blocks))
        if alone:
            flow.wait(flow.pending_items())
        assert flow.fill(90.0, out) == (4, [])
        assert [item.packet_id for item in flow.items()] == list(range(first or 1, (first or 1) + 4))
        assert [item.publication.payload for item in flow.items()] == [b"0", b"1", b"2", b"3"]
        assert [item.token for item in flow.items()] == ([100, 101, 102, 103] if first else [None] * 4)
        sent.append([b"".join(out)])
    assert sent[0] == sent[1]


def test_a_window_takes_what_it_has_room_for() -> None:
    flow, out = outflow(window=3), list[bytes]()
    flow.offer(copies(5, first=10))
    assert flow.fill(0.0, out)[0] == 3
    assert (list(flow.inflight), flow.queued, flow.sent_token) == ([10, 11, 12], 2, 102)
    assert flow.fill(0.0, out)[0] == 0
    assert flow.acknowledged(11) is not None
    assert flow.fill(0.0, out)[0] == 1
    assert (list(flow.inflight), flow.queued, flow.sent_token) == ([10, 12, 13], 1, 103)
    flow.drop_memory()
    assert (flow.queued, flow.unfetched, flow.last_token) == (0, True, 103)


def test_an_identifier_in_flight_is_not_used_again() -> None:
    flow, out = outflow(), list[bytes]()
    flow.offer(copies(3, first=5))
    flow.fill(0.0, out)
    flow.offer(copies(3, first=4))
    flow.fill(0.0, out)
    assert sorted(flow.inflight) == [1, 2, 4, 5, 6, 7]
    assert [item.token for item in flow.items()] == [100, 101, 102, 100, 101, 102]


def test_identifiers_go_round() -> None:
    flow, out = outflow(window=100), list[bytes]()
    flow.resume_ids(65_533)
    flow.offer(copies(4))
    flow.fill(0.0, out)
    assert list(flow.inflight) == [65_534, 65_535, 1, 2]


def test_what_has_expired_or_is_too_long_is_not_sent() -> None:
    flow, out = outflow(max_packet=8), list[bytes]()
    flow.offer(copies(2, expires=5.0))
    sent, over = flow.fill(6.0, out)
    assert (sent, len(over), out) == (0, 2, [])
    flow.offer(copies(12))
    sent, over = flow.fill(0.0, out)
    assert sent == 10
    assert flow.fill(0.0, out) == (0, [])
    for item in flow.items():
        flow.acknowledged(item.packet_id)
    sent, over = flow.fill(0.0, out)
    assert (sent, [item.publication.payload for item in over]) == (0, [b"10", b"11"])


def test_what_is_in_flight_is_sent_again_with_dup() -> None:
    flow, out = outflow(), list[bytes]()
    flow.offer(copies(2, first=1))
    flow.fill(0.0, out)
    again: list[bytes] = []
    assert len(list(flow.resend(0.0, again, []))) == 2
    assert b"".join(again) == b"".join(out).replace(b"\x32", b"\x3a")


def test_qos_2_goes_on_one_by_one() -> None:
    flow, out = outflow(), list[bytes]()
    flow.offer(copies(2, first=1, qos=2))
    flow.fill(0.0, out)
    assert flow.acknowledged(1) is None
    item = flow.received(1, refused=False)
    assert item is not None
    item.released = True
    assert flow.completed(2) is None
    assert flow.completed(1) is item
    assert list(flow.inflight) == [2]


def test_aliases_are_used_for_them_too() -> None:
    flow, out = outflow(V5, alias_limit=1), list[bytes]()
    flow.offer(copies(2))
    assert flow.fill(0.0, out)[0] == 2
    assert b"\x23\x00\x01" in out[0]
    assert out[0][4:5] == b"t"
    assert out[1][2:4] == b"\x00\x00"


@pytest.mark.parametrize("version_5", [False, True])
@pytest.mark.parametrize("tail", [b"", b"\x50"])
def test_acknowledgements_are_looked_at_once(version_5: bool, tail: bytes) -> None:
    """However many arrive at once: one that answers nothing does not make all of them be read again."""
    data = b"".join(b"\x50\x02" + number.to_bytes(2, "big") for number in range(1, 1001)) + tail
    in_flight = dict.fromkeys([3, 4, 500])
    found = []
    for offset in range(0, len(data) - 3, 4):
        ids, stops = packet_ids(data, offset, 0x50, version_5, in_flight)
        assert [*stops] == [offset + 4 * at for at in range(1, len(ids) + 1)]
        found += [(offset // 4 + 1, [*ids])] if ids else []
    assert found == [(3, [3, 4, 5]), (4, [4, 5, 6]), (500, [500, 501, 502])]

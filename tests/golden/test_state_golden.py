"""What gateways of earlier releases have left on the state queues is taken up, and what is put for such is as they read
it. The files were written by those releases (the name is the day); each is what lies on the queues of gateway 1, which
had ended, with what gateway 2 had put for it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from broker_harness import Device
from several_brokers import Estate, Node

from gateway.backends.ibm.leases import Entry, decode, encode
from gateway.broker.gateways.forwarded import decode_forwarded
from gateway.mq import mqmd
from gateway.mqtt import packets as p
from gateway.ports.ownership import READS, forward_key
from gateway.ports.state_queues import FORWARD, STAGED
from gateway.session.publication import Publication

STATES = sorted((Path(__file__).parent / "state").glob("*.json"))
ONE, TWO = (f"{number:024x}" for number in (1, 2))
FIRST_KEYS = set("ontdgcehlf")
"""What a release that does not say what it reads knows of a record on `MQGATE.FORWARD`."""
MAPPING = 'version: 1\nto_mq:\n  - {name: up, topic: "up/#", queue: APP.Q, headers: []}\n'
DIRECT = 'version: 1\nto_mqtt:\n  - {name: direct, queue: COMMANDS, topic: cmd, client: "there"}\n'


def lying(state: Path) -> Estate:
    """The queues as they were left."""
    estate = Estate()
    for queue, found in json.loads(state.read_text()).items():
        rows = estate.rows.setdefault(queue, {})
        for one in found:
            token = next(estate.tokens)
            md = one["descriptor"].encode("latin-1") if "descriptor" in one else bytes(364)
            rows[token] = (0, bytes.fromhex(one["key"]), md, one["data"].encode("latin-1"))
            estate.priorities[token] = 0
    return estate


def back(node: Node, name: str) -> Device:
    device = node.bench.device(5, name)
    device.connect(clean=False)
    return device


def heard(estate: Estate, device: Device) -> list[bytes]:
    """The payloads that come; all are acknowledged."""
    found = []
    for _ in range(5):
        estate.settle(0.5)
        for packet in device.take():
            if packet[0] >> 4 == p.PUBLISH:
                found.append(bytes(packet[4]))
                device.ack(p.PUBACK if packet[0] >> 1 & 3 == 1 else p.PUBREC, packet[2])
            elif packet[0] >> 4 == p.PUBREL:
                device.ack(p.PUBCOMP, packet[1])
    return found


@pytest.mark.parametrize("state", STATES, ids=lambda path: path.stem)
def test_sessions_and_what_lies_for_them_are_taken_up(state: Path) -> None:
    estate = lying(state)
    node = estate.start(mapping=MAPPING)
    assert node.instance == ONE
    kept, member = back(node, "kept"), back(node, "member")
    assert heard(estate, kept) == [b"stored at 1", b"retained", b"forwarded at 2", b"shared, from 1 at 1"]
    assert heard(estate, member) == [b"shared, from 1 at 1"]
    half = back(node, "half")
    half.ack(p.PUBREL, 7)
    estate.settle(0.5)
    assert [row[3][-14:] for row in estate.rows["APP.Q"].values()] == [b"released later"]
    assert not estate.rows[STAGED]
    assert not estate.rows[FORWARD]
    fresh = back(node, "fresh")
    fresh.subscribe("news/kept", 1)
    assert heard(estate, fresh) == [b"retained"]
    node.bench.advance(700)
    estate.settle(0.5)
    assert b"gone" in heard(estate, kept), "the delayed will"


def test_an_earlier_gateway_is_put_what_it_reads() -> None:
    """A member of a shared subscription there, whose gateway is asked in turn, and again because nobody takes it."""
    estate = Estate()
    here, there = estate.start(), estate.start()
    estate.earlier.add(there.instance)
    to_others = here.bench.engine.connect.ownership.to_others  # type: ignore[union-attr]
    member = back(there, "member")
    member.subscribe("$share/some/news/#", 1)
    estate.settle(0.5)
    to_others.give("$share/some/news/#", Publication(b"news/a", b"shared", 1, retain=False), redirects=3)
    here.bench.engine.flush()
    here.commit()
    (row,) = (row for row in estate.rows[FORWARD].values() if row[1] == forward_key(there.instance))
    assert decode_forwarded(row[3]).redirects == 0
    text = row[3][row[3].index(b"{") : row[3].index(b"}") + 1]
    assert set(json.loads(text)) <= FIRST_KEYS
    assert heard(estate, member) == [b"shared"]


@pytest.mark.parametrize("earlier", [False, True])
def test_a_message_for_a_device_is_not_put_for_a_gateway_that_cannot_read_it(*, earlier: bool) -> None:
    estate = Estate()
    here, there = estate.start(mapping=DIRECT), estate.start(mapping=DIRECT)
    if earlier:
        estate.earlier.add(there.instance)
    device = back(there, "there")
    estate.settle(0.5)
    here.queues.arrive("COMMANDS", (mqmd.build(persistence=1), b"for one device"))
    assert heard(estate, device) == ([] if earlier else [b"for one device"])
    assert len(estate.rows.get("DEAD.Q", {})) == earlier


def test_entries_of_gateways_say_what_they_read() -> None:
    assert decode(b"", b'{"instance":"%s","workers":3,"host":"a"}' % ONE.encode()) == Entry(ONE, b"", 3)
    assert decode(b"", b'{"instance":"%s","workers":3,"heir":"%s"}' % (ONE.encode(), TWO.encode())) == Entry(
        ONE, b"", 3, TWO
    )
    own = Entry(ONE, b"", 3, reads=READS)
    assert decode(b"", encode(own, "host")) == own

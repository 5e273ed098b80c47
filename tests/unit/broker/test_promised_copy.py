"""A copy that is acknowledged is kept, whatever meets a defect or refuses."""

from __future__ import annotations

from unittest import mock

import pytest
from broker_harness import Device, Harness
from refused_queues import FULL

from gateway.broker.publish.route import Receiver
from gateway.broker.refused.promised_copy import copy_promised
from gateway.mqtt import packets as p
from gateway.ports.state_queues import OUT, SET_ASIDE
from gateway.session.publication import Publication


@pytest.fixture
def bench() -> Harness:
    made = Harness()
    made.defects = []
    return made


def reader(bench: Harness, *, clean: bool) -> Device:
    device: Device = bench.device(5, "reader").connect(clean=clean)
    device.subscribe("a/#", 2)
    device.take()
    return device


def copied(bench: Harness, device: Device, qos: int = 2) -> bool:
    """A copy that meets a defect."""
    fan_out, receiver = bench.engine.fan_out, Receiver(device.connection.session, qos, False, ())
    publication = Publication(b"a/1", b"kept", 2, retain=False, client_id="sender")
    with mock.patch.object(fan_out, "copy", side_effect=ZeroDivisionError):
        done = copy_promised(fan_out, receiver, publication)
    bench.engine.flush()
    return done


def told(device: Device) -> list[bytes]:
    return [packet[4] for packet in device.take() if packet[0] >> 4 == p.PUBLISH]


def test_it_is_set_aside_for_a_session_that_is_stored(bench: Harness) -> None:
    device = reader(bench, clean=False)
    assert not copied(bench, device)
    assert bench.queues.depth(SET_ASIDE) == 1
    assert bench.queues.depth(OUT) == 0
    assert not device.wire.closed


@pytest.mark.parametrize("away", [False, True])
def test_it_is_stored_as_any_other_where_the_queue_for_that_refuses(bench: Harness, *, away: bool) -> None:
    device = reader(bench, clean=False)
    if away:
        device.drop()
    bench.queues.refusing[SET_ASIDE] = FULL
    session = bench.engine.sessions.get("reader")
    assert session is not None
    fan_out, receiver = bench.engine.fan_out, Receiver(session, 2, False, ())
    publication = Publication(b"a/1", b"kept", 2, retain=False, client_id="sender")
    with mock.patch.object(fan_out, "copy", side_effect=ZeroDivisionError):
        copy_promised(fan_out, receiver, publication)
    bench.engine.flush()
    assert bench.queues.depth(OUT) == session.stored == 1
    if away:
        bench.kill()
        device = bench.device(5, "reader").connect(clean=False)
    (packet,) = [packet for packet in device.take() if packet[0] >> 4 == p.PUBLISH]
    assert packet[4] == b"kept"
    device.ack(p.PUBREC, packet[2])
    device.ack(p.PUBCOMP, packet[2])
    assert bench.queues.depth(OUT) == 0


def test_a_session_that_is_not_stored_ends_with_what_it_was_promised(bench: Harness) -> None:
    device = reader(bench, clean=True)
    device.connection.session.durable = False
    copied(bench, device)
    assert device.wire.closed
    assert bench.queues.depth(SET_ASIDE) == 1  # the defect, once


def test_a_copy_at_qos_0_is_promised_to_nobody(bench: Harness) -> None:
    device = reader(bench, clean=False)
    copied(bench, device, 0)
    assert not device.wire.closed
    assert told(device) == []


def test_the_process_ends_where_it_cannot_be_kept(bench: Harness) -> None:
    device, fatal = reader(bench, clean=False), list[BaseException]()
    bench.engine.context.on_fatal = fatal.append
    with (
        mock.patch("gateway.broker.refused.promised_copy.encode_prefix", side_effect=KeyError),
        pytest.raises(ZeroDivisionError),
    ):
        copied(bench, device)
    assert [type(error) for error in fatal] == [ZeroDivisionError]


def test_nothing_is_stored_for_a_session_that_has_ended_meanwhile(bench: Harness) -> None:
    device = reader(bench, clean=False)
    bench.queues.automatic = False
    copied(bench, device)
    bench.queues.refusing[SET_ASIDE] = FULL
    bench.device(5, "reader").connect(clean=True)
    bench.queues.automatic = True
    while bench.queues.commit():
        pass
    assert bench.queues.depth(OUT) == 0
    assert (bench.engine.context.stored.messages, bench.engine.context.stored.bytes) == (0, 0)

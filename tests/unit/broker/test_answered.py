"""What is done for each connection with a commit, in Python and compiled."""

from __future__ import annotations

import pytest
from broker_harness import Harness

from gateway.broker.publish import answered, fast
from gateway.mqtt import writer

MAPPING = "version: 1\nto_mq:\n  - {name: all, topic: 'a/#', queue: Q1}\n"
TWINS = [pytest.param((answered.ordinary_in_python, answered.committed_in_python), id="python")]
if fast.compiled():
    TWINS.append(pytest.param((answered.ordinary, answered.committed), id="compiled"))


@pytest.fixture
def connections():
    """Four devices that are connected."""
    harness = Harness(MAPPING)
    devices = [harness.device(4, f"device{number}").connect() for number in range(4)]
    return [device.connection for device in devices]


@pytest.mark.parametrize("twin", TWINS)
def test_whose_answers_are_written_as_they_are(twin, connections):
    plain, several, told, early = connections
    told.out.append(b"first")
    early.connack_sent = False
    replies = {plain: [b"a"], told: [b"b"], several: [b"c", b"d"], early: [b"e"]}
    assert twin[0](replies) == ([plain, several], [plain.link, several.link], [b"a", b"cd"], [told, early])
    assert replies == {plain: [b"a"], told: [b"b"], several: [b"c", b"d"], early: [b"e"]}
    assert twin[0]({}) == ([], [], [], [])


@pytest.mark.parametrize("twin", TWINS)
def test_who_is_closed_is_told_nothing_with_the_others(twin, connections):
    connections[0].state = fast.CLOSED
    assert twin[0]({connections[0]: [b"a"]}) == ([], [], [], [connections[0]])


@pytest.mark.parametrize("twin", TWINS)
def test_what_is_committed_takes_no_room_and_counts(twin, connections):
    one, two, _, _ = connections
    one.inbound_pending, two.inbound_pending = 7, 1 << 40
    before = one.session.received, two.session.received
    assert twin[1]({one: 5, two: 1 << 40}) is None
    assert (one.inbound_pending, two.inbound_pending) == (2, 0)
    assert (one.session.received, two.session.received) == (before[0] + 5, before[1] + (1 << 40))


@pytest.mark.skipif(not fast.compiled(), reason="no compiler where the gateway was installed")
def test_the_compiled_form_takes_nothing_else(connections):
    for wrong in ([], {connections[0]: b"a"}, {object(): [b"a"]}):
        with pytest.raises(TypeError):
            answered.ordinary(wrong)
    for wrong in ([], {object(): 1}, {connections[0]: "a"}):
        with pytest.raises(TypeError):
            answered.committed(wrong)


@pytest.mark.parametrize("count", [7, 8, 9, 40])
def test_few_and_many_answers_of_one_chunk(count):
    harness = Harness(MAPPING)
    device = harness.device(4, "device").connect()
    device.take()
    device.send(b"".join(writer.encode_publish(4, b"a/b", b"x", 1, packet_id=number) for number in range(1, count + 1)))
    assert [(packet[0], packet[1]) for packet in device.take()] == [(0x40, number) for number in range(1, count + 1)]

"""What is done for each connection with a commit, in Python and compiled."""

from __future__ import annotations

import pytest
from broker_harness import Harness

from gateway.broker.publish import answered, fast
from gateway.mqtt import writer
from gateway.ports.batch import Puts
from gateway.session.staged_run import StagedRun

MAPPING = "version: 1\nto_mq:\n  - {name: all, topic: 'a/#', queue: Q1}\n"
TWINS = [
    pytest.param(
        (answered.ordinary_in_python, answered.committed_in_python, answered.keep_tokens_in_python), id="python"
    )
]
if fast.compiled():
    TWINS.append(pytest.param((answered.ordinary, answered.committed, answered.keep_tokens), id="compiled"))
LARGE = (1 << 64) - 2
TOKENS = [
    range(7, 10), range(LARGE, LARGE + 3), range(LARGE + 2, LARGE + 5), range(-1, 2), range(9, 3, -2),
    [b"a", b"b", b"c"], ("x", "y", "z"),
]  # fmt: skip
"""As backends give them: numbers that count up, and others."""


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
def test_what_is_committed_is_acknowledged_and_counts(twin, connections):
    one, two, _, _ = connections
    one.inbound_pending, two.inbound_pending = 7, 1 << 40
    before = one.session.received, two.session.received
    assert twin[1]({one: 5, two: 1 << 40}) is None
    assert (one.inbound_pending, two.inbound_pending) == (2, 0)
    assert (one.session.received, two.session.received) == (before[0] + 5, before[1] + (1 << 40))


@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize("twin", TWINS)
def test_what_is_staged_is_found_by_its_tokens(twin, tokens, connections):
    one, two, over, in_run = (connection.session for connection in connections)
    over.ended = True
    one.staged_tokens[1] = 0
    puts, others = Puts("Q", tokens=tokens), Puts("Q", tokens=range(40, 44))
    run = StagedRun(b"a", 4, None, b"", 0)
    staged = [
        (one, puts, 0, [4], None), (two, puts, 1, [1, 65_535], None), (two, puts, 3, [], None),
        (over, others, 0, [5], None), (in_run, others, 1, [6, 7], run), (one, others, 3, [9], None),
    ]  # fmt: skip
    assert twin[2](staged) == (7, [staged[3], staged[4]])
    assert one.staged_tokens == {1: 0, 4: tokens[0], 9: 43}
    assert two.staged_tokens == {1: tokens[1], 65_535: tokens[2]}
    assert over.staged_tokens == in_run.staged_tokens == {}
    assert twin[2]([]) == (0, [])
    with pytest.raises((IndexError, ValueError)):
        twin[2]([(one, puts, 2, [10, 11], None)])


@pytest.mark.skipif(not fast.compiled(), reason="no compiler where the gateway was installed")
def test_the_compiled_form_takes_nothing_else(connections):
    for wrong in ([], {connections[0]: b"a"}, {object(): [b"a"]}):
        with pytest.raises(TypeError):
            answered.ordinary(wrong)
    for wrong in ([], {object(): 1}, {connections[0]: "a"}):
        with pytest.raises(TypeError):
            answered.committed(wrong)
    session, puts = connections[0].session, Puts("Q", tokens=range(3))
    for wrong in (
        (), [session], [(session, puts, 0, [1])], [(object(), puts, 0, [1], None)], [(session, puts, 0, (1,), None)],
        [(session, puts, "0", [1], None)], [(session, Puts("Q", tokens=3), 0, [1], None)],
    ):  # fmt: skip
        with pytest.raises(TypeError):
            answered.keep_tokens(wrong)
    with pytest.raises(IndexError):
        answered.keep_tokens([(session, puts, -1, [1], None)])
    with pytest.raises(AttributeError):
        answered.keep_tokens([(session, object(), 0, [1], None)])


@pytest.mark.parametrize("count", [7, 8, 9, 40])
def test_few_and_many_answers_of_one_chunk(count):
    harness = Harness(MAPPING)
    device = harness.device(4, "device").connect()
    device.take()
    device.send(b"".join(writer.encode_publish(4, b"a/b", b"x", 1, packet_id=number) for number in range(1, count + 1)))
    assert [(packet[0], packet[1]) for packet in device.take()] == [(0x40, number) for number in range(1, count + 1)]

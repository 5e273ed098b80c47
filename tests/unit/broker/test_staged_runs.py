"""QoS 2 in runs: staged as the messages they will be, moved by the PUBREL, and put like any other if that fails."""

from __future__ import annotations

import pytest
from moving_queues import MovingBench

from gateway.broker.batch import Batch
from gateway.broker.publish import qos2
from gateway.mqtt import packets as p
from gateway.mqtt import writer
from gateway.ports.batch import Stored
from gateway.session.publication import Publication
from gateway.session.staged_run import LEAST, StagedRun

MAPPING = """
version: 1
to_mq:
  - {name: one, topic: one/+, queue: A, on_failure: {retry: {times: 0}, then: THEN}}
  - {name: short, topic: short, queue: A, descriptor: {expiry: 5m}}
  - {name: reports, topic: reports, queue: A, descriptor: {reply_to: {queue: R}, report: [coa]}}
  - {name: bare, topic: bare, queue: A, headers: []}
  - {name: partly, topic: partly, queue: A, headers: [mqtt]}
  - {name: lost, topic: lost, queue: A, descriptor: {persistence: not_persistent}}
  - {name: far, topic: far, queue: FAR}
  - {name: news, topic: news, mq_topic: 'news'}
"""
STAGED = "MQGATE.STAGED"
COUNT = 6
IDS = range(1, COUNT + 1)


class Scene:
    """A publisher that sends windows."""

    def __init__(self, then: str = "hold") -> None:
        self.bench = MovingBench(MAPPING.replace("THEN", then))
        self.device = self.bench.device(4, "c").connect(clean=False)
        self.device.take()

    @property
    def session(self):
        return self.bench.engine.sessions.get("c")

    def publish(self, topic: str = "one/1", ids=IDS, **options) -> None:
        self.device.send(
            b"".join(writer.encode_publish(4, topic.encode(), b"body %d" % n, 2, packet_id=n, **options) for n in ids)
        )

    def release(self, ids=IDS) -> None:
        self.device.send(writer.encode_acks(p.PUBREL, ids))

    def answers(self):
        return [(packet[0] >> 4, packet[1]) for packet in self.device.take()]

    def bodies(self, queue: str = "A") -> list[bytes]:
        return [data[-6:] for *_, data in self.bench.queues.rows.get(queue, {}).values()]

    @property
    def staged(self):
        return self.bench.queues.rows.get(STAGED, {})


WHOLE = [b"body %d" % n for n in IDS]


def test_a_window_is_staged_as_messages_and_moved():
    scene = Scene()
    scene.publish()
    assert scene.answers() == [(p.PUBREC, n) for n in IDS]
    assert not scene.bodies()
    assert [data[:4] for *_, data in scene.staged.values()] == [b"RFH "] * COUNT
    scene.publish(dup=True)  # nothing changes
    assert scene.answers() == [(p.PUBREC, n) for n in IDS]
    assert len(scene.staged) == COUNT
    scene.release()
    assert scene.answers() == [(p.PUBCOMP, n) for n in IDS]
    assert (scene.bodies(), scene.bench.queues.moved, len(scene.staged)) == (WHOLE, COUNT, 0)
    scene.release()
    assert scene.answers() == [(p.PUBCOMP, n) for n in IDS]
    assert scene.bodies() == WHOLE
    counters = scene.bench.engine.counters
    size = sum(len(md) + len(data) for _, _, md, data in scene.bench.queues.rows["A"].values())
    assert counters.mq_put_messages["BENCH", "one"] == COUNT
    assert counters.mq_put_bytes["BENCH", "one"] == size
    assert counters.mqtt_publish_received["one", 2] == COUNT


@pytest.mark.parametrize("topic", ["short", "reports", "bare", "partly", "lost", "far", "news", "nowhere"])
def test_what_cannot_be_moved_is_staged_as_a_record(topic):
    scene = Scene()
    scene.publish(topic)
    assert all(data[0] == 1 for *_, data in scene.staged.values())
    scene.release()
    assert [kind for kind, _ in scene.answers()] == [p.PUBREC] * COUNT + [p.PUBCOMP] * COUNT
    assert scene.bench.queues.moved == 0
    assert not scene.staged


def test_few_are_staged_one_by_one():
    scene = Scene()
    scene.publish(ids=range(1, LEAST))
    assert all(data[0] == 1 for *_, data in scene.staged.values())
    scene.publish(ids=range(10, 10 + LEAST))
    assert [data[:1] for *_, data in scene.staged.values()] == [b"\1"] * 3 + [b"R"] * LEAST
    scene.release([*range(10, 14), 1, 2, 3])  # moved, then put: in this order
    assert scene.bodies() == [b"ody 10", b"ody 11", b"ody 12", b"ody 13", *WHOLE[:3]]


def test_any_of_them_in_any_order():
    scene = Scene()
    scene.publish()
    scene.release([4, 5, 1])
    scene.release([6, 3, 2])
    assert scene.bodies() == [WHOLE[n - 1] for n in (4, 5, 1, 6, 3, 2)]
    assert scene.bench.queues.moved == COUNT
    assert not scene.session.inbound


def test_a_restart_finds_in_the_messages_what_they_were():
    scene = Scene()
    scene.publish()
    scene.release([2])
    scene.bench.kill()
    found = {n: (one.topic, one.payload, one.client_id) for n, one in scene.session.inbound.items()}
    assert found == {n: (b"one/1", b"body %d" % n, "c") for n in IDS if n != 2}
    scene.device = scene.bench.device(4, "c").connect(clean=False)
    scene.publish(ids=[3], dup=True)
    scene.release()
    assert sorted(scene.bodies()) == WHOLE
    assert not scene.staged


def test_before_it_is_durable_nothing_is_released():
    scene = Scene()
    scene.bench.queues.automatic = False
    scene.publish()
    scene.release()
    assert scene.device.wire.closed  # PUBREL before PUBREC was sent
    while scene.bench.queues.commit():
        pass
    assert not scene.bodies()


def test_a_queue_that_refuses_is_waited_for():
    scene = Scene()
    scene.publish()
    scene.bench.queues.refusing["A"] = 2053
    scene.answers()
    scene.release(range(1, 4))
    assert scene.answers() == []
    assert len(scene.staged) == COUNT
    scene.release(range(4, 7))
    scene.bench.queues.refusing.clear()
    scene.bench.advance(15)
    assert scene.bodies() == WHOLE
    assert scene.answers() == [(p.PUBCOMP, n) for n in IDS]
    assert not scene.staged


@pytest.mark.parametrize("then", ["dead_letter", "drop"])
def test_a_queue_that_refuses_for_good(then):
    scene = Scene(then)
    scene.publish()
    scene.bench.queues.refusing["A"] = 2051
    scene.release()
    assert scene.bodies("DEAD.Q") == (WHOLE if then == "dead_letter" else [])
    assert not scene.staged
    assert scene.answers()[COUNT:] == [(p.PUBCOMP, n) for n in IDS]


def test_a_publisher_that_is_sent_away_can_release_again():
    scene = Scene("disconnect")
    scene.publish()
    scene.bench.queues.refusing["A"] = 2051
    scene.release()
    assert scene.device.wire.closed
    assert len(scene.staged) == COUNT
    scene.bench.queues.refusing.clear()
    scene.device = scene.bench.device(4, "c").connect(clean=False)
    scene.release()
    assert sorted(scene.bodies()) == WHOLE
    assert not scene.staged


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("count", [COUNT, LEAST - 1])
def test_a_device_that_has_lost_what_it_knew_begins_anew(count, restarted):
    scene = Scene()
    scene.publish(ids=range(1, count + 1))
    if restarted:
        scene.bench.kill()
    scene.device = scene.bench.device(4, "c").connect(clean=False)
    for n in range(1, count + 1):
        scene.device.send(writer.encode_publish(4, b"one/1", b"anew %d" % n, 2, packet_id=n))
    scene.release(range(1, count + 1))
    before = [body for body in scene.bodies() if not body.startswith(b"anew")]
    assert len(before) == count  # each had its PUBREC
    assert scene.bodies() == before + [b"anew %d" % n for n in range(1, count + 1)]
    assert not scene.staged
    assert not scene.session.inbound


def test_a_subscriber_that_came_meanwhile_gets_them():
    scene = Scene()
    scene.publish()
    subscriber = scene.bench.device(4, "s").connect()
    subscriber.subscribe("one/#", 0)
    subscriber.take()
    scene.release()
    assert [packet[4] for packet in subscriber.take()] == WHOLE
    assert scene.bodies() == WHOLE
    assert scene.bench.queues.moved == 0
    assert not scene.staged


@pytest.mark.parametrize("count", [COUNT, LEAST - 1])
@pytest.mark.parametrize("landed", [True, False])
def test_the_end_of_a_session_takes_what_is_staged(landed, count):
    scene = Scene()
    scene.bench.queues.automatic = False
    scene.publish(ids=range(1, count + 1))
    while landed and scene.bench.queues.commit():
        pass
    scene.bench.device(4, "c").connect(clean=True)
    while scene.bench.queues.commit():
        pass
    assert not scene.staged


def test_the_end_of_a_session_takes_all_of_its_runs_in_one_step(monkeypatch):
    scene, calls, whole = Scene(), [], Batch.taken
    for first in range(1, 5 * COUNT, COUNT):
        scene.publish(ids=range(first, first + COUNT))
    scene.release(range(3, 9))
    monkeypatch.setattr(Batch, "taken", lambda batch, *where: calls.append(where) or whole(batch, *where))
    scene.bench.device(4, "c").connect(clean=True)
    assert len([queue for queue, _ in calls if queue == STAGED]) == 1
    assert not scene.staged


def test_what_is_staged_counts_against_the_memory_of_a_session():
    scene = Scene()
    scene.publish()
    staging = scene.bench.engine.staging
    scene.device.connection.limits.max_queued_bytes, before = COUNT * 6, scene.device.connection.limits.max_queued_bytes
    staging.check_unreleased(scene.device.connection)
    assert not scene.device.wire.closed
    scene.device.connection.limits.max_queued_bytes = COUNT * 6 - 1
    staging.check_unreleased(scene.device.connection)
    scene.device.connection.limits.max_queued_bytes = before
    assert scene.device.wire.closed


def test_somebody_who_looks_sees_puts():
    scene = Scene()
    scene.publish()
    seen = []
    scene.device.connection.traced = True
    scene.bench.engine.context.trace_commit = lambda batch: seen.extend(
        one.address.queue for one in batch.destinations.values()
    )
    scene.release()
    assert seen == ["A"]
    assert scene.bench.queues.moved == 0


def test_a_record_and_a_message_are_read_alike():
    scene = Scene()
    scene.publish(ids=[1])
    scene.publish(ids=range(2, 6))
    found = [qos2.read_staged(Stored(0, md, data)) for _, _, md, data in scene.staged.values()]
    assert [(one.topic, one.payload, one.qos, number) for one, number in found] == [
        (b"one/1", b"body %d" % n, 2, n) for n in range(1, 6)
    ]


def test_one_of_a_run_by_itself():
    held = StagedRun(b"t", 0x34, None, b"", 2)
    held.ids, held.bodies = [7, 300], [b"..a", b"..bc"]
    assert qos2.StagedRuns.remove_one(held, 300) == (None, (b"t", b"\x2c\1bc", 0x34))
    assert isinstance(Publication(b"t", b"", 2, retain=False).first, int)

"""What a unit has done half is taken back: the batch is what it was, whatever units lie in each other."""

from __future__ import annotations

from typing import Any

import pytest
from broker_harness import Harness
from hypothesis import given
from hypothesis import strategies as st

from gateway.broker.batch import Batch
from gateway.broker.marks import Mark
from gateway.broker.publish.route import DEAD_LETTER_POLICY, REPORT_POLICY
from gateway.broker.undo import Undo
from gateway.mqtt import properties as prop
from gateway.ports.batch import Address, Unit


def image(batch: Batch) -> Any:
    """Everything that is committed, and what is remembered of it."""
    unit = batch.unit() or Unit([])
    puts = [(one.queue, one.key, one.priority, list(one.heads), list(one.bodies)) for one in unit.puts]
    takes = [(one.queue, one.key, list(one.tokens)) for one in unit.takes]
    marks = [sorted(one.marks) for one in batch.destinations.values()]
    policies = [list(one.policies) for one in batch.destinations.values()]
    replies = {key: list(value) for key, value in batch.replies.items()}
    return puts, takes, list(unit.replaces), marks, policies, replies, batch.rows, len(batch.after), batch.links.all()


STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "state", "take", "replace", "reply", "after", "nested", "nested fails"]),
              st.integers(0, 3)),
    max_size=12,
)  # fmt: skip


def act(batch: Batch, steps: list[tuple[str, int]]) -> None:
    for what, number in steps:
        name = f"Q{number}"
        if what == "put":
            policy = DEAD_LETTER_POLICY if number % 2 else REPORT_POLICY
            destination, row = batch.put(Address(name), policy, b"head", b"%d" % number)
            destination.mark(row, Mark())
        elif what == "state":
            batch.put_state(name, b"k", b"head", b"%d" % number)
        elif what == "take":
            batch.take(name, b"k", number)
        elif what == "replace":
            batch.replace("S", b"%d" % (number % 2), b"%d" % number)
        elif what == "reply":
            batch.reply(name, b"\x40\x02\x00\x01")  # type: ignore[arg-type]
        elif what == "after":
            batch.after.append(lambda: None)
        else:
            before = image(batch)
            undo = Undo(batch)
            act(batch, [one for one in steps[:3] if not one[0].startswith("nested")])
            if what == "nested":
                undo.keep()
            else:
                undo.take_back(batch)
                assert image(batch) == before


@given(STEPS, STEPS, st.booleans())
def test_the_batch_is_what_it_was(before: list[tuple[str, int]], steps: list[tuple[str, int]], fails: bool) -> None:
    batch, like = Batch(), Batch()
    act(batch, before)
    act(like, before)
    first = image(batch)
    undo = Undo(batch)
    act(batch, steps)
    if fails:
        undo.take_back(batch)
        assert image(batch) == first
    else:
        undo.keep()
        act(like, steps)
        assert image(batch) == image(like)
    assert batch.undo is None


def test_what_is_committed_by_then_is_not_taken_back() -> None:
    batch = Batch()
    undo = Undo(batch)
    batch.put(Address("Q"), REPORT_POLICY, b"head", b"body")
    undo.take_back(Batch())
    assert batch.rows == 1


@pytest.mark.parametrize("qos", [1, 2])
def test_a_session_and_a_retained_message_are_what_they_were(qos: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Harness("version: 1\nto_mq: [{name: r, topic: '#', queue: Q, properties: {a: '{json.a}'}}]\n")
    bench.defects = []
    away = bench.device(5, "away").connect(clean=False)
    away.subscribe("a", 2)
    away.drop()
    device = bench.device(5, "d").connect(clean=False)
    device.publish("a", b"kept", 1, 1, retain=True)
    stored = bench.engine.sessions.get("away").stored
    deliver = bench.engine.fan_out.deliver

    def failing(*args: Any) -> int:
        deliver(*args)
        raise ZeroDivisionError

    monkeypatch.setattr(bench.engine.fan_out, "deliver", failing)
    alone = prop.encode({prop.CORRELATION_DATA: b"1"})  # such ones are looked at one by one
    device.publish("a", b"new", qos, 2, retain=True, properties=alone)
    if qos == 2:
        device.ack(6, 2)
    assert device.wire.closed
    monkeypatch.undo()
    assert [one.payload for one in bench.engine.retained] == [b"kept"]
    assert bench.engine.sessions.get("away").stored == stored
    again = bench.device(5, "d").connect(clean=False)
    again.take()
    if qos == 2:
        again.ack(6, 2)
    else:
        again.publish("a", b"new", 1, 2, retain=True)
    assert [one.payload for one in bench.engine.retained] == [b"new"]
    assert bench.engine.sessions.get("away").stored == stored + 1
    assert len(bench.queues.rows["Q"]) == 2

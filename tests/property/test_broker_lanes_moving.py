"""Windows of QoS 2 where the queue manager can move what was staged: the fast lane, in Python and compiled, stages them
in runs. What is on the queues, retained and told in the end is as by the plain lane, which stages records; until then
both forms do the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import FORMS, short_runs
from moving_queues import MovingBench
from test_broker_lanes import ASKS, PAYLOADS, USERS, Side

from gateway.mqtt import packets as p
from gateway.mqtt import writer
from gateway.ports.state_queues import STAGED


@pytest.fixture(autouse=True, scope="module")
def any_run_is_worth_it():
    with short_runs():
        yield


class MovingSide(Side):
    """A side whose queue manager moves."""

    harness = MovingBench

    def outcome(self):
        """What others see: nothing of how it was staged."""
        state = self.state()
        kept = {key: state[key] for key in ("told", "closed", "pending", "published", "retained", "stored", "copies")}
        kept["rows"] = {name: rows for name, rows in state["rows"].items() if name != STAGED}
        kept["counted"] = state["counted"]
        return kept


TOPICS = [b"q/1"] * 6 + [b"q/2", b"q/dear", b"q/other", b"f/alone", b"f/field", b"k/1", b"w/1", b"q/short"]
WINDOWS = st.lists(
    st.tuples(
        st.sampled_from(TOPICS),
        st.sampled_from(PAYLOADS[:6]),
        st.sampled_from([b""] * 8 + [USERS, ASKS]),
        st.sampled_from([False] * 5 + [True]),
    ),
    min_size=1,
    max_size=8,
)  # fmt: skip


def taken(side: Side, who: int, data: bytes, cut: int) -> None:
    for part in (data[: cut % (len(data) + 1)], data[cut % (len(data) + 1) :]):
        side.take([part if number == who else b"" for number in range(4)])


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=60, deadline=None)
@given(
    WINDOWS, st.permutations(range(1, 9)), st.integers(0, 3), st.integers(0, 300), st.booleans(),
    st.booleans(), st.sampled_from([2, 1000]),
)  # fmt: skip
def test_runs_end_as_by_the_plain_lane(form, sent, order, who, cut, meanwhile, refused, room):
    sides = [MovingSide(form, max_retained=room), MovingSide("plain", max_retained=room)]
    if form != "python":
        sides.insert(1, MovingSide("python", max_retained=room))
    version = sides[0].devices[who].version
    packets = [
        writer.encode_publish(
            version, topic, payload, 2, retain=retain, packet_id=number, properties=block if version == 5 else b""
        )
        for number, (topic, payload, block, retain) in enumerate(sent, 1)
    ]
    ids = [number for number in order if number <= len(sent)]
    released = writer.encode_acks(p.PUBREL, ids)
    if meanwhile:  # to another queue: what is put of one batch may come before what is moved
        other = writer.encode_publish(version, b"d/9/a", b"now", 1, packet_id=99)
        released = released[: 4 * (cut % (len(ids) + 1))] + other + released[4 * (cut % (len(ids) + 1)) :]
    for side in sides:
        taken(side, who, b"".join(packets), cut)
        side.commit()
        side.bench.queues.refusing = {"Q2": 2053, "Q1": 2053} if refused else {}
        taken(side, who, released, cut)
    before = [side.state() for side in sides]
    assert before[0] == before[-2], "what is staged, and how, is the same by both forms of the fast lane"
    for side in sides:
        side.commit()
        side.bench.queues.refusing = {}
        for _ in range(3):
            side.bench.clock.advance(60)
            side.commit()
    first, *others = [side.outcome() for side in sides]
    for other in others:
        assert first == other
    assert not sides[0].bench.queues.rows.get(STAGED)

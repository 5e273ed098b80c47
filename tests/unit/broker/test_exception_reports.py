"""Exception reports about publications that could not be put: they name the message, and so does its dead letter."""

from __future__ import annotations

import pytest
from broker_harness import Harness
from refused_queues import PUT_INHIBITED, giving_up

from gateway.bridge import deadletter
from gateway.mq import mqmd
from gateway.rules.feedback import Feedback

_ASKS = {"reply_to": {"queue": "REPORTS.Q"}}
_RULES = [
    {"name": "plain", "topic": "a/#", "queue": "Q", "descriptor": {**_ASKS, "report": ["exception"]}},
    {"name": "passing", "topic": "b/#", "queue": "Q",
     "descriptor": {**_ASKS, "report": ["exception", "pass_msg_id", "pass_correl_id"], "correlation": "seven"}},
    {"name": "unbuilt", "topic": "c/#", "queue": "Q", "payload": {"format": "json"},
     "descriptor": {**_ASKS, "report": ["exception"]}},
    {"name": "silent", "topic": "d/#", "queue": "Q"},
]  # fmt: skip


@pytest.fixture
def bench() -> Harness:
    return giving_up(_RULES)


def published(bench: Harness, topic: str, count: int = 1) -> None:
    device = bench.device(5, "d").connect()
    for number in range(count):
        device.publish(topic, b"same", 1, number + 1)
    bench.advance(1)


def reports(bench: Harness) -> list[mqmd.Mqmd]:
    return [mqmd.unpack(stored.md) for _, stored in bench.queues.load("REPORTS.Q")]


def dead(bench: Harness) -> list[mqmd.Mqmd]:
    return [mqmd.unpack(deadletter.strip(stored.md, stored.data)[1]) for _, stored in bench.queues.load("DEAD.Q")]


@pytest.mark.parametrize(("topic", "why"), [("a/1", PUT_INHIBITED), ("c/1", Feedback.SCHEMA)])
def test_the_report_names_the_message_and_its_dead_letter_has_that_name(bench: Harness, topic: str, why: int) -> None:
    published(bench, topic)
    [report], [letter] = reports(bench), dead(bench)
    assert report.feedback == why
    assert report.msg_id == bytes(24)  # the queue manager gives it one
    assert report.correl_id == letter.msg_id != bytes(24)


def test_the_report_passes_what_the_message_asks_for(bench: Harness) -> None:
    published(bench, "b/1")
    [report], [letter] = reports(bench), dead(bench)
    assert report.msg_id == letter.msg_id != bytes(24)
    assert report.correl_id == letter.correl_id


def test_messages_that_are_the_same_have_names_of_their_own(bench: Harness) -> None:
    published(bench, "a/1", 3)
    names = [letter.msg_id for letter in dead(bench)]
    assert len(set(names)) == 3
    assert [report.correl_id for report in reports(bench)] == names


def test_who_wants_no_report_has_his_name_from_the_queue_manager(bench: Harness) -> None:
    published(bench, "d/1")
    assert reports(bench) == []
    [letter] = dead(bench)
    assert letter.msg_id == bytes(24)

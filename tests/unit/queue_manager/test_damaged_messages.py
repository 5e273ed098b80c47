"""A frame that is damaged while the queue manager runs: its message is named, the others are shown, and nobody hears of
a full disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from embedded_rig import SMALL, md
from schedulers import ManualScheduler

from gateway.app.api.queues import QueueViews
from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.net.calls import OPERATOR, Call
from gateway.ports.batch import Puts, Unit
from gateway.ports.mqi import GetOptions, ObjectDescriptor
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.inspection import Inspection

BODIES = [number * 100 for number in (b"1", b"2", b"3")]
TOLD = "docs/runbooks/damaged-frame.md"


@pytest.fixture
def queue_manager(tmp_path: Path) -> Iterator[EmbeddedQueueManager]:
    """Messages `1`, `2` and `3`, each in a frame of its own, of which `2` is damaged; nothing is kept in memory."""
    opened = EmbeddedQueueManager.open(
        tmp_path, "QM1", ManualScheduler(), "DEFINE QLOCAL(Q)\nDEFINE QLOCAL(TO)",
        store_options=replace(SMALL, cache_bytes=0),
    )  # fmt: skip
    for body in BODIES:
        done = Inspection(opened).commit(Unit([Puts("Q", persistent=True, heads=[md()], bodies=[body])]))
        assert not done.failures
    for path in tmp_path.glob("*"):
        at = path.read_bytes().find(BODIES[1]) if path.is_file() else -1
        if at >= 0:
            with path.open("r+b") as file:
                file.seek(at)
                file.write(b"x")
    yield opened
    opened.close()


def test_the_others_are_shown_and_it_is_named(queue_manager: EmbeddedQueueManager) -> None:
    inspection = Inspection(queue_manager)
    first, second, third = inspection.browse("Q")
    assert (first.data, second.data, third.data) == (BODIES[0], b"", BODIES[2])
    assert not first.damaged
    assert "damaged at byte" in second.damaged
    assert TOLD in second.damaged
    assert [one.token for one in inspection.browse("Q", 1, first.token)] == [second.token]
    with pytest.raises(MQError, match=TOLD) as raised:
        inspection.message("Q", second.token)
    assert raised.value.reason == mq.MQRC_OBJECT_DAMAGED


def test_what_the_api_says(queue_manager: EmbeddedQueueManager) -> None:
    views = QueueViews(Inspection(queue_manager))
    listed = views.browse(Call({"queue": "Q"}, {"decoded": "true"}, {}, OPERATOR))[1]["items"]
    assert [one["body"]["length"] for one in listed] == [100, 0, 100]
    assert [one["locked"] for one in listed] == [False, True, False]
    assert TOLD in listed[1]["error"]
    assert TOLD in listed[1]["preview"]
    moved = views.move(Call({"queue": "Q"}, {}, {"to": "TO"}, OPERATOR))[1]
    assert (moved["done"], [one["reason"] for one in moved["failed"]]) == (2, [mq.MQRC_OBJECT_DAMAGED])
    depths = {row["name"]: row["depth"] for row in views.listing(Call({}, {}, {}, OPERATOR))[1]["items"]}
    assert (depths["Q"], depths["TO"]) == (1, 2)


def test_it_can_be_removed(queue_manager: EmbeddedQueueManager) -> None:
    inspection = Inspection(queue_manager)
    tokens = [one.token for one in inspection.browse("Q")]
    assert inspection.remove("Q", tokens[:1]) == 1
    assert inspection.oldest("Q") is None
    assert not queue_manager.mqsc("DISPLAY QSTATUS(Q) MSGAGE").failed
    assert inspection.remove("Q", tokens[1:2]) == 1
    assert [one.data for one in inspection.browse("Q")] == BODIES[2:]


def test_a_get_is_told_that_it_is_damaged(queue_manager: EmbeddedQueueManager) -> None:
    connection = queue_manager.connect(application="tests", user="ana")
    handle = connection.open(ObjectDescriptor("Q"), mq.MQOO_INPUT_SHARED).handle
    assert connection.get(handle, md(), GetOptions(mq.MQGMO_NO_SYNCPOINT), 1000).data == BODIES[0]
    answers: list[object] = []
    connection.wait(handle, md(), GetOptions(mq.MQGMO_NO_SYNCPOINT), 1000, None, answers.append)
    (answer,) = answers
    assert isinstance(answer, MQError)
    assert answer.reason == mq.MQRC_OBJECT_DAMAGED

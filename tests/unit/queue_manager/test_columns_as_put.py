"""What MQPUT fills in is also filled in for the columns of the batch port; what a report contains of its message."""

from __future__ import annotations

import pytest
from embedded_rig import SMALL, md
from schedulers import ManualScheduler

from gateway.mq import mqmd
from gateway.mq.headers import chain, rfh2
from gateway.ports.batch import Puts, Unit
from gateway.queue_manager.embedded import EmbeddedQueueManager

OBJECTS = """
DEFINE QLOCAL(A) DEFPRTY(6)
DEFINE QLOCAL(FIFO) DEFPRTY(3) MSGDLVSQ(FIFO)
DEFINE QALIAS(ALIAS) TARGET(A) DEFPRTY(2)
DEFINE QLOCAL(REPLIES)
DEFINE QREMOTE(REPLY.ALIAS) RNAME(REPLIES) RQMNAME(QM9)
"""
COA_WITH_DATA, EXCEPTION = 0x300, 0x1000000


@pytest.fixture
def manager(tmp_path):
    manager = EmbeddedQueueManager.open(tmp_path / "data", "QM1", ManualScheduler(), OBJECTS, store_options=SMALL)
    yield manager
    manager.close()


def put(manager, queue, head, *, priority=0, bodies=(b"x",)):
    outcomes = []
    unit = Unit(puts=[Puts(queue, priority=priority, heads=[head] * len(bodies), bodies=list(bodies))])
    manager.submit(unit, lambda _unit, outcome: outcomes.append(outcome))
    manager.core.scheduler.run_until(lambda: bool(outcomes))
    assert not outcomes[0].failures


@pytest.mark.parametrize(("queue", "on", "priority"), [("A", "A", 6), ("ALIAS", "A", 2), ("FIFO", "FIFO", 3)])
def test_the_priority_of_the_queue_is_in_the_descriptor(manager, queue, on, priority):
    put(manager, queue, md(priority=-1), priority=-1, bodies=(b"1", b"2"))
    assert {mqmd.number(one.md, mqmd.AT_PRIORITY) for one in manager.fetch(on, b"", 10)} == {priority}


def test_it_is_that_of_the_moment(manager):
    put(manager, "A", md(priority=-1), priority=-1)
    manager.mqsc("ALTER QLOCAL(A) DEFPRTY(1)")
    put(manager, "A", md(priority=-1), priority=-1)
    assert [mqmd.number(one.md, mqmd.AT_PRIORITY) for one in manager.fetch("A", b"", 10)] == [6, 1]


@pytest.mark.parametrize(
    ("given", "found"),
    [(("REPLIES", ""), ("REPLIES", "QM1")), (("REPLIES", "QM2"), ("REPLIES", "QM2")), (("", ""), ("", "")),
     (("REPLY.ALIAS", ""), ("REPLIES", "QM9"))],
)  # fmt: skip
def test_the_queue_manager_of_the_reply_queue(manager, given, found):
    put(manager, "A", md(reply_to_q=given[0].encode().ljust(48), reply_to_qmgr=given[1].encode().ljust(48)))
    [message] = manager.fetch("A", b"", 10)
    assert (mqmd.text(message.md, mqmd.REPLY_TO_Q), mqmd.text(message.md, mqmd.REPLY_TO_Q_MGR)) == found


def test_a_report_with_data_has_the_headers_whole(manager):
    header = rfh2.build(["<usr><a>" + "v" * 200 + "</a></usr>"], format_name=b"MQSTR   ")
    head = md(report=COA_WITH_DATA, reply_to_q=b"REPLIES".ljust(48), format=b"MQHRF2  ")
    put(manager, "A", head, bodies=(header + bytes(range(250)),))
    [report] = manager.fetch("REPLIES", b"", 10)
    walked = chain.walk(report.md, report.data)
    assert [one.name for one in walked] == ["MQRFH2"]
    assert walked.payload == bytes(range(100))

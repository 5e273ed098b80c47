"""Streaming queues: a queue with a STREAMQ has a copy of what is put to it there.

What a copy is, and what is refused, is as in Streaming queues configuration and Streaming queue restrictions in the
manual of IBM MQ.
"""

from __future__ import annotations

import pytest
from embedded_rig import md, refused

from gateway.mq import constants as mq
from gateway.mq import pcf
from gateway.ports.batch import Moves, Outcome, Puts, Unit
from gateway.ports.mqi import Property, PutOptions
from gateway.queue_manager.descriptor import Descriptor

Q_NAME, Q_TYPE, STREAM_QUEUE, STREAM_QUALITY = 2016, 20, 2138, 275
SYNCPOINT, NO_SYNCPOINT = mq.MQPMO_SYNCPOINT, mq.MQPMO_NO_SYNCPOINT
REPORTS = mq.MQRO_COA | mq.MQRO_COD | mq.MQRO_EXPIRATION | mq.MQRO_EXCEPTION


@pytest.fixture
def streams(mqi):
    """A queue with a STREAMQ."""
    mqi.mqsc("DEFINE QLOCAL(COPIES)\nDEFINE QLOCAL(SOURCE) STREAMQ(COPIES)\nDEFINE QLOCAL(REPORTS)")
    return mqi


def test_a_copy_is_the_message_that_does_not_expire_and_asks_for_no_report(streams):
    given = md(report=REPORTS | mq.MQRO_PAN, reply_to_q=b"REPORTS", expiry=900, priority=7, persistence=1)
    options = PutOptions(NO_SYNCPOINT, properties=[Property("colour", "red", mq.MQTYPE_STRING)])
    source, copies = streams.open("SOURCE"), streams.open("COPIES")
    sent = Descriptor(streams.connection.put(source, given, options, b"data").md)
    original, copied = streams.get(source, handle_given=True), streams.get(copies, handle_given=True)
    got, copy = Descriptor(original.md), Descriptor(copied.md)
    assert (copied.data, [one.name for one in copied.properties]) == (b"data", ["colour"])
    assert sent.msg_id == got.msg_id == copy.msg_id
    assert (copy.report, copy.expiry) == (mq.MQRO_PAN, mq.MQEI_UNLIMITED)
    assert (copy.priority, copy.persistence, copy.put_time) == (7, 1, got.put_time)
    assert (got.report, got.expiry) == (REPORTS | mq.MQRO_PAN, 900)
    assert streams.depth("REPORTS") == 2, "of the arrival and the delivery of the message alone"


@pytest.mark.parametrize("options", [NO_SYNCPOINT, SYNCPOINT, NO_SYNCPOINT | mq.MQPMO_ASYNC_RESPONSE])
def test_every_put_of_a_program_is_copied(streams, options):
    source = streams.open("SOURCE")
    for number in range(3):
        streams.put(source, b"%d" % number, options)
    streams.put("SOURCE", b"3", options)
    streams.connection.put_run(source, [md()] * 2, PutOptions(options), [b"4", b"5"])
    everything = [b"%d" % number for number in range(6)]
    if options & SYNCPOINT:
        assert streams.drain(streams.open("COPIES")) == []
        streams.connection.commit()
    assert streams.drain(streams.open("COPIES")) == streams.drain(source) == everything
    streams.put(source, b"backed out", SYNCPOINT)
    streams.connection.back()
    assert streams.depth("COPIES") == streams.depth("SOURCE") == 0


def committed(streams, unit):
    """The unit as the gateway commits it."""
    outcomes = []
    streams.queue_manager.submit(unit, lambda _unit, outcome: outcomes.append(outcome))
    streams.scheduler.run_until(lambda: bool(outcomes))
    return outcomes[0]


def rows(queue, *bodies):
    return Puts(queue, heads=[md()] * len(bodies), bodies=list(bodies))


def test_what_the_gateway_puts_and_moves_is_copied(streams):
    for _ in range(2):  # the second time the way is known
        assert committed(streams, Unit([rows("SOURCE", b"1", b"2"), rows("A", b"staged")])) == Outcome()
        staged = [one.token for one in streams.queue_manager.fetch("A", b"", 10)]
        assert committed(streams, Unit(moves=[Moves("A", b"", staged, "SOURCE", heads=[md()])])) == Outcome()
    everything = [b"1", b"2", b"staged"] * 2
    assert streams.drain(streams.open("SOURCE")) == streams.drain(streams.open("COPIES")) == everything


def test_copies_count_beside_what_is_put_and_moved_with_them(streams):
    streams.mqsc("ALTER QLOCAL(COPIES) MAXDEPTH(2)")
    for _ in range(2):  # the second time the way is known
        (failure,) = committed(streams, Unit([rows("SOURCE", b"1", b"2"), rows("COPIES", b"3")])).failures
        assert (failure.puts, failure.reason) == (1, mq.MQRC_Q_FULL)
        assert committed(streams, Unit([rows("SOURCE", b"1"), rows("COPIES", b"2")])) == Outcome()
        assert streams.drain(streams.open("COPIES")) == [b"1", b"2"]
    assert committed(streams, Unit([rows("A", b"1", b"2")])) == Outcome()
    staged = [one.token for one in streams.queue_manager.fetch("A", b"", 10)]
    moved = Moves("A", b"", staged, "COPIES")
    assert committed(streams, Unit([rows("SOURCE", b"3")], moves=[moved])).failures[0].reason == mq.MQRC_Q_FULL
    assert streams.depth("COPIES") == 0


def test_a_copy_that_has_to_be_and_cannot_names_the_queue_that_is_full(streams):
    streams.mqsc("ALTER QLOCAL(COPIES) MAXDEPTH(1)\nALTER QLOCAL(SOURCE) STRMQOS(MUSTDUP)")
    (failure,) = committed(streams, Unit([rows("SOURCE", b"1", b"2")])).failures
    told = "MQRC 2053: STREAMQ(COPIES) of SOURCE must get its copy: COPIES holds MAXDEPTH(1) messages"
    assert failure.text == told


def test_best_effort_puts_the_message_without_its_copy_and_must_duplicate_does_not(streams):
    streams.mqsc("ALTER QLOCAL(COPIES) MAXDEPTH(0)")
    streams.put("SOURCE", b"alone")
    streams.mqsc("ALTER QLOCAL(SOURCE) STRMQOS(MUSTDUP)")
    with refused(mq.MQRC_Q_FULL):
        streams.put("SOURCE", b"neither")
    streams.mqsc("ALTER QLOCAL(COPIES) MAXDEPTH(10)")
    streams.put("SOURCE", b"both")
    assert streams.drain(streams.open("SOURCE")) == [b"alone", b"both"]
    assert streams.drain(streams.open("COPIES")) == [b"both"]
    streams.mqsc("ALTER QLOCAL(SOURCE) STREAMQ(GONE)")
    with refused(mq.MQRC_UNKNOWN_OBJECT_NAME):
        streams.put("SOURCE", b"nobody defined it")
    streams.mqsc("ALTER QLOCAL(SOURCE) STREAMQ(' ')")
    streams.put("SOURCE", b"no stream any more")
    assert streams.depth("COPIES") == 0


def test_a_stream_leads_through_an_alias_to_subscribers_and_to_other_queue_managers(streams):
    streams.mqsc(
        "DEFINE TOPIC(COPIED) TOPICSTR('copied')\nDEFINE QALIAS(TO.TOPIC) TARGET(COPIED) TARGTYPE(TOPIC)\n"
        "DEFINE SUB(ONE) TOPICSTR('copied') DEST(COPIES)\nDEFINE SUB(BACK) TOPICSTR('copied') DEST(SOURCE)\n"
        "ALTER QLOCAL(SOURCE) STREAMQ(TO.TOPIC)"
    )
    streams.put("SOURCE", b"published")
    assert streams.drain(streams.open("COPIES")) == [b"published"]
    assert streams.drain(streams.open("SOURCE")) == [b"published"] * 2, "and is not copied again"
    streams.mqsc(
        "DEFINE QLOCAL(X) USAGE(XMITQ)\nDEFINE QREMOTE(FAR) RNAME(Q) RQMNAME(QM2) XMITQ(X)\n"
        "ALTER QLOCAL(SOURCE) STREAMQ(FAR)"
    )
    streams.put("SOURCE", b"sent")
    assert (streams.depth("X"), streams.drain(streams.open("SOURCE"))) == (1, [b"sent"])


def test_a_copy_that_has_to_reach_all_subscribers_reaches_all_or_none(streams):
    streams.mqsc(
        "DEFINE TOPIC(COPIED) TOPICSTR('copied') NPMSGDLV(ALL) USEDLQ(NO)\n"
        "DEFINE QALIAS(TO.TOPIC) TARGET(COPIED) TARGTYPE(TOPIC)\nDEFINE QLOCAL(FULL) MAXDEPTH(1)\n"
        "DEFINE SUB(ONE) TOPICSTR('copied') DEST(COPIES)\nDEFINE SUB(TWO) TOPICSTR('copied') DEST(FULL)\n"
        "DEFINE SUB(THREE) TOPICSTR('copied') DEST(REPORTS)\nALTER QLOCAL(SOURCE) STREAMQ(TO.TOPIC)"
    )
    for body in (b"1", b"2"):
        streams.put("SOURCE", body)
    assert streams.drain(streams.open("SOURCE")) == [b"1", b"2"]
    assert [streams.drain(streams.open(name)) for name in ("COPIES", "FULL", "REPORTS")] == [[b"1"]] * 3


def test_a_stream_is_shown_as_it_was_defined_or_changed(streams, ask):
    streams.mqsc("ALTER QLOCAL(SOURCE) STRMQOS(MUSTDUP)")
    (answered,) = ask(13, pcf.string(Q_NAME, "SOURCE"), pcf.integer(Q_TYPE, 1))
    assert (answered[STREAM_QUEUE].strip(), answered[STREAM_QUALITY]) == ("COPIES", 1)
    ask(8, pcf.string(Q_NAME, "SOURCE"), pcf.integer(Q_TYPE, 1), pcf.string(STREAM_QUEUE, "REPORTS"))
    shown = "".join(streams.mqsc("DISPLAY QLOCAL(SOURCE) STREAMQ STRMQOS"))
    assert "STREAMQ(REPORTS)" in shown
    assert "STRMQOS(MUSTDUP)" in shown
    streams.put("SOURCE", b"copied")
    assert streams.drain(streams.open("REPORTS")) == [b"copied"]


@pytest.mark.parametrize(
    "command",
    [
        "DEFINE QLOCAL(THIRD) STREAMQ(SOURCE)",
        "DEFINE QLOCAL(THIRD) STREAMQ(TO.SOURCE)",
        "ALTER QLOCAL(COPIES) STREAMQ(REPORTS)",
        "DEFINE QLOCAL(SELF) STREAMQ(SELF)",
        "DEFINE QLOCAL(X) USAGE(XMITQ) STREAMQ(COPIES)",
        "ALTER QLOCAL(SOURCE) USAGE(XMITQ)",
        "DEFINE QLOCAL(M) STREAMQ(SYSTEM.DEFAULT.MODEL.QUEUE)",
        "DEFINE QLOCAL(D) STREAMQ(SYSTEM.DEAD.LETTER.QUEUE)",
        "ALTER QLOCAL(SYSTEM.ADMIN.COMMAND.QUEUE) STREAMQ(COPIES)",
        "DEFINE QLOCAL(S) STREAMQ(MQGATE.SESSIONS)",
    ],
)
def test_streams_that_cannot_be_are_refused(streams, command):
    streams.mqsc("DEFINE QALIAS(TO.SOURCE) TARGET(SOURCE)")
    report = streams.queue_manager.mqsc(command)
    assert not report.ok
    assert "STREAMQ" in "".join(report.lines)
    streams.mqsc("ALTER QLOCAL(SOURCE) STREAMQ(COPIES) STRMQOS(MUSTDUP)\nDEFINE QMODEL(MODEL) STREAMQ(COPIES)")

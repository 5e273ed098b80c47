"""A plain get finds the message that MQGET finds in its own way, and returns the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from embedded_rig import MqiRig, md
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.ports.mqi import GetOptions, ObjectDescriptor, PutOptions

SYNCPOINT, NO_SYNCPOINT, WAIT = mq.MQGMO_SYNCPOINT, mq.MQGMO_NO_SYNCPOINT, mq.MQGMO_WAIT
IDS = [bytes(24), b"one".ljust(24, b"\0"), b"two".ljust(24, b"\0")]
FORMATS = [b" " * 8, b"MQSTR   ", mq.MQFMT_RF_HEADER_2]
OBJECTS = "DEFINE QLOCAL(Q)\nDEFINE QLOCAL(R)\nDEFINE QALIAS(A) TARGET(Q)"
OPEN = mq.MQOO_INPUT_SHARED | mq.MQOO_BROWSE | mq.MQOO_OUTPUT

messages = st.fixed_dictionaries({
    "correl_id": st.sampled_from(IDS), "msg_id": st.sampled_from([*IDS, b"m".ljust(24, b"\0")]),
    "priority": st.integers(0, 2), "persistence": st.integers(0, 1), "expiry": st.sampled_from([-1, -1, 50]),
    "format": st.sampled_from(FORMATS), "flags": st.sampled_from([0, 0, mq.MQMF_MSG_IN_GROUP, 1]),
})  # fmt: skip
gets = st.tuples(
    st.sampled_from(IDS), st.sampled_from([0, 2, 3]), st.sampled_from(IDS), st.sampled_from([4, 100]),
    st.sampled_from([SYNCPOINT, NO_SYNCPOINT, SYNCPOINT | WAIT, NO_SYNCPOINT | mq.MQGMO_ACCEPT_TRUNCATED_MSG]),
    st.sampled_from(["none", "commit", "back", "late", "other"]),
)  # fmt: skip


@pytest.fixture(scope="module", params=["memory", "journal"])
def rig(request, tmp_path_factory):
    path = None if request.param == "memory" else tmp_path_factory.mktemp("plain") / "data"
    made = MqiRig(path, OBJECTS)
    yield made
    made.queue_manager.close()


def outcome(call, *arguments):
    """Returns the message as it was got, or the reason code."""
    try:
        got = call(*arguments)
    except MQError as error:
        return error.reason
    return got.md[:96] + got.md[100:], got.data, got.length, got.reason, got.token, got.group_status, got.segment_status


@given(given=st.lists(messages, max_size=6), asked=st.lists(gets, max_size=8), name=st.sampled_from("QA"))
def test_it_gives_what_a_browse_with_the_same_options_gives(rig, given, asked, name) -> None:
    connection, other = rig.queue_manager.connect(user="ana"), rig.queue_manager.connect(user="ben")
    handle = connection.open(ObjectDescriptor(name), OPEN).handle
    others = other.open(ObjectDescriptor("Q"), OPEN).handle
    for number, fields in enumerate(given):
        connection.put(handle, md(**fields), PutOptions(), b"%06d" % number)
    for correl_id, match, msg_id, room, value, then in asked:
        if then == "late":
            rig.scheduler.advance(6)
        if then == "other":  # holds one in an open unit of work
            outcome(other.get, others, md(), GetOptions(SYNCPOINT, match=0), 100)
        wanted, options = md(correl_id=correl_id, msg_id=msg_id), GetOptions(value & ~WAIT, match=match)
        browse = replace(options, options=mq.MQGMO_BROWSE_FIRST | value & mq.MQGMO_ACCEPT_TRUNCATED_MSG)
        browsed = outcome(connection.get, handle, wanted, browse, room)
        if value & WAIT:
            arrived: list = []
            connection.wait(handle, wanted, replace(options, options=value), room, None, arrived.append)()
            result = outcome(_raised, arrived[0]) if arrived else mq.MQRC_NO_MSG_AVAILABLE
        else:
            result = outcome(connection.get, handle, wanted, options, room)
        assert result == browsed
        if then == "commit":
            connection.commit()
        elif then == "back":
            connection.back()
    connection.commit()
    other.disconnect()
    while outcome(connection.get, handle, md(), GetOptions(NO_SYNCPOINT, match=0), 100) != 2033:
        pass
    connection.disconnect()


def _raised(result):
    if isinstance(result, MQError):
        raise result
    return result


def test_what_is_got_in_an_open_unit_of_work_is_not_read_again(tmp_path, monkeypatch) -> None:
    """A unit may have thousands of messages with one CorrelId, and each get looks from the first of them on."""
    rig, read = MqiRig(tmp_path / "data", OBJECTS), list[int]()
    handle, correlation = rig.open("Q", OPEN), IDS[1]
    for _ in range(20):
        rig.put(handle, descriptor=md(correl_id=correlation))
    reader = rig.queue_manager.core.store.finder._reader
    message = reader.message
    monkeypatch.setattr(reader, "message", lambda lane, number: read.append(number) or message(lane, number))
    for _ in range(20):
        rig.get(handle, SYNCPOINT, md(correl_id=correlation), match=mq.MQMO_MATCH_CORREL_ID)
    assert len(read) == 20
    rig.queue_manager.close()


def test_what_an_administrator_changes_counts_at_once(rig) -> None:
    connection = rig.queue_manager.connect(user="ana")
    handle = connection.open(ObjectDescriptor("R"), OPEN).handle
    options = GetOptions(NO_SYNCPOINT, match=0)
    connection.put(handle, md(), PutOptions(), b"data")
    assert connection.get(handle, md(), options, 100).data == b"data"
    rig.queue_manager.mqsc("ALTER QLOCAL(R) GET(DISABLED)")
    assert outcome(connection.get, handle, md(), options, 100) == mq.MQRC_GET_INHIBITED
    rig.queue_manager.mqsc("ALTER QLOCAL(R) GET(ENABLED)")
    assert outcome(connection.get, handle, md(), options, 100) == mq.MQRC_NO_MSG_AVAILABLE
    connection.disconnect()
    assert outcome(connection.get, handle, md(), options, 100) == mq.MQRC_HCONN_ERROR

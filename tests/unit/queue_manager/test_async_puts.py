"""A run of asynchronous puts leaves exactly what the same puts one by one leave."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedulers import ManualScheduler

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.mq import mqmd
from gateway.ports.mqi import GetOptions, ObjectDescriptor, PutOptions
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.verbs import async_puts
from gateway.queue_manager.verbs.connection import MqiConnection

OBJECTS = """
DEFINE QLOCAL(PLAIN) DEFPRTY(3) DEFPSIST(YES)
DEFINE QLOCAL(FIFO) MSGDLVSQ(FIFO)
DEFINE QLOCAL(SMALL) MAXDEPTH(5)
DEFINE QLOCAL(SHORT) MAXMSGL(6)
DEFINE QLOCAL(CLOSED) PUT(DISABLED)
DEFINE QLOCAL(REPLIES)
DEFINE QLOCAL(XMIT) USAGE(XMITQ)
DEFINE QREMOTE(AWAY) RNAME(THERE) RQMNAME(OTHER) XMITQ(XMIT)
DEFINE QALIAS(NAME) TARGET(PLAIN) DEFPRTY(7)
ALTER QMGR MAXUMSGS(12)
"""
LOCAL = ("PLAIN", "FIFO", "SMALL", "SHORT", "CLOSED", "REPLIES", "XMIT")
identifiers = st.sampled_from([bytes(24), b"A" * 24, b"B" * 24, bytes(23) + b"x"])


ODD: list[dict[str, int | str]] = [
    {"priority": -2},
    {"priority": 12},
    {"expiry": 0},
    {"expiry": 500},
    {"report": mq.MQRO_COA, "reply_to_q": "REPLIES"},
    {"report": mq.MQRO_COA},
    {"msg_flags": mq.MQMF_MSG_IN_GROUP},
]


@st.composite
def messages(draw: st.DrawFn) -> tuple[bytes, bytes]:
    fields = draw(st.sampled_from([{}] * 12 + ODD))
    priority, persistence = draw(st.sampled_from([-1, 0, 4, 9])), draw(st.sampled_from([0, 1, 2]))
    md = mqmd.build(**{"priority": priority, "persistence": persistence, **fields})
    given_id = b"M" * 16 + draw(st.binary(min_size=8, max_size=8)) if draw(st.integers(0, 9)) else draw(identifiers)
    return md[:48] + given_id + draw(identifiers) + md[96:], draw(st.binary(max_size=7))


def _connection(queue_manager: EmbeddedQueueManager, queue: str) -> tuple[MqiConnection, int]:
    connection = queue_manager.connect(application="runs", user="app")
    assert isinstance(connection, MqiConnection)
    return connection, connection.open(ObjectDescriptor(queue), mq.MQOO_OUTPUT | mq.MQOO_SET_IDENTITY_CONTEXT).handle


def _left(queue_manager: EmbeddedQueueManager, given_ids: set[bytes]) -> list[object]:
    """Returns everything on every queue; identifiers made by the queue manager are only marked as such."""
    reader, found = queue_manager.connect(), []
    for queue in LOCAL:
        handle = reader.open(ObjectDescriptor(queue), mq.MQOO_INPUT_SHARED).handle
        while True:
            try:
                got = reader.get(handle, mqmd.build(), GetOptions(0, 0, 0, bytes(16), False), 10_000)
            except MQError:
                break
            own = got.md[48:72] if got.md[48:72] in given_ids else b"made"
            groups = got.md[324:348] if got.md[324:348] == bytes(24) else b"made"
            data = got.data if queue != "XMIT" else got.data[428:]
            correl = got.md[72:96] if queue not in {"XMIT", "REPLIES"} else b""
            found.append((queue, got.md[:48], own, correl, got.md[96:324], groups, got.md[348:], data))
    return found


def _outcome(rows: list[tuple[bytes, bytes]], queue: str, how: int, *, together: bool) -> object:
    """Returns the answers of MQSTAT and MQCMIT, and what is left a minute later."""
    options = PutOptions(how | mq.MQPMO_ASYNC_RESPONSE, 0, (), publication_level=9)
    clock = ManualScheduler()
    queue_manager = EmbeddedQueueManager.open(None, "QM1", clock, OBJECTS)
    connection, handle = _connection(queue_manager, queue)
    if together:
        connection.put_run(handle, [md for md, _ in rows], options, [body for _, body in rows])
    else:
        for md, body in rows:
            with suppress(MQError):
                connection.put(handle, md, options, body)
    status, committed = connection.status(), 0
    try:
        connection.commit()
    except MQError as error:
        committed = error.reason
    clock.advance(60)  # what expires has expired
    left = _left(queue_manager, {md[48:72] for md, _ in rows} - {bytes(24)})
    queue_manager.close()
    return status, committed, left


@settings(max_examples=100, deadline=None)
@given(
    st.lists(messages(), min_size=1, max_size=14),
    st.sampled_from(["PLAIN", "FIFO", "SMALL", "SHORT", "CLOSED", "AWAY", "NAME"]),
    st.sampled_from([mq.MQPMO_SYNCPOINT, mq.MQPMO_NO_SYNCPOINT, mq.MQPMO_SYNCPOINT | mq.MQPMO_SET_IDENTITY_CONTEXT]),
)
def test_a_run_is_the_same_as_its_puts(rows: list[tuple[bytes, bytes]], queue: str, how: int) -> None:
    assert _outcome(rows, queue, how, together=True) == _outcome(rows, queue, how, together=False)


@pytest.mark.parametrize("fields", ODD, ids=repr)
def test_a_message_out_of_the_ordinary_among_others(fields: dict[str, int | str]) -> None:
    usual, odd = mqmd.build(persistence=1), mqmd.build(persistence=1, **fields)
    rows = [
        (md[:48] + bytes([number + 1]) * 24 + md[72:], b"%d" % number) for number, md in enumerate((usual, odd, usual))
    ]
    how = mq.MQPMO_SYNCPOINT
    assert _outcome(rows, "PLAIN", how, together=True) == _outcome(rows, "PLAIN", how, together=False)


def test_the_ordinary_run_is_one_row_of_columns() -> None:
    queue_manager = EmbeddedQueueManager.open(None, "QM1", ManualScheduler(), OBJECTS)
    connection, number = _connection(queue_manager, "PLAIN")
    md = mqmd.build(persistence=1)
    mds = [md[:48] + struct.pack(">24s", b"%024d" % i) + md[72:] for i in range(1, 11)]
    options = PutOptions(mq.MQPMO_SYNCPOINT | mq.MQPMO_ASYNC_RESPONSE, 0, (), publication_level=9)
    assert async_puts.put_run(connection.state, connection.state.handle(number), mds, options, [b"x"] * 10)
    assert [len(puts.heads) for puts in connection.state.work.unit.puts] == [10]
    assert connection.state.work.messages == 10
    connection.commit()
    assert queue_manager.depth("PLAIN") == 10
    assert number
    queue_manager.close()

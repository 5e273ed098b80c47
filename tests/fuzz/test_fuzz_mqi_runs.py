"""However a program's frames are cut into chunks, and whatever runs of puts they make: the same answers and queues."""

from __future__ import annotations

import struct

from hypothesis import given, settings
from hypothesis import strategies as st
from schedulers import ManualScheduler

from gateway.mq import constants as mq
from gateway.mq import mqmd
from gateway.mqi.server_protocol import ServerProtocol
from gateway.mqi.wire import HEADER, MAGIC, NO_REPLY, PROTOCOL_VERSION, Verb
from gateway.queue_manager.embedded import EmbeddedQueueManager

OBJECTS = "DEFINE QLOCAL(A) MAXDEPTH(12)\nDEFINE QLOCAL(B) MAXMSGL(4)"
ASYNC = mq.MQPMO_ASYNC_RESPONSE
MD = mqmd.build(persistence=1)


def _blob(data: bytes) -> bytes:
    return struct.pack("<i", len(data)) + data


def _frame(verb: int, body: bytes = b"", flags: int = 0) -> bytes:
    return HEADER.pack(len(body) + 4, verb, flags, 7) + body


def _open(queue: bytes) -> bytes:
    named = struct.pack("<i", 1) + b"".join(map(_blob, (queue, b"", b"", b"", b"", b"")))
    return _frame(Verb.OPEN, named + struct.pack("<i", mq.MQOO_OUTPUT | mq.MQOO_INPUT_SHARED))


GREETING = MAGIC + struct.pack("<3i", PROTOCOL_VERSION, 0, 0) + b"".join(map(_blob, (b"", b"u", b"", b"app", b"", b"")))
START = _frame(Verb.CONNECT, GREETING) + _open(b"A") + _open(b"B")


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    kind = draw(st.sampled_from(["async"] * 6 + ["sync", "commit", "back", "status", "broken"]))
    if kind == "commit":
        return _frame(Verb.COMMIT)
    if kind == "back":
        return _frame(Verb.BACK_OUT)
    if kind == "status":
        return _frame(Verb.STATUS, struct.pack("<i", 0))
    handle = draw(st.sampled_from([1, 1, 1, 2, 9]))
    options = draw(st.sampled_from([mq.MQPMO_SYNCPOINT, mq.MQPMO_SYNCPOINT, mq.MQPMO_NO_SYNCPOINT]))
    md = MD[:48] + draw(st.sampled_from([b"1", b"2", b"3"])) * 24 + MD[72:]
    data = draw(st.binary(max_size=6))
    if kind == "broken":  # a length that does not fit the frame: the program is cut off
        return _frame(
            Verb.PUT, struct.pack("<4i", handle, options | ASYNC, 0, 9) + md + struct.pack("<2i", 0, 99), NO_REPLY
        )
    own, flags = (options | ASYNC, NO_REPLY) if kind == "async" else (options, 0)
    return _frame(Verb.PUT, struct.pack("<4i", handle, own, 0, 9) + md + _blob(b"") + _blob(data), flags)


def _fed(chunks: list[bytes]) -> tuple[bytes, bool, list[int]]:
    """(answers, cut off, depths) after these chunks and the end of the connection."""
    queue_manager = EmbeddedQueueManager.open(None, "QM1", ManualScheduler(), OBJECTS)
    answers, closed = bytearray(), []
    protocol = ServerProtocol(queue_manager, answers.extend, lambda: closed.append(True), monotonic=lambda: 0.0)
    for chunk in chunks:
        protocol.receive(chunk)
    protocol.connection_lost()
    depths = [queue_manager.depth(queue) for queue in ("A", "B")]
    queue_manager.close()
    return _without_ids(bytes(answers)), bool(closed), depths


def _without_ids(answers: bytes) -> bytes:
    """The answer to MQCONNX has an identifier that is new each time."""
    first = int.from_bytes(answers[:4], "little") + 4
    return answers[first:]


@settings(max_examples=60, deadline=None)
@given(st.lists(frames(), max_size=30), st.lists(st.integers(1, 4000), max_size=12))
def test_chunks_and_runs_change_nothing(parts: list[bytes], cuts: list[int]) -> None:
    stream = START + b"".join(parts)
    chunks, at = [], 0
    for cut in cuts:
        chunks.append(stream[at : at + cut])
        at += cut
    chunks.append(stream[at:])
    one_by_one = _fed([START, *parts])
    assert _fed([stream]) == one_by_one
    assert _fed([chunk for chunk in chunks if chunk]) == one_by_one

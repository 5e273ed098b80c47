"""What a round trip of request and reply costs without sockets: `python tests/bench/request_reply.py`.

Programs are generators of frames; whatever lies before the queue manager is answered in one round, so that it is as
well gathered as can be. Processor time is what the thread of the queue manager takes, its programs (about 35 us)
included; calls into Python do not depend on the machine.
"""

from __future__ import annotations

import argparse
import os
import struct
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from gateway.mq import constants as mq
from gateway.mqi.rounds import Rounds
from gateway.mqi.server_protocol import ServerProtocol
from gateway.mqi.wire import HEADER, MAGIC, PROTOCOL_VERSION, Verb
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.thread_scheduler import ThreadScheduler

OBJECTS = "DEFINE QLOCAL(REQ) MAXDEPTH(100000)\nDEFINE QLOCAL(REPLY) MAXDEPTH(100000)"
SIZE = 2048
BODY = os.urandom(SIZE)
FAIL = 0x2000
"""The FAIL_IF_QUIESCING options of MQPUT and MQGET."""
Talk = Generator[bytes, bytes, None]


def _frame(verb: Verb, body: bytes = b"") -> bytes:
    return HEADER.pack(len(body) + 4, verb, 0, 1) + body


def _texts(*values: bytes) -> bytes:
    return b"".join(struct.pack("<i", len(value)) + value for value in values)


def _descriptor(kind: int, *, correl_id: bytes = bytes(24), reply_to: bytes = b"") -> bytes:
    start = b"MD  " + struct.pack("<7i", 2, 0, kind, -1, 0, 546, 0) + b" " * 8 + struct.pack("<2i", -1, 1)
    start += bytes(24) + correl_id + bytes(4) + reply_to.ljust(48) + b" " * 48
    return start + bytes(324 - len(start)) + bytes(24) + struct.pack("<4i", 1, 0, 0, -1)


def _put(handle: int, options: int, descriptor: bytes) -> bytes:
    start = struct.pack("<4i", handle, options | mq.MQPMO_NEW_MSG_ID | FAIL, 0, 0)
    return _frame(Verb.PUT, start + descriptor + struct.pack("<2i", 0, SIZE) + BODY)


def _get(handle: int, match: int, descriptor: bytes, syncpoint: int = mq.MQGMO_SYNCPOINT) -> bytes:
    options = mq.MQGMO_WAIT | syncpoint | FAIL
    start = struct.pack("<7i", handle, options, -1, match, 0, 2, SIZE + 1)
    return _frame(Verb.GET, start + bytes(16) + descriptor)


def _opened(queue: bytes, options: int) -> Generator[bytes, bytes, int]:
    body = struct.pack("<i", 1) + _texts(queue, b"", b"", b"", b"", b"") + struct.pack("<i", options)
    answer = yield _frame(Verb.OPEN, body)
    return int(struct.unpack_from("<i", answer, 16)[0])


def _greeting() -> bytes:
    return _frame(Verb.CONNECT, MAGIC + struct.pack("<3i", PROTOCOL_VERSION, 0, 0) + _texts(*[b""] * 6))


class Market:
    """A queue manager in a directory with its requesters and servers."""

    def __init__(
        self, directory: Path, scheduler: Any, requesters: int, servers: int, *, committed: bool = True
    ) -> None:
        """`committed`: requesters get their replies under syncpoint."""
        self.trips = 0
        self._committed = committed
        self.queue_manager = EmbeddedQueueManager.open(directory, "QM1", scheduler, OBJECTS)
        self._planned = False
        self._rounds = Rounds(self.queue_manager, time.monotonic, self._plan, self._exchange)
        self.queue_manager.serve_through(self._rounds.soon)
        self._programs: list[tuple[ServerProtocol, Talk, list[bytes]]] = []
        for number in range(servers + requesters):
            self._connect(self._server() if number < servers else self._requester())

    def _plan(self) -> None:
        self._planned = True

    def _connect(self, talk: Talk) -> None:
        answers: list[bytes] = []
        protocol = ServerProtocol(self.queue_manager, answers.append, lambda: None, monotonic=time.monotonic)
        self._programs.append((protocol, talk, answers))
        self._rounds.receive(protocol, next(talk))

    def _exchange(self) -> None:
        for protocol, talk, answers in self._programs:
            if answers:
                answer = b"".join(answers)
                answers.clear()
                reason = struct.unpack_from("<i", answer, 12)[0]
                assert reason == 0, reason
                self._rounds.receive(protocol, talk.send(answer))

    def _requester(self) -> Talk:
        yield _greeting()
        output = yield from _opened(b"REQ", mq.MQOO_OUTPUT)
        own = yield from _opened(b"REPLY", mq.MQOO_INPUT_SHARED)
        while True:
            answer = yield _put(output, mq.MQPMO_NO_SYNCPOINT, _descriptor(1, reply_to=b"REPLY"))
            msg_id = answer[64:88]
            asked = _descriptor(8, correl_id=msg_id)
            if self._committed:
                yield _get(own, mq.MQMO_MATCH_CORREL_ID, asked)
                yield _frame(Verb.COMMIT)
            else:
                yield _get(own, mq.MQMO_MATCH_CORREL_ID, asked, mq.MQGMO_NO_SYNCPOINT)
            self.trips += 1

    def _server(self) -> Talk:
        yield _greeting()
        own = yield from _opened(b"REQ", mq.MQOO_INPUT_SHARED)
        output = yield from _opened(b"REPLY", mq.MQOO_OUTPUT)
        while True:
            answer = yield _get(own, 3, _descriptor(8))
            yield _put(output, mq.MQPMO_SYNCPOINT, _descriptor(2, correl_id=answer[64:88]))
            yield _frame(Verb.COMMIT)

    def run(self, trips: int) -> int:
        """So many round trips, or a few more: how many."""
        before = self.trips
        while self.trips < before + trips:
            self._exchange()
            if self._planned:
                self._planned = False
                self._rounds.run()
            else:
                time.sleep(0.0001)  # the writer's thread has the frame
        return self.trips - before

    def calls(self, trips: int) -> float:
        """Calls into Python of this thread for a round trip."""
        found = 0

        def count(_frame: object, event: str, _argument: object) -> None:
            nonlocal found
            found += event == "call"

        sys.setprofile(count)
        try:
            made = self.run(trips)
        finally:
            sys.setprofile(None)
        return found / made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trips", type=int, default=2000)
    parser.add_argument("--plain", action="store_true", help="replies are got outside syncpoint")
    parser.add_argument("--cases", default="1/1 10/4 100/10")
    given = parser.parse_args()
    for case in given.cases.split():
        requesters, servers = map(int, case.split("/"))
        with tempfile.TemporaryDirectory() as directory, ThreadScheduler() as scheduler:
            market = Market(Path(directory) / "data", scheduler, requesters, servers, committed=not given.plain)
            market.run(200)
            frames, before = market.queue_manager.core.committer.frames, market.trips
            began, all_began = time.thread_time(), time.process_time()
            made = market.run(given.trips)
            thread, process = time.thread_time() - began, time.process_time() - all_began
            frames = market.queue_manager.core.committer.frames - frames
            print(
                f"{case:>7}: {thread / made * 1e6:.0f} us of the thread and {process / made * 1e6:.0f} us of the "
                f"process a round trip, {frames / (market.trips - before):.2f} frames, {market.calls(500):.0f} calls"
            )
            market.queue_manager.close()


if __name__ == "__main__":
    main()

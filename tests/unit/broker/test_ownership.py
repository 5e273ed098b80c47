"""gateway.broker.sessions.ownership: records that nobody can read, among those of a gateway that has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from broker_harness import FarQueues, Harness

from gateway.mq import mqmd
from gateway.ports.batch import Stored
from gateway.ports.ownership import READS, message_key
from gateway.ports.state_queues import GATEWAYS, SESSIONS, SET_ASIDE, WILLS
from gateway.session.record import decode_json, encode_json, key_of

OURS, GONE, THIRD = "aa" * 12, "bb" * 12, "cc" * 12


class SharedQueues(FarQueues):
    """State queues that another gateway has used too."""

    instance = OURS

    def __init__(self) -> None:
        super().__init__()
        self.others: set[str] = set()
        self.expired: list[str] = []
        self.told: list[Callable[[], None]] = []
        self.on_message: Callable[[dict[str, Any]], None] = lambda _message: None

    def peers(self) -> frozenset[str]:
        return frozenset(self.others)

    def knows(self, gateway: str) -> bool:
        return gateway in {OURS, *self.others, *self.expired}

    lease_seconds = 10.0

    def reads(self, gateway: str) -> int:
        del gateway
        return READS

    def leases(self) -> dict[str, float]:
        return {}

    def expired_owners(self) -> list[str]:
        return list(self.expired)

    def taken_over(self, owner: str) -> None:
        self.expired.remove(owner)
        self.others.discard(owner)

    def listen(self, on_message: Callable[[dict[str, Any]], None], on_change: Callable[[], None]) -> None:
        self.on_message = on_message
        self.told.append(on_change)

    def reached(self, place: str) -> None:
        pass

    def receive(self, key: bytes, arrived: Callable[[], None]) -> None:
        pass

    def claim(self, queue: str, key: bytes, limit: int) -> list[Stored]:
        return self.fetch(queue, key, limit)

    def keep(self, queue: str, key: bytes, data: bytes) -> None:
        self.rows.setdefault(queue, {})[next(self._tokens)] = (0, key, mqmd.build(), data)


def answered(bench: Harness, queues: SharedQueues) -> None:
    """All that is asked for is told."""
    for _ in range(1000):
        if not queues.answer() and not read(queues):
            bench.advance(0.25)
    assert not queues.questions


def read(queues: SharedQueues) -> bool:
    """The oldest message that the gateway has written to itself, or to the third one, is read; False when there is
    none. The third one says only what it has heard."""
    for reader in (OURS, THIRD):
        for found in queues.fetch(GATEWAYS, message_key(reader), 1):
            del queues.rows[GATEWAYS][found.token]
            message = decode_json(found.data)
            if reader == OURS:
                queues.on_message(message)
            elif message["kind"] == "heard?":
                queues.on_message({"kind": "heard", "number": message["number"], "from": THIRD})
            return True
    return False


@pytest.fixture
def bench() -> Harness:
    """A gateway; beside it another one has left sessions, and some of its records are damaged."""
    queues = SharedQueues()
    earlier = Harness(queues=queues)
    for name in ("first", "second", "third"):
        device = earlier.device(5, name).connect(clean=False)
        device.subscribe("a", 1)
        device.drop()
    queues.forget()
    left, queues.rows = queues.rows, {}
    made = Harness(queues=queues)
    queues.rows, made.defects = left, []
    for token, (priority, key, md, data) in list(left[SESSIONS].items()):
        record = decode_json(data) | {"owner": GONE}
        damaged = b"[1" if record["client"] == "second" else encode_json(record)
        left[SESSIONS][token] = (priority, key, md, damaged)
    queues.keep(SESSIONS, key_of("nameless"), encode_json({"owner": GONE, "client": ["x"]}))
    queues.keep(SESSIONS, key_of("a list"), b"[]")
    queues.keep(WILLS, key_of("will"), encode_json({"owner": [GONE]}))
    return made


@pytest.mark.parametrize("third", [False, True], ids=["alone", "a third gateway lives"])
def test_records_nobody_can_read_do_not_keep_the_others_from_being_taken_over(bench: Harness, third: bool) -> None:
    queues = bench.queues
    assert isinstance(queues, SharedQueues)
    queues.others, queues.expired = ({GONE, THIRD} if third else {GONE}), [GONE]
    queues.told[-1]()
    answered(bench, queues)
    assert {session.client_id for session in bench.engine.sessions} == {"first", "third"}
    assert queues.expired == []
    stay = [data for _, _, _, data in queues.rows[SESSIONS].values()]
    assert (b"[1" in stay) is third, "what may be another gateway's stays"
    assert len(queues.rows.get(SET_ASIDE, ())) == (0 if third else 4)
    assert len([one for one in bench.defects or () if one.what in {"session", "will"}]) >= 4


def test_a_session_that_comes_damaged_holds_up_no_client(bench: Harness) -> None:
    queues = bench.queues
    assert isinstance(queues, SharedQueues)
    queues.others = {THIRD}
    device = bench.device(5, "second").connect(clean=False)
    assert not device.take()
    number = bench.engine.ownership.claims._claims["second"].number
    queues.on_message({"kind": "yours", "from": THIRD, "client": "second", "number": number})
    answered(bench, queues)
    ((first, connack),) = device.take()
    assert (first, connack.reason, connack.session_present) == (0x20, 0, False)
    assert [one.what for one in bench.defects or ()] == ["session"]

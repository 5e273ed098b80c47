"""Units whose calls are made at one go, without the interpreter's lock, beside the same calls made one by one."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import mqi_clients
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ibm_rig import OBJECTS, DescriptorScheduler, Rig, served

from gateway.backends.ibm import calls
from gateway.backends.ibm.connection import Connection
from gateway.backends.ibm.worker import Worker
from gateway.errors import MQError
from gateway.mq import mqmd
from gateway.ports.batch import Failure, Outcome, Puts, Takes, Unit

pytestmark = [pytest.mark.mqi, pytest.mark.skipif(not calls.compiled(), reason="there was no compiler")]

HEAD = mqmd.build(persistence=1)
OWNED = mqmd.build(persistence=1, user_identifier=b"sensor-1")
LONG = HEAD + b"a head with the beginning of the data"


def _puts(queue: str, *bodies: bytes, head: bytes = HEAD, key: bytes = b"") -> Puts:
    return Puts(queue, key=key, heads=[head] * len(bodies), bodies=list(bodies))


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    mqi_clients.load_bindings()
    with served(None, tmp_path / "mqi.sock", OBJECTS + "\nDEFINE QLOCAL(SMALL.Q) MAXMSGL(10)"):
        made = Rig("ibmmq", str(tmp_path / "mqi.sock"), posted=True)
        yield made
        made.close()


def _told(rig: Rig) -> int:
    assert isinstance(rig.scheduler, DescriptorScheduler)
    return rig.scheduler.told


def _worker(rig: Rig) -> Worker:
    found: Worker = rig.queue_manager._workers[0]
    return found


def test_a_second_unit_for_an_open_queue_never_wakes_the_worker(rig: Rig) -> None:
    for number in range(10):
        unit = Unit(puts=[_puts("APP.Q", b"%d" % number, b"x")])
        assert not rig.commit(unit).failures
        page = rig.queue_manager.fetch("APP.Q", b"", 100)
        assert [stored.token for stored in page][-2:] == list(unit.puts[0].tokens)
    assert _told(rig) >= 8
    assert rig.queue_manager.depth("APP.Q") == 20


def test_what_is_refused_comes_back_with_its_reason_and_leaves_nothing(rig: Rig) -> None:
    for _ in range(3):
        assert not rig.commit(Unit(puts=[_puts("APP.Q", b"good"), _puts("SMALL.Q", b"fits")])).failures
    before = _told(rig)
    refused = rig.commit(Unit(puts=[_puts("APP.Q", b"with it"), _puts("SMALL.Q", b"fits", b"does not fit")]))
    assert [(failure.puts, failure.reason) for failure in refused.failures] == [(1, 2030)]
    assert _told(rig) == before, "the worker saw to it itself"
    assert (rig.queue_manager.depth("APP.Q"), rig.queue_manager.depth("SMALL.Q")) == (3, 3)
    for _ in range(3):
        assert not rig.commit(Unit(puts=[_puts("APP.Q", b"good")])).failures
    assert _told(rig) > before, "it is parked again"
    assert rig.queue_manager.depth("APP.Q") == 6


def test_units_of_every_kind_keep_their_order(rig: Rig) -> None:
    manager = rig.queue_manager._queue_manager  # type: ignore[attr-defined]
    outcomes: list[tuple[int, list[Failure]]] = []
    submitted: list[int] = []
    done = threading.Event()
    units = []
    for number in range(60):
        if number % 7 == 3:
            units.append(Unit(puts=[_puts("APP.Q", b"%d" % number)], takes=[Takes("MQGATE.STATE", b"k", [bytes(24)])]))
        else:
            units.append(Unit(puts=[_puts("APP.Q" if number % 5 else "SMALL.Q", b"%d" % number)]))

    def submit(number: int) -> None:
        def concluded(_unit: Unit, outcome: Outcome) -> None:
            outcomes.append((number, outcome.failures))
            if number % 3 == 0 and number + 3 < 60:  # some follow an outcome, as turns do; some come while one runs
                for following in range(number + 3, number + 6):
                    submit(following)
            if len(outcomes) == 60:
                done.set()

        submitted.append(number)
        manager.submit(units[number], concluded)

    for number in range(3):
        rig.scheduler.soon(lambda number=number: submit(number))
    assert done.wait(30), outcomes
    assert sorted(submitted) == list(range(60))
    assert [number for number, _ in outcomes] == submitted
    page = rig.queue_manager.fetch("APP.Q", b"", 100)
    ours = [number for number in submitted if units[number].puts[0].queue == "APP.Q"]
    assert [int(stored.data) for stored in page] == ours
    assert all(not failures for _, failures in outcomes)
    assert rig.queue_manager.depth("APP.Q") + rig.queue_manager.depth("SMALL.Q") == 60


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    mqi_clients.load_bindings()
    folder = tmp_path_factory.mktemp("mqi")
    with served(None, folder / "mqi.sock", OBJECTS + "\nDEFINE QLOCAL(SMALL.Q) MAXMSGL(100)"):
        made = Rig("ibmmq", str(folder / "mqi.sock"))
        manager = made.queue_manager
        found = Connection(manager._driver.connect(manager._settings), manager._new_id)
        found.carrier = calls.carrier(manager._driver)
        assert found.carrier is not None
        yield found
        made.close()


RUNS = st.builds(
    lambda queue, key, priority, rows, syncpoint: Puts(
        queue,
        key=key,
        priority=priority,
        heads=[head for head, _ in rows],
        bodies=[body for _, body in rows],
        syncpoint=syncpoint or bool(key),
    ),
    st.sampled_from(["APP.Q", "SMALL.Q"]),
    st.sampled_from([b"", b"device", b"k" * 24, b"longer than a CorrelId can be"]),
    st.integers(0, 9),
    st.lists(st.tuples(st.sampled_from([HEAD, OWNED, LONG]), st.binary(max_size=120)), max_size=6),
    st.booleans(),
)


@settings(max_examples=40, deadline=None)
@given(puts=RUNS)
def test_the_calls_at_one_go_are_the_calls_one_by_one(connection: Connection, puts: Puts) -> None:
    at_once = connection.carrier
    told = []
    try:
        for connection.carrier in (at_once, None):
            told.append(_put_and_look(connection, puts))
    finally:
        connection.carrier = at_once
    assert told[0] == told[1]


def _put_and_look(connection: Connection, puts: Puts) -> object:
    """What was refused, what of it is on the queue then, and whether the tokens name it."""
    mine = Puts(puts.queue, key=puts.key, priority=puts.priority, heads=puts.heads, bodies=puts.bodies)
    mine.syncpoint = puts.syncpoint
    tokens, reason = [], 0
    try:
        if mine.syncpoint:
            tokens = connection.put_run(mine, asynchronous=False)
            connection.session.commit()
        else:
            connection.distrust()
            connection.place(mine, can_status=False)
            tokens = list(mine.tokens)
    except MQError as error:
        reason = error.reason
        connection.session.back()
    handle, found = connection.input(mine.queue), []
    while (got := connection.get(handle, bytes(24), mine.queue)) is not None:
        found.append(got)
    connection.session.commit()
    ids = sorted(md[48:72] for _, md in found)
    # the priority decides the order; what differs by nature are MsgIds and times
    messages = [(data, md[:48], md[72:304], md[320:]) for data, md in found]
    return reason, mine.placed, sorted(map(bytes, tokens)) == ids if tokens else bool(ids), messages


def test_wrong_columns_are_refused_before_any_call(connection: Connection) -> None:
    carrier = connection.carrier
    assert carrier is not None
    options = bytes(184)
    for run in (
        (1, 0, True, [HEAD], [], 0, options, options, None, b""),
        (1, 0, True, [HEAD], [b""], 2, options, options, None, b""),
        (1, 0, True, [HEAD], [b""], 0, options, b"", None, b""),
        (1, 0, True, [HEAD], [b""], 0, options, options, b"key", b"short"),
    ):
        with pytest.raises(ValueError, match=r"bytes|lengths"):
            carrier.carry(connection.session.handle, None, None, b"", [run], False)
    for head in (b"short", "text"):
        row = (1, 0, True, [head], [b""], 0, options, options, None, b"")
        with pytest.raises(TypeError, match="head"):
            carrier.carry(connection.session.handle, None, None, b"", [row], False)  # type: ignore[list-item]
    marker = (False, 1, bytes(364), bytes(112), 1, bytes(364), options)
    for taken, offered in ((b"short", bytes(24)), (None, b"short")):
        with pytest.raises(ValueError, match="24 bytes"):
            carrier.carry(connection.session.handle, marker, taken, offered, [], False)
    assert not carrier.post(connection.session.handle, None, None, b"", [], False), "nobody is parked"
    assert carrier.take(True) is None
    assert carrier.wait(0.0) == calls.TIMED_OUT
    carrier.wake()
    assert carrier.wait(60.0) == calls.WOKEN


class _Library:
    """MQPUT, MQGET and MQCMIT that always work, the last of them when it is let."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        put = ctypes.CFUNCTYPE(None, *[ctypes.c_int] * 2, *[ctypes.c_void_p] * 2, ctypes.c_int, *[ctypes.c_void_p] * 3)
        commit = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        self._kept = put(lambda *_: None), commit(lambda *_: self.open.wait(30) and None)
        addresses = [ctypes.cast(call, ctypes.c_void_p).value or 0 for call in self._kept]
        made = calls._made
        assert made is not None
        self.carrier = made(addresses[0], addresses[0], addresses[1])

    def post(self) -> int:
        """One message, by whoever is parked; tried until somebody is."""
        row = (1, 0, True, [HEAD], [b"x"], 0, bytes(184), bytes(184), None, b"")
        until = time.monotonic() + 30
        while not (answer := self.carrier.post(1, None, None, b"", [row], True)):
            assert time.monotonic() < until, "nobody parks"
        return answer

    def taken(self) -> bool:
        until = time.monotonic() + 30
        while self.carrier.take(False) is None:
            assert time.monotonic() < until, "it is never through"
        return True


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="threads cannot be kept on a core here")
def test_the_parked_thread_is_kept_near_only_while_it_is_waited_for() -> None:
    libc = ctypes.CDLL(None)
    at_once, after = (ctypes.cast(call, ctypes.c_void_p).value or 0 for call in (libc.getpid, libc.usleep))
    made = calls._made
    assert made is not None
    carrier = made(at_once, at_once, after)  # MQCMIT takes as many microseconds as the number of the connection
    row = (1, 0, True, [HEAD], [b"x"], 0, bytes(184), bytes(184), None, b"")
    everywhere, left = os.sched_getaffinity(0), set[int]()

    def park() -> None:
        carrier.wait(60.0)
        left.update(os.sched_getaffinity(0))

    parked = threading.Thread(target=park)
    parked.start()
    until = time.monotonic() + 30

    def post(connection: int) -> int:
        while not (answer := carrier.post(connection, None, None, b"", [row], True)):
            assert time.monotonic() < until, "nobody parks"
        return answer

    try:
        while post(0) != calls.THROUGH or carrier.take(False) is None:
            assert time.monotonic() < until, "nothing is prompt"
            while carrier.take(False) is None and time.monotonic() < until:
                pass
        assert parked.native_id is not None
        assert len(os.sched_getaffinity(parked.native_id)) == 1
        assert post(300_000) == calls.POSTED, "three tenths of a second are too long to wait for"
        assert os.sched_getaffinity(parked.native_id) == everywhere
        while carrier.take(False) is None:
            assert time.monotonic() < until
        while post(0) != calls.THROUGH or carrier.take(False) is None:
            assert time.monotonic() < until, "it is not prompt again"
            while carrier.take(False) is None and time.monotonic() < until:
                pass
    finally:
        carrier.wake()
        parked.join(30)
    assert left == everywhere


def test_a_prompt_unit_is_waited_for_and_one_that_hangs_holds_nobody_up() -> None:
    library = _Library()
    descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    library.carrier.tell(descriptor)
    parked = threading.Thread(target=library.carrier.wait, args=(60.0,))
    parked.start()
    try:
        answers = [(library.post(), library.taken())[0] for _ in range(200)]
        assert set(answers) <= {calls.POSTED, calls.THROUGH}
        told = answers.count(calls.POSTED)
        assert told, "until it is known how long a unit takes the descriptor tells"
        library.open.clear()
        assert library.post() == calls.POSTED
        assert library.carrier.take(True) is None
        library.open.set()
        assert library.taken()
        heard, until = 0, time.monotonic() + 30
        while heard < told + 1:
            assert time.monotonic() < until, f"{heard} of {told + 1} outcomes were told"
            with suppress(BlockingIOError):
                heard += os.eventfd_read(descriptor)
    finally:
        library.open.set()
        library.carrier.wake()
        parked.join(30)
        os.close(descriptor)
    assert not parked.is_alive()

"""Shapes of `sizes.py`: what programs and operators do at the embedded queue manager."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count

from shapes import RULE, Window, World, now, shape

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.ports.mqi import GetOptions, ObjectDescriptor, PutOptions, SubscriptionDescriptor
from gateway.queue_manager.descriptor import default_descriptor
from gateway.queue_manager.verbs.connection import MqiConnection


def md(**fields: int | bytes) -> bytes:
    """A descriptor."""
    return default_descriptor(**fields)


OPEN_ALL = 2 | 8 | 16 | 32 | 64


def _filled(world: World, size: int, queue: str = "A", **fields: int | bytes) -> MqiConnection:
    program = world.program()
    handle = program.open(ObjectDescriptor(queue), OPEN_ALL).handle
    for at in range(size):
        more = {
            "correl_id": b"%024d" % at,
            "priority": at % 10 if fields.get("priority") == -2 else 0,
            "persistence": 0,
        }
        program.put(handle, md(**{**fields, **more}), PutOptions(2), b"x")
        if at % 2000 == 1999:
            program.commit()
    program.commit()
    return program


ProgramShape = Callable[[World, MqiConnection, int, int], Iterator[int]]


def program_shape(
    name: str,
    sizes: tuple[int, ...] = (2500, 5000, 10000, 20000, 40000),
    queue: str = "A",
    objects: str = "",
    **fields: int | bytes,
) -> Callable[[ProgramShape], ProgramShape]:
    """A program that works on a queue with so many messages; calls are counted."""

    def known(act: ProgramShape) -> ProgramShape:
        @shape("MQI: " + name, sizes, lambda _: ("", objects))
        def _(world: World, size: int) -> Iterator[int]:
            program = _filled(world, size, queue, **fields)
            handle = program.open(ObjectDescriptor(queue), OPEN_ALL).handle
            yield from act(world, program, handle, size)

        return act

    return known


@program_shape("MQGET by CorrelId")
def _(world: World, program: MqiConnection, handle: int, size: int) -> Iterator[int]:
    while True:
        for at in range(size // 2, size // 2 + 200):
            got = program.get(handle, md(correl_id=b"%024d" % at), GetOptions(4, match=2), 100)
            program.put(handle, got.md, PutOptions(4), b"x")
        yield 200


@program_shape("MQGET by CorrelId that is not there")
def _(world: World, program: MqiConnection, handle: int, size: int) -> Iterator[int]:
    while True:
        for at in range(200):
            with suppress(MQError):
                program.get(handle, md(correl_id=b"%023dx" % at), GetOptions(4, match=2), 100)
        yield 200


@program_shape("MQGET and MQPUT")
@program_shape("MQGET and MQPUT of ten priorities", priority=-2)
def _(world: World, program: MqiConnection, handle: int, size: int) -> Iterator[int]:
    while True:
        for _at in range(500):
            got = program.get(handle, md(), GetOptions(4), 100)
            program.put(handle, got.md, PutOptions(4), b"x")
        yield 500


def browse(name: str, options: int) -> None:
    """All of the queue."""

    @program_shape(name)
    def _(world: World, program: MqiConnection, handle: int, size: int) -> Iterator[int]:
        while True:
            other = program.open(ObjectDescriptor("A"), OPEN_ALL | (0x40000 if options & 0x100000 else 0)).handle
            program.get(other, md(), GetOptions((16 & ~32) | (options & ~48)), 100)
            for _at in range(size - 1):
                program.get(other, md(), GetOptions(32 | options), 100)
            program.close(other)
            yield size


browse("browse", 0)
browse("browse, locked", 512)
browse("browse, marked for the handle", mq.MQGMO_MARK_BROWSE_HANDLE)


@program_shape("MQGET in one unit, MQBACK, each", (250, 500, 1000, 2000))
def _(world: World, program: MqiConnection, handle: int, size: int) -> Iterator[int]:
    while True:
        for _at in range(size):
            program.get(handle, md(), GetOptions(2), 100)
        program.back()
        yield size


def units(queue: str, what: str) -> None:
    """One unit of work that grows."""

    @shape(
        f"MQI: one unit of MQPUTs to {what}, each",
        (1000, 2000, 4000, 8000),
        lambda _: ("", "ALTER QMGR MAXUMSGS(999999)\n"),
    )
    def _(world: World, size: int) -> Iterator[int]:
        program = world.program()
        handle = program.open(ObjectDescriptor(queue), 16).handle
        while True:
            for at in range(size):
                program.put(handle, md(priority=at % 3), PutOptions(2), b"x")
            program.commit()
            yield size


for _queue, _what in (
    ("A", "a queue"),
    ("REMOTE", "a remote queue"),
    ("STREAMED", "a STREAMQ"),
    ("TALIAS", "a topic"),
    ("EVERY", "a trigger"),
):
    units(_queue, _what)


@shape(
    "MQI: one unit of MQPUTs with COA, each", (1000, 2000, 4000, 8000), lambda _: ("", "ALTER QMGR MAXUMSGS(999999)\n")
)
def _(world: World, size: int) -> Iterator[int]:
    program = world.program()
    handle = program.open(ObjectDescriptor("A"), 16).handle
    while True:
        for _at in range(size):
            program.put(handle, md(report=0x100, reply_to_q=b"B".ljust(48)), PutOptions(2), b"x")
        program.commit()
        yield size


@shape("MQI: messages that expire, each", (5000, 10000, 20000, 40000))
def _(world: World, size: int) -> Iterator[int]:
    program = world.program()
    handle = program.open(ObjectDescriptor("A"), OPEN_ALL).handle
    while True:
        for at in range(size):
            program.put(handle, md(expiry=20, persistence=0), PutOptions(2), b"x")
            if at % 2000 == 1999:
                program.commit()
        program.commit()
        before = now()
        world.clock.now = lambda: time.time() + 60  # type: ignore[method-assign]
        for _turn in range(100):
            world.clock.advance(1)
            world.settle()
        world.own = now() - before
        world.clock.now = time.time  # type: ignore[method-assign]
        yield size


def displayed(what: str, objects: str) -> None:
    """All of them, with all that there is to say."""

    @shape(f"MQSC: DISPLAY {what}, each", (1250, 2500, 5000, 10000), many_queues)
    def _(world: World, size: int) -> Iterator[int]:
        while True:
            assert len(world.queue_manager.mqsc(f"DISPLAY {objects}(*) ALL").lines) > size
            yield size


def many_queues(size: int) -> tuple[str, str]:
    """Rules and objects."""
    return "", "".join(f"DEFINE QLOCAL(D{at})\n" for at in range(size))


displayed("of all queues", "QLOCAL")
displayed("QSTATUS of all queues", "QSTATUS")


@shape("MQSC: DISPLAY of one of many queues", (1250, 2500, 5000, 10000), many_queues)
def _(world: World, _size: int) -> Iterator[int]:
    while True:
        for at in range(100):
            world.queue_manager.mqsc(f"DISPLAY QLOCAL(D{at}) ALL")
        yield 100


def _defined(world: World, size: int, attributes: str) -> Iterator[int]:
    """Each time with another number: of what is there already as it is given nothing would be written."""
    for number in count():
        report = world.queue_manager.mqsc(
            "".join(f"DEFINE {attributes.format(i=i, number=number)} REPLACE\n" for i in range(size))
        )
        assert report.ok, report.lines[:3]
        yield size


@shape("MQSC: DEFINE, each", (1250, 2500, 5000, 10000))
def _(world: World, size: int) -> Iterator[int]:
    return _defined(world, size, "QLOCAL(D{i}) DESCR('{number}')")


@shape("MQSC: DEFINE SUB, each", (625, 1250, 2500, 5000))
def _(world: World, size: int) -> Iterator[int]:
    return _defined(world, size, "SUB(D{i}) TOPICSTR('x/{i}') DEST(A) USERDATA('{number}')")


@shape(
    "MQ subscriptions to other topics",
    (625, 1250, 2500, 5000),
    lambda n: (RULE.format("TALIAS"), "".join(f"DEFINE SUB(D{i}) TOPICSTR('x/{i}') DEST(A)\n" for i in range(n))),
)
def _(world: World, size: int) -> Iterator[int]:
    yield from Window()(world, 500)


@shape(
    "MQI: MQPUT1 to a topic string among topic objects",
    (625, 1250, 2500, 5000),
    lambda n: ("", "".join(f"DEFINE TOPIC(T{i}) TOPICSTR('t/{i}')\n" for i in range(n))),
)
def _(world: World, _size: int) -> Iterator[int]:
    program = world.program()
    while True:
        for at in range(200):
            program.put1(ObjectDescriptor("", object_type=8, object_string=f"t/{at}"), md(), PutOptions(4), b"x")
        yield 200


@shape("MQI: MQSUB, each", (625, 1250, 2500, 5000), lambda _: ("", "ALTER QMGR MAXHANDS(999999)\n"))
def _(world: World, size: int) -> Iterator[int]:
    while True:
        program = world.program()
        queue = program.open(ObjectDescriptor("A"), OPEN_ALL).handle
        for at in range(size):
            program.subscribe(SubscriptionDescriptor(object_string=f"z/{at}", options=2), queue)
        program.disconnect()
        yield size

"""Triggering: when messages arrive on a queue that no program reads, a trigger message (MQTM) is put on its initiation
queue, for a trigger monitor that starts the program named by the process definition.

A trigger event needs: TRIGGER and a TRIGTYPE, get allowed, a process definition (transmission queues do without), an
initiation queue that is open for input and takes messages, and enough messages of at least TRIGMPRI. FIRST and DEPTH
need that no program has the queue open for input; they are checked again when the last one closes it, when an
attribute changes, and when a monitor opens the initiation queue. DEPTH switches TRIGGER off.

Messages count when they are committed. In a queue with MSGDLVSQ(FIFO), which keeps no priorities apart, TRIGMPRI is
compared with the messages that arrive, and all that are there count.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.mq import layout
from gateway.queue_manager import descriptor
from gateway.queue_manager.core import Core
from gateway.queue_manager.descriptor import Descriptor, default_descriptor
from gateway.queue_manager.objects.catalogue import Definition
from gateway.queue_manager.objects.local_queue import LocalQueue
from gateway.queue_manager.objects.placement import Placer
from gateway.queue_manager.store.unit import StoreUnit

FIRST, EVERY, DEPTH = 1, 2, 3
_NAMES = "INITQ", "PROCESS"
"""The attributes that name what a trigger event needs."""
UTF_8 = 1208
"""The character set of definitions, and of what is said of them."""
RETRY_SECONDS = 1.0
"""After which trigger messages that the store has refused are put again."""
Alter = Callable[[str, dict[str, int | str]], object]


class _Event(NamedTuple):
    """A trigger message to be put on an initiation queue, perhaps several times."""

    queue: str
    initiation: str
    content: bytes


class _Triggering:
    """The queues with TRIGGER, by what they name: there may be thousands, each with a process of its own."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[tuple[str, str], ...]] = {}
        """What each names, by its own name."""
        self._queues: dict[tuple[str, str], dict[str, LocalQueue]] = {}

    def note(self, queue: LocalQueue) -> None:
        """A queue is defined as it is now."""
        self.forget(queue.name)
        if queue.triggers:
            named = tuple((keyword, queue.definition.text(keyword)) for keyword in _NAMES)
            self._named[queue.name] = named
            for one in named:
                self._queues.setdefault(one, {})[queue.name] = queue

    def forget(self, name: str) -> None:
        """It is there no more, or is defined anew."""
        for one in self._named.pop(name, ()):
            del self._queues[one][name]
            if not self._queues[one]:
                del self._queues[one]

    def by(self, keyword: str, name: str) -> list[LocalQueue]:
        """Those whose attribute names this object."""
        return list(self._queues.get((keyword, name), {}).values())


class Triggers:
    """Puts trigger messages. `alter` changes attributes of a local queue."""

    def __init__(self, core: Core, placer: Placer, alter: Alter) -> None:
        self._core = core
        self._placer = placer
        self._alter = alter
        self._due: dict[_Event, int] = {}
        """How often each is to be put."""
        self._last: dict[str, float] = {}
        """When each queue had its last trigger message, for TRIGINT."""
        self._triggering = _Triggering()
        for queue in core.queues.values():
            self._triggering.note(queue)
        self._own: StoreUnit | None = None
        """The trigger messages that are put now: they cause no trigger events themselves."""
        core.on_arrivals.append(self._arrived)
        core.on_inputs.append(self._inputs_changed)
        core.on_installed.append(self._installed)
        core.on_removed.append(self._removed)

    # What may be a trigger event

    def _arrived(self, queue: LocalQueue, unit: StoreUnit) -> None:
        """Messages have been committed, maybe while a trigger message waits for their frame."""
        if unit is self._own:
            return
        least = queue.definition.number("TRIGMPRI")
        arrived = _count(queue, unit, least)
        if arrived:
            self._check(queue, arrived)

    def _inputs_changed(self, queue: LocalQueue, opened: bool) -> None:
        """A program, or a rule, has opened the queue for input or closed it."""
        users = queue.inputs + len(queue.consumers)
        if not users:
            self._check(queue, 0)
        elif opened and users == 1:
            for other in self._triggering.by("INITQ", queue.name):
                if other is not queue:
                    self._check(other, 0)

    def _installed(self, definition: Definition) -> None:
        if definition.kind == "QLOCAL":
            queue = self._core.queues[definition.name]
            self._triggering.note(queue)
            self._check(queue, 0)
        elif definition.kind == "PROCESS":
            for queue in self._triggering.by("PROCESS", definition.name):
                self._check(queue, 0)

    def _removed(self, definition: Definition) -> None:
        if definition.kind == "QLOCAL":
            self._triggering.forget(definition.name)

    # Whether there is a trigger event

    def _check(self, queue: LocalQueue, arrived: int) -> None:
        if not queue.triggers or queue.get_inhibited or queue.deleted:
            return
        definition = queue.definition
        times = self._times(queue, definition.number("TRIGTYPE"), arrived)
        initiation = self._initiation_queue(definition.text("INITQ")) if times else None
        process = self._process(queue) if initiation is not None else None
        if initiation is None or process is None:
            return
        self._last[queue.name] = self._core.scheduler.monotonic()
        event = _Event(queue.name, initiation.name, _trigger_message(definition, process))
        self._due[event] = self._due.get(event, 0) + times
        self._core.afterwards(self._put)

    def _times(self, queue: LocalQueue, kind: int, arrived: int) -> int:
        """How many trigger messages the event causes."""
        if kind == EVERY:
            return arrived
        if queue.inputs or queue.consumers:
            return 0
        least = 0 if queue.fifo else queue.definition.number("TRIGMPRI")
        depth = self._core.store.depth(queue.name, b"", least)
        if kind == DEPTH:
            return int(depth >= queue.definition.number("TRIGDPTH"))
        return int(depth > 0 and (not arrived or depth <= arrived or self._interval_has_passed(queue)))

    def _interval_has_passed(self, queue: LocalQueue) -> bool:
        """TRIGINT: milliseconds after which a message on a queue that was not empty causes a trigger event again."""
        last = self._last.get(queue.name)
        elapsed = self._core.scheduler.monotonic() - last if last is not None else 0.0
        return elapsed * 1000 >= self._core.attribute("TRIGINT")

    def _initiation_queue(self, name: str) -> LocalQueue | None:
        queue = self._core.queues.get(name)
        usable = queue is not None and (queue.inputs or queue.consumers)
        return queue if usable and queue is not None and not (queue.get_inhibited or queue.put_inhibited) else None

    def _process(self, queue: LocalQueue) -> Definition | None:
        """The process definition; an empty one for a transmission queue that names none."""
        name = queue.definition.text("PROCESS")
        if not name and queue.transmission:
            return Definition("PROCESS", "", {"APPLTYPE": 0, "APPLICID": "", "ENVRDATA": "", "USERDATA": ""})
        return self._core.catalogue.get("PROCESS", name) if name else None

    # The trigger message

    def _put(self) -> None:
        core = self._core
        with core.entered():
            due, self._due = self._due, {}
            if core.closed or not due:
                return
            unit = StoreUnit()
            for event, times in due.items():
                for _ in range(times):
                    self._place(event, unit)
            self._own = unit
            try:
                core.commit(unit)
                for event in due:
                    self._switch_off(event.queue)
            except MQError:  # the store cannot be written
                core.scheduler.later(RETRY_SECONDS, partial(self._put_again, due))
            finally:
                self._own = None

    def _put_again(self, refused: dict[_Event, int]) -> None:
        """Trigger messages for each message are owed; for the other types the queues are looked at once more."""
        with self._core.entered():
            for event, times in refused.items():
                queue = self._core.queues.get(event.queue)
                if self._core.closed or queue is None or not queue.triggers:
                    continue
                if queue.definition.number("TRIGTYPE") == EVERY:
                    self._due[event] = self._due.get(event, 0) + times
                else:
                    self._check(queue, 0)
        self._put()

    def _place(self, event: _Event, unit: StoreUnit) -> None:
        core = self._core
        queue = core.queues.get(event.initiation)
        if queue is None:
            return
        md = Descriptor(default_descriptor(
            format=mq.MQFMT_TRIGGER, ccsid=UTF_8, priority=queue.priority, persistence=queue.persistence,
            msg_id=core.new_identifier(), reply_to_qmgr=core.name.encode().ljust(48),
        ))  # fmt: skip
        self._placer.stamp_as_queue_manager(md)
        packed = md.pack()
        try:
            self._placer.put_local(queue, packed, event.content, unit)
        except MQError as error:
            self._placer.give_up(packed, event.content, error.reason, queue.name, core.name, unit)

    def _switch_off(self, name: str) -> None:
        queue = self._core.queues.get(name)
        if queue is not None and queue.triggers and queue.definition.number("TRIGTYPE") == DEPTH:
            self._alter(name, {"TRIGGER": 0})


def _count(queue: LocalQueue, unit: StoreUnit, least: int) -> int:
    """How many of the messages that arrived have at least this priority."""
    count = sum(len(moves.tokens) for moves in unit.moves if moves.to_queue == queue.name)
    for puts in unit.puts_to(queue.name):
        if queue.fifo and least:
            count += sum(descriptor.integer(head, "priority") >= least for head in puts.heads)
        elif puts.priority >= least:
            count += len(puts.heads)
    return count


def _trigger_message(definition: Definition, process: Definition) -> bytes:
    text = process.text
    return layout.pack(
        "MQTM",
        {
            "QName": definition.name, "ProcessName": process.name, "TriggerData": definition.text("TRIGDATA"),
            "ApplType": process.number("APPLTYPE"), "ApplId": text("APPLICID"), "EnvData": text("ENVRDATA"),
            "UserData": text("USERDATA"),
        },
        charset="utf-8",
    )  # fmt: skip

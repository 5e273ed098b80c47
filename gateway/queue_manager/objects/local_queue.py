"""The running state of a local queue: limits, open handles, locked messages, waiting gets. Its messages are in the
store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Protocol

from gateway.mq import constants as mq
from gateway.queue_manager.objects.catalogue import Definition

INPUT = mq.MQOO_INPUT_AS_Q_DEF | mq.MQOO_INPUT_SHARED | mq.MQOO_INPUT_EXCLUSIVE
"""The options of MQOPEN that open a queue for input."""
BROKER = "broker"
"""The owner of messages that were fetched through the batch port."""


class Waiter(Protocol):
    """A get that waits on a queue."""

    any_message: bool
    """The get takes any message: if it finds none, no later get will find one."""
    correl_id: bytes | None
    """The get takes only messages with this CorrelId."""
    ended: bool
    number: int
    """Its place in the order of waiting gets."""

    def attempt(self) -> bool:
        """Try to get a message; returns True when the get has been answered."""

    def offer(self, head: bytes, body: bytes, /) -> Callable[[bool], None] | None:
        """Offer a message that is about to be put. If the get would take it off the queue at once, it does so and no
        longer waits; the function returned tells it whether the message was put. Otherwise returns None."""


_NUMBER = attrgetter("number")


class Waiters:
    """The gets that wait on a queue, in order. Those that wait for a CorrelId are found by it: if a hundred programs
    wait for their replies on one queue, a reply concerns only one of them."""

    __slots__ = ("_by_correl_id", "_number", "_others", "count")

    def __init__(self) -> None:
        self._number = 0
        self.count = 0
        self._others: dict[int, Waiter] = {}
        self._by_correl_id: dict[bytes, dict[int, Waiter]] = {}

    def add(self, waiter: Waiter) -> None:
        """Add a get as the last in the order."""
        waiter.number = self._number = self._number + 1
        self.count += 1
        if waiter.correl_id is None:
            self._others[waiter.number] = waiter
        else:
            self._by_correl_id.setdefault(waiter.correl_id, {})[waiter.number] = waiter

    def concerned(self, correl_ids: Collection[bytes] | None) -> list[Waiter]:
        """Returns the gets that messages with these CorrelIds (None: any message) concern, in order."""
        found = list(self._others.values())
        if not self._by_correl_id:
            return found
        wanted = self._by_correl_id.keys() if correl_ids is None else self._by_correl_id.keys() & correl_ids
        for correl_id in wanted:
            found += self._by_correl_id[correl_id].values()
        return sorted(found, key=_NUMBER)

    def first(self, correl_id: bytes) -> Waiter | None:
        """Returns the first get that a message with this CorrelId concerns."""
        other = next(iter(self._others.values())) if self._others else None
        alike = self._by_correl_id.get(correl_id)
        if alike is None:
            return other
        found = next(iter(alike.values()))
        return found if other is None or found.number < other.number else other

    def remove(self, waiter: Waiter) -> None:
        """Remove a get that has been answered or given up."""
        if waiter.correl_id is None:
            self.count -= self._others.pop(waiter.number, None) is not None
            return
        alike = self._by_correl_id.get(waiter.correl_id, {})
        self.count -= alike.pop(waiter.number, None) is not None
        if not alike:
            self._by_correl_id.pop(waiter.correl_id, None)


@dataclass(slots=True, eq=False)
class LocalQueue:
    """The running state of one queue. Attributes are copied out of the definition because every message needs them."""

    definition: Definition
    name: str = ""
    max_depth: int = 0
    max_length: int = 0
    put_inhibited: bool = False
    get_inhibited: bool = False
    fifo: bool = False
    priority: int = 0
    persistence: int = 0
    transmission: bool = False
    property_control: int = 0
    triggers: bool = False
    """Whether the queue has TRIGGER and a TRIGTYPE."""
    whole_groups: bool = False
    """Consumers get the messages of a group only when the group is complete."""
    stream: str = ""
    """STREAMQ: the queue to which each message put here is also put."""
    temporary: bool = False
    """A temporary dynamic queue: it takes no persistent messages, and its definition is not durable."""
    uncommitted_puts: int = 0
    locked: dict[int, Hashable] = field(default_factory=dict)
    """Messages got in open units of work or fetched through the batch port, with their owners."""
    waiters: Waiters = field(default_factory=Waiters)
    served: Callable[[], None] | None = None
    """For the command queue: runs the commands on it. Called without the lock when messages may have arrived."""
    consumers: list[Callable[[], None]] = field(default_factory=list)
    announced: bool = False
    """Whether a call of the consumers is scheduled."""
    marked: dict[int, float] = field(default_factory=dict)
    """Messages marked with MQGMO_MARK_BROWSE_CO_OP, and until when (monotonic seconds)."""
    handle_marks: dict[int, set[Hashable]] = field(default_factory=dict)
    """Messages marked with MQGMO_MARK_BROWSE_HANDLE, and by which handles."""
    marks_timed: bool = False
    """Whether waiting gets will be tried again when the first of these marks ends."""
    cooperating: int = 0
    """The number of handles that browse together and share these marks."""
    inputs: int = 0
    outputs: int = 0
    browsers: int = 0
    exclusive: bool = False
    emptied: bool = False
    """Whether a command is removing the messages step by step; until it has, programs cannot open the queue."""
    ending: bool = False
    """Whether the queue's subscription has ended; the queue is then deleted when its last handle is closed."""
    deleted: bool = False
    left: Callable[[], None] | None = None
    """For a dynamic queue that was deleted: removes what was still being committed for it."""
    last_put: float = 0.0
    last_get: float = 0.0
    high_depth: int = 0
    puts: int = 0
    gets: int = 0
    since: float = 0.0
    """The time from which RESET QSTATS counts."""

    def __post_init__(self) -> None:
        self.refresh(self.definition)

    def refresh(self, definition: Definition) -> None:
        """Copy the attributes of a changed definition."""
        self.definition = definition
        self.name = definition.name
        number = definition.number
        self.max_depth = number("MAXDEPTH")
        self.max_length = number("MAXMSGL")
        self.put_inhibited = number("PUT") == 1
        self.get_inhibited = number("GET") == 1
        self.fifo = number("MSGDLVSQ") == 1
        self.priority = number("DEFPRTY")
        self.persistence = number("DEFPSIST")
        self.transmission = number("USAGE") == 1
        self.property_control = number("PROPCTL")
        self.triggers = number("TRIGGER") == 1 and number("TRIGTYPE") != 0
        self.stream = definition.text("STREAMQ")
        self.temporary = definition.dynamic == 3

    @property
    def open_count(self) -> int:
        """How many handles have the queue open."""
        return self.inputs + self.outputs + self.browsers

    def taken(self, tokens: Sequence[int]) -> None:
        """Forget locks and marks of messages that have been removed from the queue."""
        locked = self.locked
        if locked:
            for token in tokens:
                locked.pop(token, None)
        self.unmark(tokens)

    def unmark(self, tokens: Sequence[int]) -> None:
        """Forget the marks of messages that have been got; they are not restored if the get is backed out."""
        if self.marked or self.handle_marks:
            for token in tokens:
                self.marked.pop(token, None)
                self.handle_marks.pop(token, None)

"""What a connection holds: its open objects and its unit of work. Values; the verbs change them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.errors import MQError
from gateway.queue_manager.groups import LogicalOrder
from gateway.queue_manager.objects.catalogue import Definition
from gateway.queue_manager.objects.local_queue import LocalQueue
from gateway.queue_manager.objects.name_resolution import Target
from gateway.queue_manager.store.unit import StoreUnit

if TYPE_CHECKING:
    from gateway.ports.mqi import ObjectRecord, Status
    from gateway.queue_manager.objects.selectors import Selector


@dataclass(slots=True, eq=False)
class Handle:
    """An open object."""

    number: int
    options: int
    object_type: int
    definition: Definition | None = None
    """As it was when the object was opened: put and get fail with 2041 when it has changed its resolution since."""
    target: Target | None = None
    queue: LocalQueue | None = None
    """The queue to get from."""
    topic: str = ""
    records: list[ObjectRecord] = field(default_factory=list)
    targets: list[Target | MQError] = field(default_factory=list)
    """Of a distribution list."""
    selector: Selector | None = None
    cursor: int | None = None
    cursor_locked: bool = False
    saved_context: bytes | None = None
    marks: set[int] = field(default_factory=set)
    putting: LogicalOrder = field(default_factory=LogicalOrder)
    getting: LogicalOrder = field(default_factory=LogicalOrder)
    subscription: str = ""
    """The name of the subscription this is a handle of."""
    managed_by: int = 0
    """The subscription handle whose managed queue this is."""
    delete_on_close: bool = False

    def needs(self, options: int, reason: int, what: str) -> None:
        """Refuse a verb the object was not opened for."""
        if not self.options & options:
            raise MQError(reason, f"the object was not opened with {what}")


@dataclass(slots=True)
class Taken:
    """A message got in the unit of work."""

    queue: LocalQueue
    token: int
    backout: int
    md: bytes
    data: bytes
    skip: bool = False
    """MQGMO_MARK_SKIP_BACKOUT."""


@dataclass(slots=True)
class UnitOfWork:
    """What MQCMIT makes final and MQBACK undoes."""

    begun: bool = False
    unit: StoreUnit = field(default_factory=StoreUnit)
    puts: dict[LocalQueue, int] = field(default_factory=dict)
    taken: list[Taken] = field(default_factory=list)
    failed: int = 0
    """Persistent asynchronous puts that failed: the commit will too."""

    @property
    def open(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self.begun or self.puts or self.taken or self.failed or self.unit)

    @property
    def messages(self) -> int:
        """What counts against MAXUMSGS."""
        return sum(self.puts.values()) + len(self.taken)


def note(status: Status, queue_manager: str, comp_code: int, reason: int, handle: Handle) -> None:
    """MQSTAT tells of the first error of asynchronous puts, and of a warning only until there is an error."""
    if status.comp_code >= comp_code:
        return
    status.comp_code, status.reason = comp_code, reason
    status.object_type = handle.object_type
    status.object_name = handle.definition.name if handle.definition is not None else ""
    status.object_queue_manager = status.resolved_queue_manager = queue_manager
    queue = handle.target.queue if handle.target is not None else None
    status.resolved_name = queue.name if queue is not None else ""

"""What the queue manager asks of a store: append durably, read in order, find by identifier.

The journal's store and the store in memory both answer it. A store knows nothing of attributes of queues, handles or
waiting gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, Protocol

from gateway.ports.batch import StorageFull
from gateway.queue_manager.store.replaced import Records
from gateway.queue_manager.store.unit import Message, Replaced, StoreUnit


class MessageStore(Protocol):
    """`prepare`, `write` and `apply` are three steps, so that `write` alone may run on another thread.

    All calls but `write` come from one thread at a time; a frame is applied, or given up, before the next is prepared.
    Names in a unit are those of local queues, priorities 0 to 9; tokens compare in the order of delivery.
    """

    def prepare(self, unit: StoreUnit, now: float, *, at_once: bool = False) -> Any:
        """Make one frame, and give tokens to its messages. Either `apply` or `abort` follows. `at_once`: the caller
        writes and applies it before anything else is asked, and no other frame is under way, so what leaves need not be
        hidden until then."""

    def write(self, frame: Any) -> None:
        """Write the frame; it is durable on return. Raises `StoreUnavailable` if nothing of it is stored."""

    def apply(self, frame: Any) -> None:
        """Make the frame's changes visible."""

    def abort(self, frame: Any) -> None:
        """Give up the frame, which was not written."""

    def maintain(self, now: float, /) -> Any | None:
        """Take one bounded step of maintenance. Returns a frame to be written and applied, or None."""

    @property
    def under_maintenance(self) -> bool:
        """Whether a step that has written nothing is followed by another one."""

    @property
    def ending(self) -> str:
        """Return where the store ended if the last process did not close it."""

    @property
    def left_out(self) -> bool:
        """Whether something incomplete is left out at that end."""

    @property
    def storage_full(self) -> StorageFull | None:
        """Why no new messages are taken, if the disk is full or cannot be written."""

    def look_after_files(self) -> bool:
        """Find out what somebody else has done to the files of the store; called every second. Returns whether to go on
        at once."""

    @property
    def next_number(self) -> int:
        """The number that the next message gets."""

    def load(self, queue: str) -> Iterable[tuple[bytes, Message]]:
        """Return every message of a queue with its key, in order of arrival."""

    def keys(self, queue: str) -> Iterable[bytes]:
        """The keys that messages of a queue have, as long as it does not change."""

    def fetch(
        self, queue: str, key: bytes, limit: int, after: int | None = None, *, locked: bool = False
    ) -> list[Message]:
        """Return the next messages by priority and arrival; locked ones only on request."""

    def fetch_around_damage(
        self, queue: str, key: bytes, limit: int, after: int | None = None, seconds: float = inf
    ) -> tuple[list[Message], dict[int, str]]:
        """Return what `fetch` does, locked messages included, and by token why some cannot be read: those are empty.
        After this many seconds the first such message is the last one."""

    def first(self, queue: str, key: bytes) -> int | None:
        """Return the token of the next message, locked or not, or None."""

    def tokens(self, queue: str, key: bytes) -> Sequence[int]:
        """Return the tokens of the messages that `fetch` would return."""

    def tokens_after(self, queue: str, key: bytes, after: int | None, limit: int) -> list[int]:
        """Return the tokens of the next messages that `fetch` would return."""

    def lock(self, queue: str, key: bytes, tokens: Sequence[int], /) -> None:
        """Lock messages that were got in an open unit of work: fetches do not return them."""

    def unlock(self, queue: str, key: bytes, tokens: Sequence[int], /) -> None:
        """Make locked messages available again, in their old places."""

    def read(self, queue: str, key: bytes, token: int) -> Message | None:
        """Return one message by its token, or None if it is no longer there."""

    def find(
        self, queue: str, key: bytes, msg_id: bytes | None, correl_id: bytes | None, group_id: bytes | None = None,
        after: int | None = None, onward: Callable[[int], int] | None = None,
    ) -> Iterable[Message]:  # fmt: skip
        """The messages with this MsgId, CorrelId and GroupId (None: any), by priority and arrival, from after a token
        on; locked ones too. Nothing may be put or taken while they are looked at. `onward`: says of a token which one,
        from it on and in its priority, is wanted first; the others need not be read, and may be very many."""

    def prepare_find(self, queue: str, key: bytes, field: str) -> bool:
        """Do some milliseconds of the work that the first `find` by `msg_id`, `correl_id` or `group_id` needs on a
        queue. Returns whether all of it is done."""

    def replaceable(self, queue: str, records: Records, head: bytes, /) -> tuple[Replaced | None, Records]:
        """Split state records: those that can take the place of the one message of their keys, if nobody has locked it,
        and the others. If nobody has looked, all are others."""

    def depth(self, queue: str, key: bytes = b"", least: int = 0) -> int:
        """How many messages there are of at least this priority."""

    def depths(self, queues: list[str], /) -> list[int]:
        """How many messages there are on each of these queues."""

    def depth_of_all(self, queue: str, /) -> int:
        """How many messages a queue has under all keys together."""

    def forget(self, queue: str, /) -> None:
        """Forget a deleted queue; nothing is kept of one that is empty."""

    def oldest(self, queue: str) -> int:
        """When the oldest message of the queue was put, in microseconds; 0: the queue is empty."""

    def state(self) -> dict[bytes, bytes]:
        """The small records."""

    def close(self) -> None:
        """Close the store."""

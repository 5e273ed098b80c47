"""What meets a defect of the gateway is set aside, and everything else goes on.

A unit is what is handled by itself: a record at start, a will, a publication, a message from a queue, the end of a
connection, a timer's call. `run` handles one. If that raises what nobody expects, its half-done changes are taken back
(`broker/undo.py`), it is counted and logged, and what it was about is put on the queue MQGATE.SET.ASIDE, in the unit of
work that takes it from where it was: it is not met again, nothing of it is lost, and an operator can replay it. What
cannot be set aside, because that queue is full or missing, stays where it was.

A client that met a defect is served one packet at a time from then on (`is_suspect`): a publication that meets it again
is known exactly, set aside and acknowledged, so that a client that sends it again and again comes to an end. Pure.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway.bridge import set_aside
from gateway.broker.marks import Mark, SourceQueue
from gateway.broker.undo import Undo
from gateway.errors import HeaderError, MQError, StoreError
from gateway.mq import mqmd
from gateway.ports.batch import MQMD_LENGTH, Address
from gateway.ports.failure_policy import Policy
from gateway.ports.state_queues import KEYED, SET_ASIDE

if TYPE_CHECKING:
    from gateway.broker.batch import Batch, Destination
    from gateway.broker.context import Context
    from gateway.ports.batch import Scheduler, Stored, Token
    from gateway.ports.counters import UnitKind
    from gateway.session.connection import Connection, Publisher
    from gateway.session.publication import Publication

ADDRESS = Address(SET_ASIDE)
POLICY = Policy("_none", 0, 0.1, 10.0, "stay", "dead_letter")
"""What is refused stays where it was (`SetAside.refused`)."""
SUSPECT_SECONDS = 3600.0
"""How long a client that met a defect is served one packet at a time."""
MAX_SUSPECTS = 10_000
NOTICE_SECONDS = 3600.0
"""A defect with nothing to keep, a timer's for instance, leaves one message in this time, however often it is met."""
_MAX_NOTICES = 1000
AWAY = (MQError, StoreError)
"""The queue manager cannot be asked: no defect where whoever runs the unit knows what to do about it."""


def _nothing() -> None:
    pass


class Aside(NamedTuple):
    """What is put on the queue: a message, and where it came from."""

    md: bytes = b""
    """Its descriptor; none: a new one."""
    data: bytes = b""
    said: Mapping[str, str | int | bytes] = {}
    """What else has to be known for a replay."""
    source: tuple[SourceQueue, Token] | None = None
    """Where it is taken from, and stays if it is refused."""
    take: Callable[[Batch], None] | None = None
    """Takes it from there, where that is not done yet."""


def aside_of_publication(publisher: Publisher, publication: Publication) -> Aside:
    """What a replay needs to publish it."""
    said: dict[str, str | int | bytes] = {
        "topic": publication.topic.decode("utf-8", "backslashreplace"), "qos": publication.qos,
        "retain": int(publication.retain), "properties": publication.properties, "client": publisher.client_id,
        "user": publisher.user or "", "listener": publisher.listener, "version": publisher.version,
    }  # fmt: skip
    return Aside(b"", publication.payload, said)


class Record:
    """A record of a state queue, as the source of a message that is set aside."""

    def __init__(
        self, queue: str, key: bytes, data: bytes, token: Token = None, again: Callable[[], None] = _nothing
    ) -> None:
        self.queue, self.key = queue, key
        self.data, self.token = data, token
        self.again = again
        """What else is to be done when it stays."""

    def take(self, batch: Batch) -> None:
        """Take it with the open batch."""
        if self.queue in KEYED:
            batch.replace(self.queue, self.key, None)
        else:
            batch.take(self.queue, self.key, self.token)

    def leave(self, batch: Batch, _token: Token) -> None:
        """The batch has failed: leave it where it is, unless there is a newer one by now."""
        self.again()
        if self.queue not in KEYED:
            batch.takes[self.queue, self.key].tokens.remove(self.token)
        elif batch.replaces[self.queue, self.key].body is None:
            batch.replace(self.queue, self.key, self.data)

    def stay(self, scheduler: Scheduler, token: Token) -> None:
        """Nothing reads the queue again before the next start."""


class Defect(NamedTuple):
    """One that was met, for the log."""

    what: UnitKind
    whom: str
    """The client, topic or queue it was about."""
    error: BaseException
    kept: bool
    """Whether it is, or will be, on the queue MQGATE.SET.ASIDE."""


class SetAside:
    """Runs units, and sets those aside that fail."""

    def __init__(self, context: Context, scheduler: Scheduler) -> None:
        self.context = context
        self.scheduler = scheduler
        self.on_defect: Callable[[Defect], None] = lambda _defect: None
        self.last = ""
        """The last defect, in words: for readiness and the admin page."""
        self.suspects: dict[str, float] = {}
        self._notices: dict[tuple[UnitKind, str], float] = {}

    # -- units --

    def run(
        self, what: UnitKind, whom: str, call: Callable[[], object], aside: Callable[[], Aside] | None = None,
        passing: tuple[type[Exception], ...] = (),
    ) -> bool:  # fmt: skip
        """Handle a unit; `aside`: what is kept of it if it fails; `passing`: no defects, for whoever runs it. False: it
        has failed, and nothing of it is left."""
        undo = Undo(self.context.batch)
        try:
            call()
        except passing:
            undo.take_back(self.context.batch)
            raise
        except Exception as error:  # noqa: BLE001 -- what it is for
            undo.take_back(self.context.batch)
            self.keep(what, whom, error, aside)
            return False
        undo.keep()
        return True

    def call(self, call: Callable[[], object]) -> None:
        """Do something that belongs to nobody in particular."""
        self.run("call", getattr(call, "__qualname__", type(call).__name__), call)

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        """Do something later that is no unit: for what it takes in several are answered, whatever comes after it."""

        def guarded() -> None:
            try:
                call()
            except Exception as error:  # noqa: BLE001 -- as in `run`
                self.keep("call", getattr(call, "__qualname__", type(call).__name__), error)

        self.scheduler.later(seconds, guarded)

    def record(self, what: UnitKind, queue: str, key: bytes, stored: Stored, call: Callable[[], object]) -> bool:
        """Handle a record that lies on a state queue."""
        return self.run(what, key.hex(), call, lambda: aside_of(queue, key, stored), AWAY)

    # -- what failed --

    def keep(self, what: UnitKind, whom: str, error: BaseException, aside: Callable[[], Aside] | None = None) -> bool:
        """Set aside what failed, count it and say so; False: it could not be, and stays where it was."""
        context, kept = self.context, True
        if aside is not None or self._is_new(what, error):
            undo = Undo(context.batch)
            try:
                self._put(what, whom, error, aside() if aside is not None else Aside())
                undo.keep()
            except Exception as worse:  # noqa: BLE001 -- it must not add to the damage
                undo.take_back(context.batch)
                kept = False
                error.add_note(f"and it could not be set aside: {worse!r}")
        context.counters.set_aside[what, "ok" if kept else "failed"] += 1
        self.last = f"{what.replace('_', ' ')} {set_aside.plain_text(whom)}: {_named(error)}"
        self.on_defect(Defect(what, set_aside.plain_text(whom), error, kept))
        return kept

    def _put(self, what: UnitKind, whom: str, error: BaseException, aside: Aside) -> None:
        batch = self.context.batch
        md = aside.md if aside.md[:4] == b"MD  " else mqmd.build(persistence=1, put_appl_name="mqgate")
        lines = "".join(traceback.format_exception(error))
        said = {"what": what, "whom": whom, "reason": _named(error), "traceback": lines}
        made = set_aside.build(md, aside.data, said | dict(aside.said))
        destination, row = batch.put(ADDRESS, POLICY, made.head, made.body)
        destination.mark(row, Mark(source=aside.source))
        if aside.take is not None:
            aside.take(batch)

    def _is_new(self, what: UnitKind, error: BaseException) -> bool:
        """Whether a defect of which nothing is kept was not met before, or not lately, at this place."""
        now, at = self.scheduler.monotonic(), f"{_named(error)} {_place(error)}"
        if now - self._notices.get((what, at), -NOTICE_SECONDS) < NOTICE_SECONDS:
            return False
        if len(self._notices) >= _MAX_NOTICES:
            self._notices.clear()
        self._notices[what, at] = now
        return True

    def refused(self, batch: Batch, destination: Destination, rows: set[int], text: str) -> set[Connection]:
        """The queue takes no more of it: what came from somewhere stays there. Returns those who were to get an
        acknowledgement for what has no other place: they get none."""
        counts = self.context.counters.set_aside
        for row in sorted(rows):
            counts[_what(destination.puts.heads[row]), "failed"] += 1
            mark = destination.marks.get(row)
            source = mark.source if mark is not None else None
            if source is not None:
                source[0].leave(batch, source[1])
                source[0].stay(self.scheduler, source[1])
        self.last = f"{len(rows)} could not be set aside: {text}"
        waiting = set(destination.contributors)
        batch.without(destination, rows)
        return waiting

    # -- clients --

    def suspect(self, connection: Connection) -> None:
        """A client has met a defect: from now on it is served one packet at a time."""
        if len(self.suspects) >= MAX_SUSPECTS:
            self.suspects.pop(next(iter(self.suspects)))
        self.suspects[_who(connection)] = self.scheduler.monotonic()

    def is_suspect(self, connection: Connection) -> bool:
        """Whether a client is one that met a defect lately."""
        if not self.suspects:
            return False
        who = _who(connection)
        since = self.suspects.get(who)
        if since is not None and self.scheduler.monotonic() - since > SUSPECT_SECONDS:
            del self.suspects[who]
            return False
        return since is not None


def aside_of(queue: str, key: bytes, stored: Stored) -> Aside:
    """A record of a state queue as it is kept."""
    record = Record(queue, key, stored.data, stored.token)
    return Aside(stored.md, stored.data, {"queue": queue, "key": key}, (record, stored.token), record.take)


class GuardedScheduler:
    """A scheduler whose calls are units: one that fails does not keep a timer from what comes after it."""

    def __init__(self, scheduler: Scheduler, set_aside_: SetAside) -> None:
        self._scheduler = scheduler
        self._set_aside = set_aside_

    @property
    def now(self) -> Callable[[], float]:
        """Seconds since the epoch; may jump."""
        return self._scheduler.now

    @property
    def monotonic(self) -> Callable[[], float]:
        """Seconds that never jump."""
        return self._scheduler.monotonic

    def later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Run `call` in the reactor thread after `seconds`; returns a function that cancels it."""
        return self._scheduler.later(seconds, lambda: self._set_aside.call(call))

    def soon(self, call: Callable[[], None]) -> None:
        """Run `call` in the reactor thread, from any thread."""
        self._scheduler.soon(lambda: self._set_aside.call(call))


def _what(head: bytes) -> UnitKind:
    """What a set-aside message says it is."""
    try:
        found: Any = set_aside.strip(head[:MQMD_LENGTH], head[MQMD_LENGTH:]).said["what"]
    except (HeaderError, KeyError):
        found = "call"
    what: UnitKind = found
    return what


def _who(connection: Connection) -> str:
    """Its client identifier; of a client that leaves it to the gateway to give it one, its address."""
    request = connection.request
    own = request.client_id if request is not None else ""
    return own or connection.link.peer.rpartition(":")[0]


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:500]


def _place(error: BaseException) -> str:
    """Where it was raised."""
    found = error.__traceback__
    while found is not None and found.tb_next is not None:
        found = found.tb_next
    return "" if found is None else f"{found.tb_frame.f_code.co_filename}:{found.tb_lineno}"

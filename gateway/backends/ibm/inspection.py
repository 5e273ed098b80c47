"""Shows queues of IBM MQ to an operator, and acts on their messages: replay, remove, put, clear.

It uses connections of its own, made when they are needed: an operator's browse does not move a cursor of the gateway,
and what is put keeps its context, if the gateway's user may set it. An act is one unit of work, committed
synchronously.
"""

from __future__ import annotations

import calendar
import fnmatch
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from gateway.backends.ibm.command_server import CommandServer
from gateway.backends.ibm.connection import Connection, whole_message
from gateway.backends.ibm.driver import ConnectSettings, Driver
from gateway.backends.ibm.identifiers import MessageIds
from gateway.backends.ibm.reader import Reader
from gateway.backends.ibm.structures import MSG_ID, get_options, match_md, object_descriptor, put_options
from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.mq import mqmd
from gateway.mq.reason_policy import Action, action_for, explain
from gateway.ports.batch import MQMD_LENGTH, Failure, Outcome, Puts, Takes, Unit
from gateway.ports.inspection import DepthLimits, QueueRow, Seen
from gateway.ports.state_queues import DEAD_LETTERS

PAGE = 500
_SEE = mq.MQGMO_NO_WAIT | mq.MQGMO_FAIL_IF_QUIESCING | mq.MQGMO_PROPERTIES_FORCE_MQRFH2
_LOOK = get_options(_SEE | mq.MQGMO_BROWSE_FIRST, mq.MQMO_MATCH_MSG_ID)
_TAKE = get_options(_SEE | mq.MQGMO_SYNCPOINT, mq.MQMO_MATCH_MSG_ID)
_PUT = mq.MQPMO_SYNCPOINT | mq.MQPMO_SYNC_RESPONSE | mq.MQPMO_FAIL_IF_QUIESCING
_OPEN = mq.MQOO_OUTPUT | mq.MQOO_FAIL_IF_QUIESCING
_CONTEXTS = (
    (mq.MQOO_SET_ALL_CONTEXT, mq.MQPMO_SET_ALL_CONTEXT),
    (mq.MQOO_SET_IDENTITY_CONTEXT, mq.MQPMO_SET_IDENTITY_CONTEXT),
    (0, mq.MQPMO_DEFAULT_CONTEXT),
)
"""All of a message's context, or as much of it as the user may set."""
_ATTRIBUTES = {"IPPROCS": mq.MQIA_OPEN_INPUT_COUNT, "OPPROCS": mq.MQIA_OPEN_OUTPUT_COUNT}

_T = TypeVar("_T")


class IbmInspection:
    """Implements `ports.inspection.Inspects` for the queues that are named to it; IBM's own tools show the others."""

    def __init__(
        self, driver: Driver, settings: ConnectSettings, new_id: MessageIds, names: Callable[[], Iterable[str]]
    ) -> None:
        """`names`: the queues that a list shows. Nothing is connected before it is needed."""
        self.heard: Callable[[], None] = lambda: None
        """Called whenever the queue manager has answered, in the thread of the caller."""
        self._driver = driver.noting(self._note)
        self._settings = settings
        self._new_id = new_id
        self._names = names
        self._reader = Reader(self._driver, settings, new_id)
        self._connection: Connection | None = None
        self._lock = threading.Lock()

    def _note(self) -> None:
        self.heard()

    def connect(self) -> None:
        """Connect, unless connected. Raises MQError if that is not possible."""
        self._reader.connect()

    def close(self) -> None:
        """Disconnect."""
        self._reader.close()
        with self._lock:
            self._drop()

    @staticmethod
    def token(text: str) -> str:
        """Returns a MsgId in hexadecimal digits. Raises ValueError if the text is not one."""
        if len(bytes.fromhex(text)) != 24:
            raise ValueError("a token is a MsgId: 48 hexadecimal digits")
        return text.upper()

    # Queues

    def queues(self, pattern: str = "*") -> list[QueueRow]:
        """Returns those of the names that are queues there. Raises MQError if the queue manager cannot be reached."""
        self.connect()
        found = []
        for name in sorted({one for one in self._names() if one and fnmatch.fnmatchcase(one, pattern)}):
            try:
                found.append(self.queue(name))
            except MQError as error:
                if action_for(error.reason) is Action.RECONNECT:
                    raise
        return found

    def queue(self, name: str) -> QueueRow:
        """Returns one queue by its name."""
        inquire = self._inquire
        kind = int(inquire(name, mq.MQIA_Q_TYPE))
        attributes = {"PUT": "DISABLED" if inquire(name, mq.MQIA_INHIBIT_PUT) else "ENABLED"}
        attributes["DESCR"] = str(inquire(name, mq.MQCA_Q_DESC))
        if kind != mq.MQQT_LOCAL:
            return QueueRow(name, "alias" if kind == mq.MQQT_ALIAS else "remote", None, None, None, attributes)
        attributes["GET"] = "DISABLED" if inquire(name, mq.MQIA_INHIBIT_GET) else "ENABLED"
        attributes |= {word: str(inquire(name, selector)) for word, selector in _ATTRIBUTES.items()}
        if int(inquire(name, mq.MQIA_USAGE)) == mq.MQUS_TRANSMISSION:
            attributes["USAGE"] = "XMITQ"
        depth, most = int(inquire(name, mq.MQIA_CURRENT_Q_DEPTH)), int(inquire(name, mq.MQIA_MAX_Q_DEPTH))
        attributes |= {"CURDEPTH": str(depth), "MAXDEPTH": str(most)}
        shows = depth and attributes["GET"] == "ENABLED"  # a browse counts as a get (2016)
        first = self.browse(name, 1) if shows else []
        return QueueRow(name, "local", depth, most, first[0].put_time if first else None, attributes)

    def depth(self, name: str) -> int:
        """Returns how many messages lie there."""
        return int(self._inquire(name, mq.MQIA_CURRENT_Q_DEPTH))

    def depth_limits(self, name: str) -> DepthLimits:
        """Returns how many messages a queue takes, and at how many it is nearly full."""
        most, high = (self._inquire(name, one) for one in (mq.MQIA_MAX_Q_DEPTH, mq.MQIA_Q_DEPTH_HIGH_LIMIT))
        return DepthLimits.of(int(most), int(high))

    def _inquire(self, name: str, selector: int) -> int | str:
        value = self._reader.inquire(name, selector)
        self._note()
        return value

    def dead_letter_queue(self) -> str:
        """Returns the queue manager's own, or the one that deploy/mq brings."""
        with suppress(MQError):
            return str(self._reader.inquire("", mq.MQCA_DEAD_LETTER_Q_NAME)) or DEAD_LETTERS
        return DEAD_LETTERS

    # Messages

    def browse(self, name: str, limit: int = 50, after: str | None = None) -> list[Seen]:
        """Returns the next messages in the queue's order."""
        found = self._reader.fetch(name, b"", limit, None if after is None else bytes.fromhex(after))
        return [_seen(stored.md, stored.data) for stored in found]

    def message(self, name: str, token: str) -> Seen:
        """Returns the first message with this MsgId. Raises 2033 if there is none."""
        return self._act(
            lambda connection: _seen(*_get(connection, connection.browse(name), name, bytes.fromhex(token), _LOOK))
        )

    def prepare_find(self, _name: str) -> bool:
        """Returns True: there is nothing to prepare."""
        return True

    def find(self, name: str, *, msg_id: bytes | None = None, correl_id: bytes | None = None) -> list[Seen]:
        """Returns messages by identifier."""
        found: list[Seen] = []
        after = None
        while page := self.browse(name, PAGE, after):
            found += [
                seen
                for seen in page
                if (msg_id is None or seen.md[mqmd.MSG_ID] == msg_id)
                and (correl_id is None or seen.md[mqmd.CORREL_ID] == correl_id)
            ]
            after = page[-1].token
        return found

    # Acts

    def remove(self, name: str, tokens: list[str]) -> int:
        """Remove messages; returns how many. Those that are no longer there are not counted."""

        def act(connection: Connection) -> int:
            removed = 0
            for token in tokens:
                with suppress(_Gone):
                    _get(connection, connection.input(name), name, bytes.fromhex(token), _TAKE)
                    removed += 1
            connection.session.commit()
            return removed

        return self._act(act)

    def clear(self, name: str) -> Iterator[int]:
        """Remove every message that is in no unit of work, some at a time; yields how many each time. If messages may
        not be got, the command server is asked, because CLEAR QLOCAL does not get any."""
        try:
            while page := self.browse(name, PAGE):
                count = self.remove(name, [seen.token for seen in page])
                yield count
                if not count:
                    break
        except MQError as error:
            if error.reason != mq.MQRC_GET_INHIBITED:
                raise
            yield self._clear_by_command(name)

    def _clear_by_command(self, name: str) -> int:
        """CLEAR QLOCAL, which IBM MQ refuses while the queue is open; this process does not have it open. Returns how
        many messages there were."""
        self._reader.forget_objects()
        before = self.depth(name)

        def act(connection: Connection) -> str:
            connection.forget_objects()
            server = CommandServer(connection.session)
            try:
                answer = server.run(f"CLEAR QLOCAL('{name}')")
            finally:
                server.close()
            return " ".join(answer.lines) if answer.failed else ""

        try:
            why = self._act(act)
        except MQError as error:
            why = str(error)
        if why:
            fix = f"ALTER QLOCAL('{name}') GET(ENABLED) allows it; CLEAR QLOCAL needs a queue that nobody has open"
            raise MQError(mq.MQRC_GET_INHIBITED, f"{fix} ({why})")
        return before - self.depth(name)

    def commit(self, unit: Unit) -> Outcome:
        """Put messages with the context they have, and take messages, in one unit of work."""
        failed = -1

        def act(connection: Connection) -> None:
            nonlocal failed
            for failed, puts in enumerate(unit.puts):  # noqa: B007 -- the one at fault
                self._put(connection, puts)
            failed = -1
            for takes in unit.takes:
                _take(connection, takes, unit)
            connection.session.commit()

        try:
            self._act(act)
        except MQError as error:
            return Outcome([Failure(failed, error.reason, explain(error.reason, str(error)))])
        return Outcome()

    @staticmethod
    def _put(connection: Connection, puts: Puts) -> None:
        session = connection.session
        handle, how = _open(connection, puts.queue)
        try:
            options, tokens = put_options(_PUT | how), []
            for head, body in zip(puts.heads, puts.bodies, strict=True):
                data = head[MQMD_LENGTH:] + body
                answer = session.mqput(session.handle, handle, bytes(bytearray(head[:MQMD_LENGTH])), options(), data)
                if answer[-2] == mq.MQCC_FAILED:
                    raise MQError(int(answer[-1]), f"putting to {puts.queue}")
                tokens.append(answer[0][MSG_ID])
            puts.tokens = tokens
        finally:
            with suppress(MQError):
                session.close(handle)

    def msg_id_of(self, token: object, head: bytes) -> str:
        """Returns the MsgId, which is what a token of this backend is."""
        return (token if isinstance(token, bytes) else head[mqmd.MSG_ID]).hex().upper()

    # The connection

    def _act(self, call: Callable[[Connection], _T]) -> _T:
        """Make calls on the connection for changes. If they fail they are backed out, and a broken connection is not
        used again."""
        with self._lock:
            if self._connection is None:
                self._connection = Connection(self._driver.connect(self._settings), self._new_id)
            connection = self._connection
            try:
                return call(connection)
            except MQError as error:
                if action_for(error.reason) is Action.RECONNECT or not _backed_out(connection):
                    self._drop()  # what is left open would be committed with the next act
                else:
                    connection.forget_objects()
                raise

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.session.leave()


def _backed_out(connection: Connection) -> bool:
    try:
        connection.session.back()
    except MQError:
        return False
    return True


class _Gone(MQError):
    """There is no such message (any more)."""


def _open(connection: Connection, queue: str) -> tuple[int, int]:
    """Returns a handle for putting with as much of the context as is allowed, and the option that goes with it."""
    for last, (opening, putting) in enumerate(_CONTEXTS, 1):
        try:
            return connection.session.open(object_descriptor(queue), _OPEN | opening), putting
        except MQError as error:
            if error.reason != mq.MQRC_NOT_AUTHORIZED or last == len(_CONTEXTS):
                raise MQError(error.reason, f"opening {queue} for output") from None
    raise AssertionError


def _get(connection: Connection, handle: int, queue: str, msg_id: bytes, options: Any) -> tuple[bytes, bytes]:
    """Returns descriptor and data of the first message with this MsgId, whatever its length."""
    session = connection.session
    found = whole_message(
        lambda length: session.mqget(session.handle, handle, match_md(msg_id), options(), length), f"looking at {queue}"
    )
    if found is None:
        raise _Gone(mq.MQRC_NO_MSG_AVAILABLE, "the message is gone, or in somebody's unit of work")
    return found[1], found[0]


def _take(connection: Connection, takes: Takes, unit: Unit) -> None:
    """Take messages by their MsgIds, which need not be unique: what is taken has to be what was put elsewhere, or
    nothing is taken."""
    put = [body for puts in unit.puts for body in puts.bodies]
    for token in takes.tokens:
        _, data = _get(connection, connection.input(takes.queue), takes.queue, bytes.fromhex(str(token)), _TAKE)
        if put and not any(data.endswith(body) for body in put):
            raise MQError(mq.MQRC_NO_MSG_AVAILABLE, "another message with the same MsgId lies in front of it")


def _seen(md: bytes, data: bytes) -> Seen:
    tenths = mqmd.number(md, mqmd.AT_EXPIRY)
    expiry = 0.0 if tenths < 0 else time.time() + tenths / 10
    backout = mqmd.number(md, mqmd.AT_BACKOUT_COUNT)
    return Seen(md[mqmd.MSG_ID].hex().upper(), md, data, _put_time(md), backout, expiry, locked=False)


def _put_time(md: bytes) -> float:
    text = mqmd.text(md, mqmd.PUT_DATE) + mqmd.text(md, mqmd.PUT_TIME)
    try:
        return calendar.timegm(time.strptime(text[:14], "%Y%m%d%H%M%S")) + int(text[14:16] or 0) / 100
    except ValueError:
        return 0.0

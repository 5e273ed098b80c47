"""The server side of the MQI socket: takes chunks of frames, gives answers, and makes the calls on one connection to a
queue manager.

The owner of the socket feeds `receive` and sends what `write` is given; nothing here touches a socket, a thread or a
clock. One frame is answered before the next is read. A get that has to wait, or to look at very many messages, is left
with the queue manager, and a call that shares its commit with others (`QueueManager.gathered`) waits for it; the queue
manager tells what has become of it in the owner's own thread (`QueueManager.serve_through`). A program that breaks the
protocol is disconnected.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import ClassVar

from gateway.errors import MQError, StoreCorrupt, StoreError
from gateway.mq import constants as mq
from gateway.mqi.fields import (
    OPEN_PAIR,
    PutRun,
    cut_characters,
    get_reply,
    put_reply,
    read_descriptor,
    read_numbers,
    read_put,
)
from gateway.mqi.usual_calls import UsualCall, usual_call
from gateway.mqi.wire import (
    LONGEST_FRAME,
    MAGIC,
    NO_REPLY,
    PROTOCOL_VERSION,
    FieldReader,
    FieldWriter,
    FrameError,
    Frames,
    Verb,
    decode_properties,
    outcome,
)
from gateway.ports.mqi import (
    Cancel,
    GetOptions,
    Got,
    PutOptions,
    QueueManager,
    QueueManagerConnection,
    Settlement,
    SubscriptionDescriptor,
)

_GREETING = struct.Struct("<3i")
_PUT_START = struct.Struct("<4i364si")
"""The fields of a put: handle, options, context, level, MQMD, and the length of the properties."""
_GET_FIELDS = struct.Struct("<7i16s364s")
"""The fields of a get: handle, options, WaitInterval, MatchOptions, whether there is a message handle, version, length
of the buffer, MsgToken, MQMD."""
_SUBSCRIBE_FIELDS = struct.Struct("<5i")
_PUT, _GET, _COMMIT = int(Verb.PUT), int(Verb.GET), int(Verb.COMMIT)
"""The verbs as plain numbers, which are packed and compared for every call."""

Write = Callable[[bytes], None]


class ServerProtocol:
    """One program's connection."""

    def __init__(
        self,
        queue_manager: QueueManager,
        write: Write,
        close: Callable[[], None],
        *,
        monotonic: Callable[[], float],
        user: str = "",
        process: int = 0,
    ) -> None:
        """`user` is the user who runs the program, `process` the number of its process."""
        self._queue_manager = queue_manager
        self._write = write
        self._close = close
        self._monotonic = monotonic
        self._user = user
        self._process = process
        self._frames = Frames()
        self._run = PutRun()
        self._connection: QueueManagerConnection | None = None
        self._cancel: Cancel | None = None
        self._put_options = PutOptions()
        """The options of the last put that needed nothing else: the next put nearly always has the same."""
        self._get_asked: tuple[int, int, int, bytes, int] | None = None
        self._get_options = GetOptions()
        """The options of the last get; `_get_asked` is what they were made from."""
        self._behind = False
        """Whether there are bytes from the program that belong to no answered call."""
        self._answer_due: tuple[int, int, bytes] = (0, 0, b"")
        """Verb, tag and answer of the call that waits for its commit."""
        self._settlement: Settlement | None = None
        """The settlement of the call that is to be answered when its commit is made."""
        self._waiting = False
        """Whether a get waits for a message, or a call for its commit: nothing else is answered meanwhile."""
        self._answering = False
        self._ended = False

    @property
    def waiting(self) -> bool:
        """Whether a call is still to be answered; nothing else is until then."""
        return self._waiting

    def receive(self, chunk: bytes) -> None:
        """Take what arrived and answer every frame that is complete."""
        if self._ended:
            return
        if not (self._waiting or self._behind):
            call = usual_call(chunk)
            if call is not None and self._connection is not None:
                self._make(self._connection, call)
                return
        self._behind = True
        self._frames.add(chunk)
        if self._waiting:
            self._check_backlog()
            return
        self._answer_frames()

    def connection_lost(self) -> None:
        """The socket was closed without MQDISC: back out the unit of work."""
        if self._ended:
            return
        self._ended = True
        if self._cancel is not None:
            self._cancel()
        connection, self._connection = self._connection, None
        if connection is None:
            return
        settlement = self._settlement
        if settlement is None:
            connection.disconnect(commit=False)
        else:  # what its last call has done is on its way to the disk
            settlement.then(lambda _error: connection.disconnect(commit=False))

    def _answer_frames(self) -> None:
        if self._answering:  # a get found its message at once: the loop below goes on
            return
        self._answering = True
        try:
            self._answer_complete()
            self._behind = self._frames.waiting() > 0
        except FrameError:
            self._put_run()
            self._disconnect_program()
        finally:
            self._answering = False

    def _answer_complete(self) -> None:
        """Answer the complete frames, until one has to wait."""
        for verb, flags, tag, body in self._frames.take():
            if verb == Verb.PUT and flags & NO_REPLY and self._run.add(body):
                continue
            if self._run.bodies:
                self._put_run()
                if verb == Verb.PUT and flags & NO_REPLY and self._run.add(body):
                    continue
            self._answer(verb, flags, tag, body)
            if self._waiting or self._ended:
                return
        self._put_run()

    def _put_run(self) -> None:
        """Make the asynchronous puts that arrived one after another. They are not answered; MQSTAT reports failures."""
        if not self._run.bodies:
            return
        run, self._run = self._run, PutRun()
        if self._connection is None:
            return
        handle, flags, context, level = run.fields
        with suppress(MQError, StoreError):
            self._connection.put_run(
                handle, run.mds, PutOptions(flags, context, (), publication_level=level), run.bodies
            )

    def _check_backlog(self) -> None:
        if self._frames.waiting() > 2 * LONGEST_FRAME:
            self._disconnect_program()

    def _disconnect_program(self) -> None:
        self.connection_lost()
        self._close()

    def _answer(self, verb: int, flags: int, tag: int, body: bytes) -> None:
        connection, settlement = self._connection, None
        try:
            answer = self._call(connection, verb, tag, FieldReader(body))
            settlement = connection.unsettled() if connection is not None else None
        except MQError as error:
            answer = outcome(verb, tag, error.comp_code, error.reason)
        except StoreError as error:
            answer = outcome(verb, tag, mq.MQCC_FAILED, _reason_of(error))
        if flags & NO_REPLY:
            answer = b""
        if settlement is not None:
            self._await(settlement, verb, tag, answer)
        elif answer:
            self._write(answer)

    def _make(self, connection: QueueManagerConnection, call: UsualCall) -> None:
        """Make a call of the kind that most programs make most of the time."""
        verb, tag, fields = call
        settlement, answer = None, b""
        try:
            if verb == _PUT:
                handle, flags, context, level, md, data = fields
                options = self._put_options
                if (flags, context, level) != (options.options, options.context, options.publication_level):
                    options = self._put_options = PutOptions(flags, context, (), publication_level=level)
                answer = put_reply(_PUT, tag, connection.put(handle, md, options, data))
            elif verb == _GET:
                answer = self._get_with(connection, tag, *fields)
                if not answer:  # it waits
                    return
            else:
                connection.commit()
                answer = outcome(_COMMIT, tag)
            settlement = connection.unsettled()
        except MQError as error:
            answer = outcome(verb, tag, error.comp_code, error.reason)
        except StoreError as error:
            answer = outcome(verb, tag, mq.MQCC_FAILED, _reason_of(error))
        if settlement is not None:
            self._await(settlement, verb, tag, answer)
        elif answer:
            self._write(answer)

    def _await(self, settlement: Settlement, verb: int, tag: int, answer: bytes) -> None:
        """Answer when the commit is made that the call shares with others."""
        self._settlement, self._waiting = settlement, True
        self._answer_due = verb, tag, answer
        settlement.then(self._settled)

    def _settled(self, error: MQError | None) -> None:
        """The commit for which a call waited is made, or has failed: answer."""
        self._settlement = None
        if self._ended:
            return
        self._waiting = False
        verb, tag, answer = self._answer_due
        if answer:
            self._write(answer if error is None else outcome(verb, tag, error.comp_code, error.reason))
        if self._behind:
            self._answer_frames()

    def _call(self, connection: QueueManagerConnection | None, verb: int, tag: int, reader: FieldReader) -> bytes:
        """Make the call and return its answer; empty if that comes later."""
        if verb == Verb.CONNECT:
            return self._connect(tag, reader)
        if connection is None:
            raise FrameError("a call before the connection was made")
        handler = self._HANDLERS.get(verb)
        if handler is None:
            raise FrameError(f"no verb {verb}")
        return handler(self, connection, tag, reader)

    # Connecting

    def _connect(self, tag: int, reader: FieldReader) -> bytes:
        if self._connection is not None or reader.fixed(4) != MAGIC:
            raise FrameError("not a greeting of the MQI library")
        version, options, given = reader.numbers(_GREETING)
        if version != PROTOCOL_VERSION:
            refused = FieldWriter(Verb.CONNECT, tag, mq.MQCC_FAILED, mq.MQRC_Q_MGR_NOT_AVAILABLE)
            return refused.numbers(PROTOCOL_VERSION).frame()
        asked, user = reader.text().removeprefix("*"), reader.text()
        password, application, channel, address = reader.text(), reader.text(), reader.text(), reader.text()
        reader.end()
        if asked and asked != self._queue_manager.name:
            raise MQError(mq.MQRC_Q_MGR_NAME_ERROR, f"this is {self._queue_manager.name}, not {asked}")
        self._connection = self._queue_manager.connect(
            application=application,
            user=user if given or not self._user else self._user,
            password=password if given else None,
            channel=channel,
            connection_name=address,
            process=self._process,
            options=options,
        )
        reply = FieldWriter(Verb.CONNECT, tag).numbers(PROTOCOL_VERSION).text(self._connection.queue_manager)
        return reply.fixed(self._connection.connection_id.ljust(24, b"\0")[:24]).frame()

    def _disconnect(self, connection: QueueManagerConnection, tag: int, reader: FieldReader) -> bytes:
        reader.end()
        self._connection = None
        connection.disconnect()
        return outcome(Verb.DISCONNECT, tag)

    # Objects

    def _open(self, connection: QueueManagerConnection, tag: int, reader: FieldReader) -> bytes:
        descriptor = read_descriptor(reader)
        options = reader.number()
        reader.end()
        opened = connection.open(descriptor, options)
        reply = FieldWriter(Verb.OPEN, tag, opened.comp_code, opened.reason).numbers(opened.handle)
        reply.text(descriptor.name, descriptor.queue_manager)
        reply.text(descriptor.resolved_name, descriptor.resolved_queue_manager, descriptor.resolved_string)
        return reply.numbers(descriptor.resolved_type).frame()

    def _close_object(self, connection: QueueManagerConnection, tag: int, reader: FieldReader) -> bytes:
        handle, options = reader.numbers(OPEN_PAIR)
        reader.end()
        connection.close(handle, options)
        return outcome(Verb.CLOSE, tag)

    def _inquire(self, connection: QueueManagerConnection, tag: int, reader: FieldReader) -> bytes:
        handle, selectors = reader.number(), read_numbers(reader)
        reader.end()
        found = connection.inquire(handle, selectors)
        reply = FieldWriter(Verb.INQUIRE, tag, found.comp_code, found.reason)
        reply.blob(struct.pack(f"<{len(found.integers)}i", *found.integers)).blob(b"".join(found.characters))
        return reply.frame()

    def _set(self, connection: QueueManagerConnection, tag: int, reader: FieldReader) -> bytes:
        handle, selectors = reader.number(), read_numbers(reader)
        integers, characters = reader.blob(), reader.blob()
        reader.end()
        numbers = list(struct.unpack(f"<{len(integers) // 4}i", integers[: len(integers) // 4 * 4]))
        connection.set(handle, selectors, numbers, cut_characters(selectors, characters))
        return outcome(Verb.SET, tag)

    # Messages

    def _put(self, connection: QueueManagerConnection, tag: int, reader: FieldReader) -> bytes:
        handle, flags, context, level, md, packed = reader.values(_PUT_START)
        properties = decode_properties(reader.fixed(packed)) if packed else ()
        data = reader.blob()
        reader.end()
        options = PutOptions(flags, context, properties, publication_level=level)
        return put_reply(Verb.PUT, tag, connection.put(handle, md, options, data))

    def _put1(self, connection: QueueManagerConnection, tag: int, reader: FieldReader) -> bytes:
        descriptor = read_descriptor(reader)
        md, options, data = read_put(reader)
        return put_reply(Verb.PUT1, tag, connection.put1(descriptor, md, options, data))

    def _get(self, connection: QueueManagerConnection, tag: int, reader: FieldReader) -> bytes:
        handle, flags, wait, match, has_handle, _version, size, token, md = reader.everything(_GET_FIELDS)
        if size < 0:
            raise FrameError("a negative buffer length")
        return self._get_with(connection, tag, handle, flags, wait, match, has_handle, size, token, md)

    def _get_with(
        self,
        connection: QueueManagerConnection,
        tag: int,
        handle: int,
        flags: int,
        wait: int,
        match: int,
        has_handle: int,
        size: int,
        token: bytes,
        md: bytes,
    ) -> bytes:
        asked = flags, wait, match, token, has_handle
        if asked != self._get_asked:
            self._get_asked, self._get_options = asked, GetOptions(flags, wait, match, token, bool(has_handle))
        options = self._get_options
        if not flags & mq.MQGMO_WAIT or not wait:
            got = connection.get_briefly(handle, md, options, size)
            if got is not None:
                return get_reply(tag, got)
            wait = 0
        deadline = None if wait == mq.MQWI_UNLIMITED else self._monotonic() + wait / 1000
        self._waiting = True
        try:
            self._cancel = connection.wait(handle, md, options, size, deadline, partial(self._answer_get, tag))
        except MQError:
            self._waiting = False
            raise
        return b""

    def _answer_get(self, tag: int, result: Got | MQError) -> None:
        if self._ended:
            return
        self._waiting, self._cancel = False, None
        if isinstance(result, MQError):
            self._write(outcome(Verb.GET, tag, result.comp_code, result.reason))
        else:
            self._write(get_reply(tag, result))
        if self._behind:
            self._answer_frames()

    # Units of work, status, subscriptions

    def _begin(self, connection: QueueManagerConnection, tag: int, reader: FieldReader) -> bytes:
        reader.end()
        connection.begin()
        return outcome(Verb.BEGIN, tag, mq.MQCC_WARNING, mq.MQRC_NO_EXTERNAL_PARTICIPANTS)

    def _commit(self, connection: QueueManagerConnection, tag: int, reader: FieldReader) -> bytes:
        reader.end()
        connection.commit()
        return outcome(Verb.COMMIT, tag)

    def _back_out(self, connection: QueueManagerConnection, tag: int, reader: FieldReader) -> bytes:
        reader.end()
        connection.back()
        return outcome(Verb.BACK_OUT, tag)

    def _status(self, connection: QueueManagerConnection, tag: int, reader: FieldReader) -> bytes:
        kind = reader.number()
        reader.end()
        found = connection.status(kind)
        reply = FieldWriter(Verb.STATUS, tag).numbers(found.comp_code, found.reason, found.successes, found.warnings)
        reply.numbers(found.failures, found.object_type)
        reply.text(found.object_name, found.object_queue_manager)
        return reply.text(found.resolved_name, found.resolved_queue_manager).frame()

    def _subscribe(self, connection: QueueManagerConnection, tag: int, reader: FieldReader) -> bytes:
        options, expiry, level, priority, handle = reader.numbers(_SUBSCRIBE_FIELDS)
        descriptor = SubscriptionDescriptor(
            options, expiry=expiry, level=level, publication_priority=priority, correl_id=reader.fixed(24)
        )
        descriptor.topic_object, descriptor.alternate_user = reader.text(), reader.text()
        descriptor.object_string, descriptor.name = reader.text(), reader.text()
        descriptor.user_data, descriptor.selection = reader.text(), reader.text()
        with_identity = not reader.at_end()
        if with_identity:
            descriptor.accounting_token, descriptor.application_identity = reader.fixed(32), reader.text()
        reader.end()
        made = connection.subscribe(descriptor, max(handle, 0))
        reply = FieldWriter(Verb.SUBSCRIBE, tag, made.comp_code, made.reason)
        reply.numbers(made.queue_handle, made.subscription_handle).fixed(descriptor.correl_id)
        reply.text(descriptor.resolved_string).numbers(descriptor.options)
        if with_identity:
            reply.numbers(descriptor.expiry, descriptor.level, descriptor.publication_priority)
            reply.text(descriptor.user_data, descriptor.selection)
            reply.fixed(descriptor.accounting_token).text(descriptor.application_identity)
        return reply.frame()

    def _subscription_request(self, connection: QueueManagerConnection, tag: int, reader: FieldReader) -> bytes:
        handle, action = reader.numbers(OPEN_PAIR)
        reader.end()
        sent = connection.subscription_request(handle, action)
        return FieldWriter(Verb.SUBSCRIPTION_REQUEST, tag).numbers(sent).frame()

    _HANDLERS: ClassVar[dict[int, Callable[[ServerProtocol, QueueManagerConnection, int, FieldReader], bytes]]] = {
        Verb.DISCONNECT: _disconnect,
        Verb.OPEN: _open,
        Verb.CLOSE: _close_object,
        Verb.PUT: _put,
        Verb.PUT1: _put1,
        Verb.GET: _get,
        Verb.BEGIN: _begin,
        Verb.COMMIT: _commit,
        Verb.BACK_OUT: _back_out,
        Verb.INQUIRE: _inquire,
        Verb.SET: _set,
        Verb.STATUS: _status,
        Verb.SUBSCRIBE: _subscribe,
        Verb.SUBSCRIPTION_REQUEST: _subscription_request,
    }


def _reason_of(error: StoreError) -> int:
    return mq.MQRC_OBJECT_DAMAGED if isinstance(error, StoreCorrupt) else mq.MQRC_STORAGE_MEDIUM_FULL

"""Places complete messages: on a local queue, with an MQXQH on a transmission queue, or on the queues of a topic's
subscriptions. Makes reports and dead letters.

Messages are added to a unit of the store, which the caller commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from gateway.errors import HeaderError, MQError
from gateway.mq import constants as mq
from gateway.mq import situations
from gateway.mq.headers import chain
from gateway.mq.situations import Putter
from gateway.ports.batch import MQMD_LENGTH, Puts
from gateway.queue_manager import descriptor
from gateway.queue_manager.core import Core
from gateway.queue_manager.descriptor import Descriptor
from gateway.queue_manager.objects.local_queue import LocalQueue
from gateway.queue_manager.objects.name_resolution import Target, resolve
from gateway.queue_manager.store.rows import extent
from gateway.queue_manager.store.unit import LanePuts, StoreUnit

Publish = Callable[[str, str, bytes, bytes, int, StoreUnit], int]
"""Called with topic object, topic string, descriptor, data, options and unit; returns the number of subscriptions
reached."""

RFH2_LENGTH = 36
"""The length of an MQRFH2 without folders."""
EXPIRY_OF_EXPIRATION = 600
"""The expiry of the report about a message that has expired (MQRO_PASS_DISCARD_AND_EXPIRY), in tenths of a second."""
_REPORTS = (
    mq.MQRO_EXCEPTION_WITH_FULL_DATA | mq.MQRO_EXPIRATION_WITH_FULL_DATA | mq.MQRO_COA_WITH_FULL_DATA
    | mq.MQRO_COD_WITH_FULL_DATA | mq.MQRO_ACTIVITY
)  # fmt: skip
"""The report options that queue managers act on."""
_MUST_DUPLICATE = 1
"""STRMQOS(MUSTDUP)."""
_VERSION_BIG_ENDIAN = (2).to_bytes(4, "big")
DATA_IN_REPORT = 100
"""How many bytes of the application's data a report contains; the headers in front of them are in the report whole."""


class Lost(NamedTuple):
    """A message made by the queue manager that neither its queue nor the dead-letter queue takes."""

    md: bytes
    queue: str
    reason: int
    """The reason for which its queue does not take it."""
    why: str
    """Why it could not be dead-lettered."""


class Placer:
    """Adds messages to units. `publish` is set after the topics have been made."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.publish: Publish | None = None
        self.on_lost: Callable[[Lost], None] = lambda _lost: None
        self._streams = False
        """Whether the message being placed is the copy for a STREAMQ."""

    def place(self, target: Target, md: bytes, data: bytes, unit: StoreUnit) -> LocalQueue | None:
        """Add a message to the unit; returns the queue it will be on (None for a topic)."""
        queue = target.queue
        if queue is None:
            if not target.topic or self.publish is None:
                raise MQError(mq.MQRC_Q_TYPE_ERROR, "messages cannot be put on a model queue")
            before = unit.mark()
            try:
                self.publish(target.topic, "", md, data, 0, unit)
            except MQError:  # the caller may commit the unit all the same: a copy, or a report
                unit.cut_back(before)
                raise
            return None
        if target.remote:
            md, data = self._for_transmission(target, md, data)
            self.put_local(queue, md, data, unit)
            return queue
        self.put_local(queue, md, data, unit)
        self._confirm_arrival(md, data, unit)
        return queue

    def put_local(self, queue: LocalQueue, md: bytes, data: bytes, unit: StoreUnit) -> None:
        """Check the limits of a queue, and add a message for it to the unit, and its copy for STREAMQ."""
        self._check_room(queue, md, data, unit)
        if queue.stream and not self._streams:
            self._stream(queue, md, data, unit)
        self._add(queue, md, data, unit)

    def _check_room(self, queue: LocalQueue, md: bytes, data: bytes, unit: StoreUnit) -> None:
        if queue.put_inhibited:
            raise MQError(mq.MQRC_PUT_INHIBITED, f"ALTER QLOCAL('{queue.name}') PUT(ENABLED) allows it")
        check_length(self._core, queue, data, b"", md[32:40])
        depth = self._core.depth(queue) + unit.messages_for(queue.name)
        if depth >= queue.max_depth:
            raise MQError(mq.MQRC_Q_FULL, f"{queue.name} holds MAXDEPTH({queue.max_depth}) messages")
        if queue.temporary and descriptor.integer(md, "persistence") == mq.MQPER_PERSISTENT:
            raise MQError(mq.MQRC_PERSISTENT_NOT_ALLOWED, f"{queue.name} is a temporary dynamic queue")

    def _add(self, queue: LocalQueue, md: bytes, data: bytes, unit: StoreUnit) -> None:
        priority = 0 if queue.fifo else max(0, min(9, descriptor.integer(md, "priority")))
        persistent = descriptor.integer(md, "persistence") == mq.MQPER_PERSISTENT
        tenths = descriptor.integer(md, "expiry")
        expiry = 0 if tenths < 0 else int(self._core.now() * 1_000_000) + tenths * 100_000
        unit.add_row(LanePuts(queue.name, b"", priority, persistent, [md], [data]), expiry)

    def _stream(self, queue: LocalQueue, md: bytes, data: bytes, unit: StoreUnit) -> None:
        """Add the copy for the queue's STREAMQ (Streaming queues configuration in IBM MQ's manual: the same message
        with the same MsgId, but it does not expire and asks for no report from the queue manager). STRMQOS says what
        happens to a message whose copy cannot be put: with BESTEF it is put all the same, with MUSTDUP it is not."""
        copy = Descriptor(md)
        copy.report &= ~_REPORTS
        copy.expiry = mq.MQEI_UNLIMITED
        self._streams = True  # a copy is not copied again: streams do not form chains
        try:
            target = resolve(self._core, queue.stream)
            target.check_put()
            self.place(target, copy.pack(), data, unit)
        except (MQError, HeaderError) as error:
            if queue.definition.number("STRMQOS") == _MUST_DUPLICATE:
                reason = getattr(error, "reason", mq.MQRC_UNEXPECTED_ERROR)
                why = str(error).removeprefix(f"MQRC {reason}: ")
                text = f"STREAMQ({queue.stream}) of {queue.name} must get its copy: {why}"
                raise MQError(reason, text) from error
        finally:
            self._streams = False

    def _for_transmission(self, target: Target, md: bytes, data: bytes) -> tuple[bytes, bytes]:
        """Returns the message with an MQXQH, in a descriptor of the queue manager's own."""
        core = self._core
        return situations.to_transmission(
            md, data, target.remote_queue, target.remote_queue_manager,
            msg_id=core.new_identifier(), putter=self._putter(), ccsid=core.attribute("CCSID"),
        )  # fmt: skip

    def _putter(self) -> Putter:
        """Returns the queue manager as the putter, with the current time."""
        day, time = split_time(self._core.now())
        return Putter("", self._core.name[:28], mq.MQAT_QMGR, day.decode(), time.decode())

    # Reports

    def _confirm_arrival(self, md: bytes, data: bytes, unit: StoreUnit) -> None:
        if descriptor.integer(md, "report") & mq.MQRO_COA:
            self.report(md, data, mq.MQFB_COA, unit)

    def confirm_delivery(self, md: bytes, data: bytes, unit: StoreUnit) -> None:
        """Add a confirmation of delivery if the message asks for one."""
        if descriptor.integer(md, "report") & mq.MQRO_COD:
            self.report(md, data, mq.MQFB_COD, unit)

    def report(self, md: bytes, data: bytes, feedback: int, unit: StoreUnit) -> None:
        """Add a report about a message for its ReplyToQ, or for the dead-letter queue if ReplyToQ cannot take it."""
        if feedback == mq.MQFB_EXPIRATION and md[32:40] == mq.MQFMT_XMIT_Q_HEADER:
            md, data = _as_put(md, data)
        about = Descriptor(md)
        if descriptor.text(about.reply_to_q) == "":
            return
        report, content = self._report_message(about, data, feedback)
        name, queue_manager = descriptor.text(about.reply_to_q), descriptor.text(about.reply_to_qmgr)
        try:
            target = resolve(self._core, name, queue_manager)
            target.check_put()
            self.place(target, report, content, unit)
        except (MQError, HeaderError) as error:
            reason = getattr(error, "reason", mq.MQRC_UNEXPECTED_ERROR)
            self.give_up(report, content, reason, name, queue_manager, unit)

    def _report_message(self, about: Descriptor, data: bytes, feedback: int) -> tuple[bytes, bytes]:
        with_data, with_all = _data_options(feedback)
        content = data
        if about.report & with_all != with_all:
            content = data[: chain.walk_far(about.pack(), data)[0].body_at + DATA_IN_REPORT]
        if about.report & with_data != with_data:
            content = b""
        report = Descriptor(about.pack())
        report.type, report.feedback, report.report = mq.MQMT_REPORT, feedback, 0
        report.msg_id = about.msg_id if about.report & mq.MQRO_PASS_MSG_ID else self._core.new_identifier()
        report.correl_id = about.correl_id if about.report & mq.MQRO_PASS_CORREL_ID else about.msg_id
        if about.report & mq.MQRO_PASS_DISCARD_AND_EXPIRY:
            report.report = about.report & mq.MQRO_DISCARD_MSG
            if feedback == mq.MQFB_EXPIRATION:  # no time is left: the report gets the minute that IBM MQ gives it
                report.expiry = EXPIRY_OF_EXPIRATION
        else:
            report.expiry = mq.MQEI_UNLIMITED
        if not content:
            report.format = mq.MQFMT_NONE
        report.reply_to_q, report.reply_to_qmgr = b" " * 48, b" " * 48
        report.backout_count = 0
        self.stamp_as_queue_manager(report)
        return report.pack(), content

    def stamp_as_queue_manager(self, md: Descriptor) -> None:
        """Set the origin context of a message made by the queue manager."""
        md.put_application_type = mq.MQAT_QMGR
        md.put_application_name = self._core.name.encode()[:28].ljust(28)
        md.put_date, md.put_time = split_time(self._core.now())
        md.application_origin = b" " * 4

    def dead_letter(self, md: bytes, data: bytes, reason: int, queue: str, queue_manager: str, unit: StoreUnit) -> bool:
        """Put a message on the dead-letter queue with an MQDLH; returns False if no dead-letter queue takes it."""
        return not self._why_no_dead_letter(md, data, reason, queue, queue_manager, unit, cut=False)

    def give_up(self, md: bytes, data: bytes, reason: int, queue: str, queue_manager: str, unit: StoreUnit) -> None:
        """The same for a message that the queue manager has made, or that is for the queue manager itself. One that is
        too long is cut, as a program that puts dead letters does (MQDLH, Usage). If no queue takes it, `on_lost` is
        called once the unit of work has been committed."""
        why = self._why_no_dead_letter(md, data, reason, queue, queue_manager, unit, cut=True)
        if why:
            unit.say(lambda: self.on_lost(Lost(md, queue, reason, why)))

    def _why_no_dead_letter(
        self, md: bytes, data: bytes, reason: int, queue: str, queue_manager: str, unit: StoreUnit, *, cut: bool
    ) -> str:
        """Dead-letter a message, cut to size if `cut`. Returns why this is impossible; empty if the message is a dead
        letter now, or its sender asked for it to be discarded."""
        core = self._core
        if descriptor.integer(md, "report") & mq.MQRO_DISCARD_MSG:
            return ""
        name = core.catalogue.queue_manager.text("DEADQ")
        if not name:
            return "the queue manager has no DEADQ"
        try:
            target = resolve(core, name)
            if target.queue is None:
                return f"DEADQ({name}) is not a queue"
            longest = min(target.queue.max_length, core.attribute("MAXMSGL")) if cut else 0
            dead_letter = situations.to_dead_letter(
                md, data, reason, queue, queue_manager or core.name, putter=self._putter(), max_length=longest
            )
            self.put_local(target.queue, dead_letter.md, dead_letter.data, unit)
        except (MQError, HeaderError) as error:
            return f"DEADQ({name}): {error}"
        return ""

    # The batch port's columns

    def place_columns(self, target: Target, puts: Puts, unit: StoreUnit) -> None:
        """Add the messages of the batch port one by one, for destinations that need that."""
        default = target.chain[0].number("DEFPRTY") if target.chain else 0
        priority = default if puts.priority < 0 else puts.priority
        for md, data in self._stamped(puts, priority):
            self.place(target, md, data, unit)

    def publish_columns(self, topic: str, puts: Puts, unit: StoreUnit) -> None:
        """Publish the messages of the batch port on a topic string."""
        assert self.publish is not None  # noqa: S101 -- set when the topics are made
        options = mq.MQPMO_RETAIN if puts.retain else 0
        for md, data in self._stamped(puts, max(0, puts.priority)):
            self.publish("", topic, md, data, options, unit)

    def _stamped(self, puts: Puts, priority: int) -> Iterator[tuple[bytes, bytes]]:
        for head, body in zip(puts.heads, puts.bodies, strict=True):
            md = Descriptor(head[:MQMD_LENGTH])
            md.priority = priority
            md.persistence = mq.MQPER_PERSISTENT if puts.persistent else mq.MQPER_NOT_PERSISTENT
            stamped = descriptor.stamp(descriptor.normalise(md).pack(), self._core.new_identifier(), self._core.now())
            yield stamped, head[MQMD_LENGTH:] + body


def check_lengths(core: Core, queue: LocalQueue, heads: Sequence[bytes], bodies: Sequence[bytes]) -> None:
    """Raise 2030 or 2031 if a message is too long; properties do not count."""
    limit = min(queue.max_length, core.attribute("MAXMSGL"))
    if extent(heads)[1] + extent(bodies)[1] - MQMD_LENGTH <= limit:
        return
    for head, body in zip(heads, bodies, strict=True):
        check_length(core, queue, head[MQMD_LENGTH:], body, head[32:40])


def check_length(core: Core, queue: LocalQueue, start: bytes, rest: bytes, format_name: bytes) -> None:
    """The same for one message, whose data is `start` and `rest`."""
    length = len(start) + len(rest)
    if format_name == mq.MQFMT_RF_HEADER_2:
        header = (start + rest[: max(0, RFH2_LENGTH - len(start))])[:RFH2_LENGTH]
        length -= _length_of_properties(header, length)
    if length > core.attribute("MAXMSGL"):
        raise MQError(mq.MQRC_MSG_TOO_BIG_FOR_Q_MGR, f"{length} bytes; ALTER QMGR MAXMSGL raises the limit")
    if length > queue.max_length:
        text = f"{length} bytes for MAXMSGL({queue.max_length}) of {queue.name}"
        raise MQError(mq.MQRC_MSG_TOO_BIG_FOR_Q, text)


def _length_of_properties(header: bytes, length: int) -> int:
    """Returns StrucLength of the MQRFH2 that `header` begins; 0 if it cannot be one, and what is called a header is
    data."""
    order: Literal["big", "little"] = "big" if header[4:8] == _VERSION_BIG_ENDIAN else "little"
    said = int.from_bytes(header[8:12], order)
    return said if RFH2_LENGTH <= said <= length else 0


def _data_options(feedback: int) -> tuple[int, int]:
    """Returns the report options that ask for 100 bytes of the data, and for all of it."""
    if feedback == mq.MQFB_COA:
        return mq.MQRO_COA_WITH_DATA, mq.MQRO_COA_WITH_FULL_DATA
    if feedback == mq.MQFB_COD:
        return mq.MQRO_COD_WITH_DATA, mq.MQRO_COD_WITH_FULL_DATA
    if feedback == mq.MQFB_EXPIRATION:
        return mq.MQRO_EXPIRATION_WITH_DATA, mq.MQRO_EXPIRATION_WITH_FULL_DATA
    return mq.MQRO_EXCEPTION_WITH_DATA, mq.MQRO_EXCEPTION_WITH_FULL_DATA


def _as_put(md: bytes, data: bytes) -> tuple[bytes, bytes]:
    """Returns a message of a transmission queue as it was put, because a report is about that."""
    try:
        arrived = situations.from_transmission(md, data)
    except HeaderError:
        return md, data
    return arrived.md, arrived.data


def split_time(now: float) -> tuple[bytes, bytes]:
    """Returns PutDate and PutTime for a time in seconds since the epoch."""
    whole = descriptor.date_and_time(int(now * 100))
    return whole[:8], whole[8:]

"""Report messages that the gateway has to make: exception, expiration, positive and negative action notification.

Confirmations of arrival and delivery are made by the queue manager. A report goes to ReplyToQ with the identifiers that
the Report field asks for (mqi-abi, behaviour: Reports).
"""

from __future__ import annotations

from typing import NamedTuple

from gateway.bridge.message import read_message
from gateway.errors import Refused
from gateway.mq import mqmd

REPORT = 4  # MQMT_REPORT
EXPIRATION, PAN, NAN = 258, 275, 276  # MQFB_EXPIRATION, MQFB_PAN, MQFB_NAN
_PASS_CORREL_ID, _PASS_MSG_ID, _PASS_DISCARD_AND_EXPIRY, _DISCARD = 0x40, 0x80, 0x4000, 0x8000000
_EXCEPTION, _EXPIRATION, _PAN, _NAN = 0x1000000, 0x200000, 1, 2
_FULL = {_EXCEPTION: 0x7000000, _EXPIRATION: 0xE00000}
_WITH = {_EXCEPTION: 0x3000000, _EXPIRATION: 0x600000}
EXPIRY_OF_EXPIRATION = 600
"""The Expiry of a report about an expired message, if its Expiry is passed on: a minute, as queue managers do."""
DATA_BYTES = 100
"""How many bytes of the data a report `with data` carries."""


class Report(NamedTuple):
    """A report, to be put in the unit of work of what it reports."""

    queue: str
    queue_manager: str
    persistent: bool
    priority: int
    head: bytes
    body: bytes


def exception(md: bytes, data: bytes, reason: int) -> Report | None:
    """The report that a message could not be delivered; None if the message does not ask for one."""
    return _report(md, data, _EXCEPTION, reason)


def expired(md: bytes, data: bytes) -> Report | None:
    """The report that a message expired while it waited for a device; None if it does not ask for one."""
    return _report(md, data, _EXPIRATION, EXPIRATION)


def positive(md: bytes, data: bytes) -> Report | None:
    """The notification that a device has accepted the message; None if it does not ask for one."""
    return _report(md, data, _PAN, PAN)


def negative(md: bytes, data: bytes) -> Report | None:
    """The notification that a device has refused the message; None if it does not ask for one."""
    return _report(md, data, _NAN, NAN)


def asks(md: bytes) -> bool:
    """Whether a message asks for a report that the gateway has to make."""
    options = mqmd.number(md, mqmd.AT_REPORT)
    return bool(options & (_EXCEPTION | _EXPIRATION | _PAN | _NAN)) and bool(mqmd.text(md, mqmd.REPLY_TO_Q))


def wants_exception(md: bytes) -> bool:
    """Whether a message asks for the report that it could not be delivered."""
    return bool(mqmd.number(md, mqmd.AT_REPORT) & _EXCEPTION) and bool(mqmd.text(md, mqmd.REPLY_TO_Q))


def concerns_failure(md: bytes) -> bool:
    """Whether a message says what is to be done if it cannot be delivered; hardly any does."""
    return bool(mqmd.number(md, mqmd.AT_REPORT) & (_EXCEPTION | _DISCARD))


def discards(md: bytes) -> bool:
    """Whether an undeliverable message is discarded (after its report) instead of dead-lettered."""
    return bool(mqmd.number(md, mqmd.AT_REPORT) & _DISCARD)


def _report(md: bytes, data: bytes, option: int, feedback: int) -> Report | None:
    options, queue = mqmd.number(md, mqmd.AT_REPORT), mqmd.text(md, mqmd.REPLY_TO_Q)
    if not options & option or not queue:
        return None
    body, described = _data(md, data, options, option)
    passed = options & _PASS_DISCARD_AND_EXPIRY
    left = EXPIRY_OF_EXPIRATION if option == _EXPIRATION else mqmd.number(md, mqmd.AT_EXPIRY)
    head = mqmd.build(
        report=options & _DISCARD if passed else 0,
        msg_type=REPORT,
        expiry=left if passed else -1,
        feedback=feedback,
        priority=mqmd.number(md, mqmd.AT_PRIORITY),
        persistence=mqmd.number(md, mqmd.AT_PERSISTENCE),
        msg_id=md[mqmd.MSG_ID] if options & _PASS_MSG_ID else bytes(24),
        correl_id=md[mqmd.CORREL_ID] if options & _PASS_CORREL_ID else md[mqmd.MSG_ID],
        user_identifier=mqmd.text(md, mqmd.USER_IDENTIFIER),
        put_appl_type=6,
        put_appl_name="mqgate",
    )
    head = head[: mqmd.DESCRIBED.start] + described + head[mqmd.DESCRIBED.stop :]
    manager = mqmd.text(md, mqmd.REPLY_TO_Q_MGR)
    priority = mqmd.number(md, mqmd.AT_PRIORITY)
    return Report(queue, manager, mqmd.number(md, mqmd.AT_PERSISTENCE) == 1, max(priority, 0), head, body)


def _data(md: bytes, data: bytes, options: int, option: int) -> tuple[bytes, bytes]:
    """The original data that a report carries, and Encoding, CodedCharSetId and Format for it."""
    if option in _FULL and options & _FULL[option] == _FULL[option]:
        return data, md[mqmd.DESCRIBED]
    if option in _WITH and options & _WITH[option] == _WITH[option]:
        return data[: _headers(md, data) + DATA_BYTES], md[mqmd.DESCRIBED]
    return b"", mqmd.DEFAULT[mqmd.DESCRIBED]


def _headers(md: bytes, data: bytes) -> int:
    """The length of the headers: `with data` counts the bytes of the application's data after them."""
    try:
        return read_message(md, data).body_at
    except Refused:
        return 0

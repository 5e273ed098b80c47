"""Message context: the fields of the descriptor that name the sender and the putting application, and who fills them
in.

The fourth of the five modifications a queue manager makes (identity, origin and user context). Pure functions over the
descriptor; whether a program may set or pass context is the queue manager's question.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gateway.mq import mqmd
from gateway.mq.constants import (
    MQPMO_NO_CONTEXT,
    MQPMO_PASS_ALL_CONTEXT,
    MQPMO_PASS_IDENTITY_CONTEXT,
    MQPMO_SET_ALL_CONTEXT,
    MQPMO_SET_IDENTITY_CONTEXT,
)
from gateway.mq.properties import Property

_IDENTITY = slice(mqmd.USER_IDENTIFIER.start, mqmd.APPL_IDENTITY_DATA.stop)
_ORIGIN = slice(mqmd.AT_PUT_APPL_TYPE, mqmd.APPL_ORIGIN_DATA.stop)
_NO_IDENTITY = mqmd.DEFAULT[_IDENTITY]
_NO_ORIGIN = mqmd.DEFAULT[_ORIGIN]


class Putter(NamedTuple):
    """Who puts, as the queue manager knows it; the time is GMT in MQ's form."""

    user: str
    application: str
    application_type: int
    date: str
    time: str
    accounting_token: bytes = b""


def applied(md: bytes, options: int, putter: Putter, passed: bytes = b"") -> bytes:
    """`md` with the context the MQPMO `options` ask for; `passed` is the descriptor of the message got before."""
    if options & MQPMO_SET_ALL_CONTEXT:
        return md
    if options & MQPMO_NO_CONTEXT:
        return with_identity(with_origin(md, _NO_ORIGIN), _NO_IDENTITY)
    if options & MQPMO_PASS_ALL_CONTEXT:
        return with_identity(with_origin(md, passed[_ORIGIN]), passed[_IDENTITY])
    md = with_origin(md, origin(putter))
    if options & MQPMO_SET_IDENTITY_CONTEXT:
        return md
    return with_identity(md, passed[_IDENTITY] if options & MQPMO_PASS_IDENTITY_CONTEXT else identity(putter))


def identity(putter: Putter) -> bytes:
    """UserIdentifier, AccountingToken and ApplIdentityData of a program that says nothing itself."""
    token = putter.accounting_token[:32].ljust(32, b"\0")
    return mqmd.build(user_identifier=putter.user, accounting_token=token)[_IDENTITY]


def origin(putter: Putter) -> bytes:
    """PutApplType to ApplOriginData of a message put now."""
    made = mqmd.build(
        put_appl_type=putter.application_type,
        put_appl_name=putter.application,
        put_date=putter.date,
        put_time=putter.time,
    )
    return made[_ORIGIN]


def with_identity(md: bytes, raw: bytes) -> bytes:
    """`md` with another identity context (76 bytes)."""
    return md[: _IDENTITY.start] + raw + md[_IDENTITY.stop :]


def with_origin(md: bytes, raw: bytes) -> bytes:
    """`md` with another origin context (52 bytes)."""
    return md[: _ORIGIN.start] + raw + md[_ORIGIN.stop :]


def user_context(properties: Iterable[Property]) -> list[Property]:
    """The properties that travel with passed context: those an application marked MQPD_USER_CONTEXT."""
    return [each for each in properties if each.context]

"""What JMS names stand for in a message: the folders that a JMS client writes, and where these say nothing the
descriptor, according to IBM's tables of JMS fields.

A JMS selector may ask for JMSMessageID = 'ID:414d51...', JMSDeliveryMode = 'PERSISTENT' or JMSTimestamp > 1700000000000
in any message, whether or not a JMS client has put it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from gateway.mq import mqmd
from gateway.mq.constants import MQMF_LAST_MSG_IN_GROUP, MQMF_MSG_IN_GROUP, MQPER_PERSISTENT
from gateway.mq.headers.rfh2_folder import Scalar

Properties = Mapping[str, Scalar]
NON_PERSISTENT, PERSISTENT = 1, 2
"""Values of javax.jms.DeliveryMode, which jms.Dlv holds."""
DELIVERY_MODES = {"NON_PERSISTENT": NON_PERSISTENT, "PERSISTENT": PERSISTENT}
"""The words that selectors use for them."""
_NO_ID = bytes(24)
_IN_GROUP = MQMF_MSG_IN_GROUP | MQMF_LAST_MSG_IN_GROUP


def _identifier(raw: bytes) -> str | None:
    return None if raw == _NO_ID else f"ID:{raw.hex()}"


def _delivery_mode(md: bytes) -> int:
    return PERSISTENT if mqmd.number(md, mqmd.AT_PERSISTENCE) == MQPER_PERSISTENT else NON_PERSISTENT


def _timestamp(md: bytes) -> int | None:
    """Returns PutDate and PutTime as milliseconds since 1970, UTC."""
    date, time = mqmd.text(md, mqmd.PUT_DATE), mqmd.text(md, mqmd.PUT_TIME)
    if not (len(date) == len(time) == 8 and date.isdigit() and time.isdigit()):
        return None
    try:
        when = datetime.strptime(f"{date}{time[:6]}", "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(when.timestamp()) * 1000 + int(time[6:]) * 10


def _grouped(md: bytes) -> bool:
    return bool(mqmd.number(md, mqmd.AT_MSG_FLAGS) & _IN_GROUP)


_FOLDERS = {
    "JMSCorrelationID": "jms.Cid",
    "JMSDeliveryMode": "jms.Dlv",
    "JMSDestination": "jms.Dst",
    "JMSExpiration": "jms.Exp",
    "JMSReplyTo": "jms.Rto",
    "JMSTimestamp": "jms.Tms",
    "JMSType": "mcd.Type",
    "JMSXGroupID": "jms.Gid",
    "JMSXGroupSeq": "jms.Seq",
}
_DESCRIPTOR: dict[str, Callable[[bytes], Scalar]] = {
    "JMSCorrelationID": lambda md: _identifier(md[mqmd.CORREL_ID]),
    "JMSDeliveryMode": _delivery_mode,
    "JMSMessageID": lambda md: _identifier(md[mqmd.MSG_ID]),
    "JMSPriority": lambda md: mqmd.number(md, mqmd.AT_PRIORITY),
    "JMSRedelivered": lambda md: mqmd.number(md, mqmd.AT_BACKOUT_COUNT) > 0,
    "JMSTimestamp": _timestamp,
    "JMSXAppID": lambda md: mqmd.text(md, mqmd.PUT_APPL_NAME),
    "JMSXDeliveryCount": lambda md: mqmd.number(md, mqmd.AT_BACKOUT_COUNT) + 1,
    "JMSXGroupID": lambda md: _identifier(md[mqmd.GROUP_ID]) if _grouped(md) else None,
    "JMSXGroupSeq": lambda md: mqmd.number(md, mqmd.AT_MSG_SEQ_NUMBER) if _grouped(md) else None,
    "JMSXUserID": lambda md: mqmd.text(md, mqmd.USER_IDENTIFIER),
}
_NUMBERS = {"JMSDeliveryMode", "JMSExpiration", "JMSTimestamp", "JMSXGroupSeq"}
"""Names whose values clients write without a type although they mean a number."""
IN_FOLDERS = frozenset(_FOLDERS)
"""Names that a property may give."""
NAMES = IN_FOLDERS | frozenset(_DESCRIPTOR)
"""Every name that is known here."""


def value(name: str, md: bytes, properties: Properties) -> Scalar:
    """Returns the value of a JMS name for a message with these properties; None if it has none."""
    found = properties.get(_FOLDERS.get(name, ""))
    if found is None:
        read = _DESCRIPTOR.get(name)
        return None if read is None else read(md)
    if name in _NUMBERS and isinstance(found, str) and found.removeprefix("-").isdecimal() and len(found) <= 20:
        return int(found)
    return found

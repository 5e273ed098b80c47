"""Names of message properties: what they may be, their synonyms, and which folder of an MQRFH2 holds them.

`usr.x` and `x` are one property, which is called `x` here. Names are case-sensitive.
"""

from __future__ import annotations

from gateway.errors import MQError
from gateway.mq.constants import MQRC_PROPERTY_NAME_ERROR, MQRC_PROPERTY_NAME_LENGTH_ERR

MAX_NAME_LENGTH = 4095
GROUPED_FOLDERS = frozenset({"mq_usr", "jms", "mcd", "sib", "sib_context", "sib_usr"})
"""Defined property folders that may hold groups (IBM: defined property folder names, without usr)."""
UNGROUPED_FOLDERS = frozenset({"usr", "ibm", "mq", "mqema", "mqext", "mqps", "mq_svc", "mqtt"})
"""Property folders whose elements may not nest."""
PROPERTY_FOLDERS = GROUPED_FOLDERS | UNGROUPED_FOLDERS
"""Folders that hold properties without saying content='properties'."""
COMPATIBLE_FOLDERS = frozenset({"mcd", "jms", "usr", "mqext"})
"""One property in these makes PROPCTL(COMPAT) give a getter the MQRFH2."""
_KEYWORDS = frozenset({"NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"})
SYNONYMS = {
    "JMSCorrelationID": "jms.Cid",
    "JMSDeliveryMode": "jms.Dlv",
    "JMSDestination": "jms.Dst",
    "JMSExpiration": "jms.Exp",
    "JMSMessageID": "Root.MQMD.MsgId",
    "JMSPriority": "Root.MQMD.Priority",
    "JMSRedelivered": "Root.MQMD.BackoutCount",
    "JMSReplyTo": "jms.Rto",
    "JMSTimestamp": "jms.Tms",
    "JMSType": "mcd.Type",
    "JMSXAppID": "Root.MQMD.PutApplName",
    "JMSXDeliveryCount": "Root.MQMD.BackoutCount",
    "JMSXGroupID": "jms.Gid",
    "JMSXGroupSeq": "jms.Seq",
    "JMSXUserID": "Root.MQMD.UserIdentifier",
    "MQIsRetained": "mqps.Ret",
    "MQPubLevel": "mqps.Pbl",
    "MQPubOptions": "mqps.Pub",
    "MQSubUserData": "mqps.Sud",
    "MQTopicString": "mqps.Top",
}
DESCRIPTOR = "Root.MQMD."


def resolve(name: str) -> str:
    """Returns the name under which a property is kept: with synonyms replaced and without `usr.`. The name is
    checked."""
    found = SYNONYMS.get(name) or (name.removeprefix("usr."))
    if found == name and not name.startswith(DESCRIPTOR):
        check(name)
    elif name.startswith("usr."):
        _check_part(name, "usr", found.split("."))
    return found


def check(name: str) -> None:
    """Refuse a name that MQSETMP would refuse: 2513 for its length, 2442 for anything else."""
    if len(name) > MAX_NAME_LENGTH:
        raise MQError(MQRC_PROPERTY_NAME_LENGTH_ERR, f"a property name has at most {MAX_NAME_LENGTH} characters")
    folder, parts = split(name)
    _check_part(name, folder, parts)
    if folder.lower().startswith("mq") and folder not in GROUPED_FOLDERS and len(parts) > 1:
        raise _wrong(name, "names beginning `mq` may have only one `.`, except in mq_usr")


def _check_part(name: str, folder: str, parts: list[str]) -> None:
    if folder == "usr" and (parts[0].startswith("JMS") and name not in SYNONYMS):
        raise _wrong(name, "names beginning `JMS` are reserved")
    if folder == "usr" and len(parts) > 1:
        raise _wrong(name, "a property of the usr folder has no `.` in its name")
    for part in (folder, *parts):
        if not is_identifier(part):
            raise _wrong(name, f"{part!r} is not an identifier: begin with a letter or `_`, then letters, digits, `_`")
    if parts[-1].upper() in _KEYWORDS or name.upper() in _KEYWORDS:
        raise _wrong(name, "the word is reserved in selectors")
    if folder in {"Root", "Body"}:
        raise _wrong(name, f"`{folder}` is reserved; fields of the descriptor are {DESCRIPTOR}Field")


def _wrong(name: str, why: str) -> MQError:
    return MQError(MQRC_PROPERTY_NAME_ERROR, f"property name {name[:80]!r}: {why}")


def is_identifier(part: str) -> bool:
    """Whether a part of a name is a Java identifier that can also stand in a tag."""
    return part.replace("$", "_").isidentifier()


def split(name: str) -> tuple[str, list[str]]:
    """Returns folder and path of a name: `x` gives usr, [x]; `mq_usr.a.b` gives mq_usr, [a, b]."""
    folder, dot, rest = name.partition(".")
    return (folder, rest.split(".")) if dot else ("usr", [name])

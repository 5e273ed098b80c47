"""The JMS view of a message: what a JMS application sees of ours, and messages it takes for JMS ones.

Follows the published mapping: headers from the `mcd`, `jms` and `mqps` folders where they are, else from the
descriptor; user properties are the `usr` folder. Times are milliseconds since 1970.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote

from gateway.errors import HeaderError, MQError
from gateway.mq import chain, mqmd
from gateway.mq.ccsid import codec_of
from gateway.mq.constants import (
    MQFMT_STRING,
    MQMF_LAST_MSG_IN_GROUP,
    MQMF_MSG_IN_GROUP,
    MQPER_PERSISTENT,
    MQRC_RFH_FORMAT_ERROR,
)
from gateway.mq.header import Described
from gateway.mq.properties import Property, properties_of, with_properties
from gateway.mq.rfh2_folder import Element, Scalar, element, parse_folder, render, written

KINDS = ("bytes", "text", "map", "stream", "object", "none")
_REPORTS = {
    "Exception": 0x7000000, "Expiration": 0xE00000, "COA": 0x700, "COD": 0x3800, "PAN": 1, "NAN": 2,
    "Pass_Msg_ID": 128, "Pass_Correl_ID": 64, "Discard_Msg": 0x8000000,
}  # fmt: skip

Body = bytes | str | dict[str, Scalar] | list[Scalar] | None


@dataclass(slots=True)
class JmsMessage:
    """One message as JMS has it: `headers` are the JMSxxx header fields, `properties` all others."""

    kind: str
    body: Body
    headers: dict[str, Scalar]
    properties: dict[str, Scalar]


def view(md: bytes, data: bytes) -> JmsMessage:
    """What a JMS application receives."""
    values = {each.name: each.value for each in properties_of(md, data)}
    fields = mqmd.unpack(md)
    walked = chain.walk(md, data)
    kind = _kind(values.get("mcd.Msd"), walked.body.format)
    headers = _headers(fields, values)
    properties = {name: value for name, value in values.items() if "." not in name}
    return JmsMessage(kind, _body(kind, walked), headers, properties | _provided(fields, values, walked.body))


def _kind(said: Scalar, format_name: bytes) -> str:
    if isinstance(said, str) and said.removeprefix("jms_") in KINDS:
        return said.removeprefix("jms_")
    return "text" if format_name == MQFMT_STRING else "bytes"


def _body(kind: str, walked: chain.Chain) -> Body:
    if kind == "none":
        return None
    if kind in {"bytes", "object"}:
        return walked.payload
    text = walked.payload.decode(codec_of(walked.body.ccsid, walked.body.encoding) or "utf-8", "replace")
    if kind == "text":
        return text
    try:
        elements = parse_folder(text).children
        if kind == "map":
            return {each.attributes.get("name", each.name): each.value for each in elements}
        return [each.value for each in elements]
    except HeaderError as broken:
        raise MQError(MQRC_RFH_FORMAT_ERROR, f"not the body of a JMS {kind} message: {broken}") from broken


def _headers(fields: mqmd.Mqmd, values: Mapping[str, Scalar]) -> dict[str, Scalar]:
    expiry = _whole(values.get("jms.Exp"), 0)
    delivery = _whole(values.get("jms.Dlv"), 2 if fields.persistence == MQPER_PERSISTENT else 1)
    return {
        "JMSMessageID": f"ID:{fields.msg_id.hex()}",
        "JMSCorrelationID": values.get("jms.Cid")
        or (f"ID:{fields.correl_id.hex()}" if any(fields.correl_id) else None),
        "JMSDestination": values.get("jms.Dst") or _topic(values.get("mqps.Top")),
        "JMSReplyTo": values.get("jms.Rto") or queue_uri(fields.reply_to_q, fields.reply_to_q_mgr) or None,
        "JMSDeliveryMode": delivery,
        "JMSPriority": fields.priority,
        "JMSExpiration": expiry,
        "JMSTimestamp": _whole(values.get("jms.Tms"), put_milliseconds(fields.put_date, fields.put_time)),
        "JMSType": _type(values),
        "JMSRedelivered": fields.backout_count > 0,
    }


def _whole(value: Scalar, otherwise: int) -> int:
    if isinstance(value, int):
        return value
    try:
        return int(value) if isinstance(value, str) else otherwise
    except ValueError:
        return otherwise


def _topic(topic: Scalar) -> str | None:
    return f"topic://{topic}" if isinstance(topic, str) and topic else None


def _type(values: Mapping[str, Scalar]) -> Scalar:
    if not (values.get("mcd.Set") or values.get("mcd.Fmt")):
        return values.get("mcd.Type")
    domain, kind, group, form = (str(values.get(f"mcd.{name}") or "") for name in ("Msd", "Type", "Set", "Fmt"))
    return f"mcd://{domain}/{group}/{kind}?format={form}"


def put_milliseconds(date: str, time: str) -> int:
    """PutDate and PutTime (GMT, hundredths of a second) as JMS counts time; 0 when they say nothing."""
    digits = date + time
    if len(date) != 8 or len(time) != 8 or not (digits.isascii() and digits.isdigit()):
        return 0
    day = int(date[:4]), int(date[4:6]), int(date[6:])
    if not (day[0] and 1 <= day[1] <= 12 and 1 <= day[2] <= calendar.monthrange(day[0], day[1])[1]):
        return 0
    seconds = calendar.timegm((*day, int(time[:2]), int(time[2:4]), int(time[4:6])))
    return seconds * 1000 + int(time[6:]) * 10


def _provided(fields: mqmd.Mqmd, values: Mapping[str, Scalar], body: Described) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {
        "JMSXUserID": fields.user_identifier,
        "JMSXAppID": fields.put_appl_name,
        "JMSXDeliveryCount": fields.backout_count + 1,
        "JMS_IBM_Format": body.format.decode("ascii", "replace"),
        "JMS_IBM_MsgType": fields.msg_type,
        "JMS_IBM_PutApplType": fields.put_appl_type,
        "JMS_IBM_Encoding": body.encoding,
        "JMS_IBM_Character_Set": "UTF-8" if body.ccsid == 1208 else str(body.ccsid),
        "JMS_IBM_PutDate": fields.put_date,
        "JMS_IBM_PutTime": fields.put_time,
    }
    if fields.feedback:
        found["JMS_IBM_Feedback"] = fields.feedback
    for name, mask in _REPORTS.items():
        if fields.report & mask:
            found[f"JMS_IBM_Report_{name}"] = fields.report & mask
    return found | _group(fields, values)


def _group(fields: mqmd.Mqmd, values: Mapping[str, Scalar]) -> dict[str, Scalar]:
    if values.get("jms.Gid"):
        return {"JMSXGroupID": values["jms.Gid"], "JMSXGroupSeq": _whole(values.get("jms.Seq"), 1)}
    if not fields.msg_flags & (MQMF_MSG_IN_GROUP | MQMF_LAST_MSG_IN_GROUP):
        return {}
    last = bool(fields.msg_flags & MQMF_LAST_MSG_IN_GROUP)
    group: dict[str, Scalar] = {"JMSXGroupID": f"ID:{fields.group_id.hex()}", "JMSXGroupSeq": fields.msg_seq_number}
    return group | {"JMS_IBM_Last_Msg_In_Group": last}


def queue_uri(queue: str, queue_manager: str = "") -> str:
    """`queue://QM/Q`, as jms.Dst and jms.Rto hold it; nothing for no queue."""
    return f"queue://{quote(queue_manager, safe='._%/')}/{quote(queue, safe='._%/')}" if queue else ""


def queue_of(uri: str) -> tuple[str, str] | None:
    """Queue and queue manager of a `queue://` URI; None for a topic or anything else."""
    if not uri.startswith("queue://"):
        return None
    manager, slash, queue = uri[8:].partition("?")[0].partition("/")
    return (unquote(queue), unquote(manager)) if slash and queue else None


def folders(kind: str, **headers: str | int) -> list[Property]:
    """The mcd and jms folders of a message JMS applications take as `kind`: `folders("bytes", Dst="queue:///Q")`."""
    if kind not in KINDS:
        raise MQError(MQRC_RFH_FORMAT_ERROR, f"{kind!r} is not one of {', '.join(KINDS)}")
    # IBM's own programs write the numbers of the jms folder without a type.
    return [
        Property("mcd.Msd", f"jms_{kind}"),
        *(Property(f"jms.{name}", str(value)) for name, value in headers.items()),
    ]


def build(
    md: bytes, kind: str, body: Body, properties: Iterable[Property] = (), **headers: str | int
) -> tuple[bytes, bytes]:
    """A message that JMS applications receive as `kind`; text is UTF-8. `md` says everything else."""
    payload = _payload(body)
    text = kind in {"text", "map", "stream"}
    described = mqmd.with_described(md, 546, 1208, MQFMT_STRING if text else b"        ")
    return with_properties(described, payload, [*folders(kind, **headers), *properties])


def _payload(body: Body) -> bytes:
    if body is None:
        return b""
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, dict):
        inside = "".join(_named(name, value) for name, value in body.items())
        return f"<map>{inside}</map>".encode()
    return f"<stream>{''.join(element('elt', value) for value in body)}</stream>".encode()


def _named(name: str, value: Scalar) -> str:
    attributes, text = written(value)
    return render(Element("elt", {"name": name, **attributes}, text))

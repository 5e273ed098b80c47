"""A slow, plain second way from a publication to an MQ message: the reference page read literally, nothing kept.

Rules are the plain values of a mapping file. What the language refuses is not its business: it is asked about messages
that were made.
"""

from __future__ import annotations

import hashlib
import json
import struct
from datetime import UTC, datetime

from gateway.bridge.mqtt5 import to_properties
from gateway.bridge.request import Request
from gateway.mq import mqmd

REPORTS = {
    "coa": 0x100,
    "cod": 0x800,
    "exception": 0x1000000,
    "pan": 1,
    "nan": 2,
    "pass_msg_id": 0x80,
    "discard": 0x8000000,
}


def message(rule, origin, properties, packet_id, payload, now):
    """(queue, descriptor, data) of the message."""
    values = slots(origin, properties, packet_id, payload, now)
    queue = fill(rule["queue"], values, str.upper)
    usr = [(name, evaluated(template, values)) for name, template in rule.get("properties", {}).items()]
    usr = [(name, value) for name, value in usr if value is not None]
    users = properties.get(0x26, []) if rule.get("user_properties", True) else []
    carried, order = to_properties(users, list(rule.get("properties", {})))
    form, ccsid = body_format(rule, properties)
    folders = texts(rule, origin, properties, [*usr, *carried], order, form, packet_id)
    described = (546, 1208, "MQHRF2") if folders else (546, ccsid, form)
    md = descriptor(rule, origin, properties, values, described)
    return queue, md, rfh2(folders, form, ccsid) + payload if folders else payload


def slots(origin, properties, packet_id, payload, now):
    first, second, *rest = origin.topic.split("/")
    found = {"x": second, "y": "/".join(rest), "client": origin.client_id, "user": origin.username or None}
    found |= {"topic": origin.topic, "qos": origin.qos, "packet_id": packet_id, "first": first}
    found["received_at"] = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    for name, value in reversed(properties.get(0x26, [])):
        found[f"property.{name}"] = value
    document = json.loads(payload)
    return found | {f"json.{name}": value for name, value in document.items()}


def fill(template, values, change=str):
    for name, value in values.items():
        template = template.replace("{" + name + "}", change(text(value))) if value is not None else template
    return template


def text(value):
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def evaluated(template, values):
    """One placeholder alone keeps its type and may be absent."""
    if template.startswith("{") and template.count("{") == 1 and template.endswith("}"):
        name, _, kind = template[1:-1].partition(":")
        value = values.get(name)
        return value if value is None or not kind else {"int": int, "string": text}[kind](value)
    return fill(template, values)


def body_format(rule, properties):
    payload = rule.get("payload", {})
    form = payload.get("format", "auto")
    if form == "auto":
        form = "string" if properties.get(0x01) == 1 else "bytes"
    return {"string": "MQSTR", "json": "MQSTR", "bytes": ""}.get(form, form), payload.get("ccsid", 1208)


def texts(rule, origin, properties, usr, order, form, packet_id):
    wanted, found = rule.get("headers", ["mcd", "mqps", "mqtt"]), []
    if "mcd" in wanted:
        found.append(f"<mcd><Msd>jms_{'text' if form == 'MQSTR' else 'bytes'}</Msd></mcd>")
    if usr:
        found.append("<usr>" + "".join(element(name, value) for name, value in usr) + "</usr>")
    if "mqps" in wanted:
        retained = element("Ret", True) if origin.retain else ""
        found.append(f"<mqps>{element('Top', origin.topic)}{retained}</mqps>")
    if "mqtt" in wanted:
        found.append(mqtt(origin, properties, order, packet_id))
    return found


def mqtt(origin, properties, order, packet_id):
    pairs = [("clientId", origin.client_id), ("qos", origin.qos), ("userName", origin.username)]
    pairs += [("payloadFormat", properties.get(0x01)), ("contentType", properties.get(0x03))]
    pairs += [
        ("responseTopic", properties.get(0x08)),
        ("correlationData", properties.get(0x09)),
        ("userProperties", order),
    ]
    inside = "".join(element(name, value) for name, value in pairs if value or name in ("clientId", "qos"))
    begin = f"<mqtt>{inside}<msgId dt='i4'>"
    room = len(begin.encode()) + len("65535</msgId></mqtt>")
    whole = f"{begin}{packet_id}</msgId></mqtt>"
    return whole + " " * (room + -room % 4 - len(whole.encode()))  # as long as for the highest packet identifier


def element(name, value):
    if isinstance(value, bool):
        return f"<{name} dt='boolean'>{int(value)}</{name}>"
    if isinstance(value, int):
        return f"<{name} dt='{'i4' if -(2**31) <= value < 2**31 else 'i8'}'>{value}</{name}>"
    if isinstance(value, float):
        return f"<{name} dt='r8'>{value!r}</{name}>"
    if isinstance(value, bytes):
        return f"<{name} dt='bin.hex'>{value.hex().upper()}</{name}>"
    for plain, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&apos;")):
        value = value.replace(plain, entity)
    return f"<{name}>{value}</{name}>"


def rfh2(folders, form, ccsid):
    pairs = b""
    for one in folders:
        raw = one.encode()
        raw += b" " * (-len(raw) % 4)
        pairs += struct.pack("<i", len(raw)) + raw
    return struct.pack("<4siiii8sii", b"RFH ", 2, 36 + len(pairs), 546, ccsid, form.ljust(8).encode(), 0, 1208) + pairs


def descriptor(rule, origin, properties, values, described):
    spec = rule.get("descriptor", {})
    persistence = spec.get("persistence", "from_qos")
    data = properties.get(0x09, b"")
    correlation = (
        fill(spec["correlation"], values).encode()[:24] if "correlation" in spec else data if len(data) <= 24 else b""
    )
    group = (
        hashlib.blake2b(fill(rule["group_by"], values).encode(), digest_size=24).digest() if "group_by" in rule else b""
    )
    token = b""
    if "reply_to" in spec and properties.get(0x08) and spec.get("message_type") != "datagram":
        token = Request(origin.client_id, properties[0x08], data, 0).token
        correlation = correlation if "correlation" in spec else token
    report = 0
    for name in spec.get("report", []):
        report |= REPORTS[name]
    return mqmd.build(
        report=report,
        msg_type=1 if token else 8,
        msg_id=token,
        expiry=expiry(spec.get("expiry", "from_publish"), properties.get(0x02)),
        encoding=described[0],
        coded_char_set_id=described[1],
        format=described[2],
        priority=spec.get("priority", 0),
        persistence={"from_qos": int(origin.qos > 0), "persistent": 1, "not_persistent": 0}[persistence],
        correl_id=correlation,
        reply_to_q=spec.get("reply_to", {}).get("queue", ""),
        user_identifier=fill(spec.get("user", "{user}" if origin.username else "{client}"), values),
        appl_identity_data=fill(spec.get("application_data", ""), values),
        put_appl_type=6,
        put_appl_name="mqgate",
        group_id=group,
        msg_flags=24 if group else 0,
    )


def expiry(rule, asked):
    if rule == "never":
        return -1
    limits = ([asked] if asked is not None else []) + ([int(rule.removesuffix("s"))] if rule.endswith("s") else [])
    return min(max(min(limits) * 10, 1), 999_999_999) if limits else -1

"""Messages against the slow twin in oracle_bridge.py: any rule, any publication, every byte."""

from __future__ import annotations

import json
from contextlib import suppress

from bridge_rules import DOCUMENTS, ORIGINS, PROPERTIES, REPORTS, RULES
from hypothesis import given
from hypothesis import strategies as st
from oracle_bridge import message

from gateway.bridge.inbound import plan
from gateway.bridge.mqtt5 import MESSAGE_EXPIRY, USER_PROPERTY
from gateway.bridge.payload import Body
from gateway.errors import Refused
from gateway.routing.table import compile_mappings
from gateway.rules.parse import parse_mappings


@given(RULES, REPORTS, ORIGINS, PROPERTIES, DOCUMENTS, st.integers(0, 65535), st.floats(0, 4e9))
def test_every_byte_is_what_the_reference_says(rule, reports, origin, properties, document, packet_id, now):
    if reports and "reply_to" in rule.get("descriptor", {}):
        rule = {**rule, "descriptor": {**rule["descriptor"], "report": reports}}
    if rule["queue"].startswith("{"):
        rule = {**rule, "allowed_queues": ["*"]}
    now = round(now, 3)
    payload = json.dumps(document, ensure_ascii=False).encode()
    table = compile_mappings(parse_mappings([("m.yaml", json.dumps({"to_mq": [rule]}))]))
    expected = message(rule, origin, properties, packet_id, payload, now)
    [prepared] = plan(table, origin, properties).prepared
    with suppress(Refused):
        assert parts(prepared.build(packet_id, Body(payload), now)) == expected
    varying = properties.keys() & {USER_PROPERTY, MESSAGE_EXPIRY}
    base = plan(table, origin, {key: value for key, value in properties.items() if key not in varying})
    users = [(name.encode(), value.encode()) for name, value in properties.get(USER_PROPERTY, [])]
    with suppress(Refused):
        for prepared in base.prepared:
            built = prepared.build_with(packet_id, Body(payload), now, users, properties.get(MESSAGE_EXPIRY))
            assert built is None or parts(built) == expected


def parts(built):
    return built.queue, built.head[:364], built.head[364:] + built.body

"""Every kind of destination template against hostile values: what comes out is a name that was meant, or a refusal."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.bridge import outbound
from gateway.bridge.inbound import Origin, plan
from gateway.bridge.payload import Body
from gateway.errors import ConfigurationError, Refused
from gateway.mq import mqmd
from gateway.mq.headers import rfh2
from gateway.mq.headers.rfh2_folder import folder
from gateway.mqtt.topics import name_error
from gateway.routing.table import compile_mappings
from gateway.rules.parse import parse_mappings

HOSTILE = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60),
    st.sampled_from([
        "", ".", "..", "SYSTEM", "SYSTEM.ADMIN.COMMAND.QUEUE", "MQGATE.OUT", "AMQ.X", "%", "a.b", "A" * 60, "'", "*",
        "+", "#", "a/b", "a/#", "$SYS/x", "$share/g/t", "topic://x", "{x}", "Ω", "ı", "ß", "ﬁ", "\u202e", "\x7f",
        "a\nb", "A B",
    ]),
)  # fmt: skip
NAME = r"[A-Z0-9_%]+"


def rules(text: str):
    return compile_mappings(parse_mappings([("m.yaml", f"version: 1\n{text}\n")]))


INBOUND = {
    "queue: 'T.{a}'": (rf"T\.{NAME}", "queue"),
    "queue: 'T.{a}.{b}'": (rf"T\.{NAME}\.{NAME}", "queue"),
    "queue: 'T.{property.p}'": (rf"T\.{NAME}", "queue"),
    "queue: 'T.{json.j}'": (rf"T\.{NAME}", "queue"),
    "queue: 'T.{client}'": (rf"T\.{NAME}", "queue"),
    "queue: 'T.{user}'": (rf"T\.{NAME}", "queue"),
    "queue: '{a}', allowed_queues: ['T.*', 'EXACT']": (r"T\.[A-Z0-9./_%]*|EXACT", "queue"),
    "queue: R.Q, queue_manager: 'QM{a}'": (rf"QM{NAME}", "queue_manager"),
    "queue: R.Q, queue_manager: 'QM{property.p}'": (rf"QM{NAME}", "queue_manager"),
    "mq_topic: 'Plants/{a}'": (r"Plants/[^+#\0]*", "mq_topic"),
    "mq_topic: 'Plants/{property.p}/{json.j}'": (r"Plants/[^+#\0]*", "mq_topic"),
}


@pytest.mark.parametrize("rule", INBOUND)
@given(value=HOSTILE, other=HOSTILE)
def test_what_devices_say_names_only_what_was_meant(rule: str, value: str, other: str) -> None:
    pattern, field = INBOUND[rule]
    table = rules(f"to_mq: [{{name: r, topic: 'x/{{a}}/{{b}}', {rule}}}]")
    levels = [re.sub(r"[/+#]", "_", text) for text in (value, other)]
    payload = ('{"j": ' + f'"{other.encode("unicode_escape").decode()}"' + "}").encode()
    origin = Origin(value or "c", other, "/".join(["x", *levels]), 1)
    for prepared in plan(table, origin, {0x26: [("p", value)]}).settle(Body(payload)):
        try:
            built = prepared.build(1, Body(payload), 0.0)
        except Refused:
            continue
        assert re.fullmatch(pattern, getattr(built, field), re.DOTALL), getattr(built, field)
        assert len(built.queue) <= 48 or built.mq_topic
        assert len(built.queue_manager) <= 48


OUTBOUND = {
    "topic: 'd/{usr.v}/x'": r"d/[^/+#\0]*/x",
    "topic: 'd/{usr.v:asis}'": r"d/[^+#\0]*",
    "topic: 'd/{json.v}'": r"d/[^/+#\0]*",
    "topic: 'd/{md.CorrelIdText}'": r"d/[^/+#\0]*",
    "topic: '{mqps.Top}'": r"[^+#\0]+",
    "topic: x, client: '{usr.v}'": r"x",
    "topic: x, response_topic: 'r/{usr.v}'": r"x",
}


@pytest.mark.parametrize("rule", OUTBOUND)
@given(value=HOSTILE)
def test_what_applications_say_makes_only_topics_that_were_meant(rule: str, value: str) -> None:
    [made] = rules(f"to_mqtt: [{{name: r, queue: Q, {rule}}}]").outbound
    printable = re.sub(r"[^\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", value)
    header = rfh2.build(
        [folder("usr", [("v", printable)]), folder("mqps", [("Top", printable)])],
        encoding=546, coded_char_set_id=1208, format_name=b"MQSTR   ",
    )  # fmt: skip
    md = mqmd.with_described(
        mqmd.build(correl_id=value.encode()[:24].ljust(24, b"\0"), msg_type=1), 546, 1208, b"MQHRF2  "
    )
    body = ('{"v": ' + f'"{value.encode("unicode_escape").decode()}"' + "}").encode()
    try:
        found = outbound.publication(made, md, header + body)
    except Refused:
        return
    assert re.fullmatch(OUTBOUND[rule], found.topic, re.DOTALL)
    assert not name_error(found.topic)
    assert not found.topic.startswith("$")
    response = found.properties.get(0x08)
    assert response is None or not name_error(str(response))


@pytest.mark.parametrize("queue", ["SYSTEM.{a}", "MQGATE.{a}", "AMQ.{a}", "{a}", "T {a}", "T.{a}é"])
def test_a_template_that_could_name_a_system_queue_is_no_rule(queue: str) -> None:
    with pytest.raises(ConfigurationError, match=r"allowed_queues|MQ"):
        rules(f"to_mq: [{{name: r, topic: 'x/{{a}}', queue: '{queue}'}}]")

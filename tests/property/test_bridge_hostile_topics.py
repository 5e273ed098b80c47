"""For every template of the shipped mappings: whatever a device publishes, only queues that were meant are reached."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.bridge.inbound import Origin, plan
from gateway.bridge.payload import Body
from gateway.errors import Refused
from gateway.routing.table import compile_mappings
from gateway.rules.parse import load_mappings

LOADED = {path.name: load_mappings([str(path)]) for path in sorted(Path("mappings").glob("*.yaml"))}
RULES = [(name, rule) for name, mappings in LOADED.items() for rule in mappings.to_mq]
LEVELS = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\0+#/"), max_size=30),
    st.sampled_from(
        [
            "",
            ".",
            "..",
            "SYSTEM",
            "SYSTEM.ADMIN.COMMAND.QUEUE",
            "%",
            "%s",
            "a.b",
            "a" * 60,
            "lima",
            "'",
            "*",
            "{x}",
            "Ω",
        ]
    ),
    st.sampled_from(["${jndi:x}", "a\nb", "\x7f", "\u202e", "COMMANDS", "MQGATE.DEFAULT", "\U0001f600", "ﬁ", "ı", "ß"]),
)


def meant(rule):
    """What the author of a rule meant: the fixed text, and one component of letters and digits for each placeholder."""
    pieces = [re.escape(part) if isinstance(part, str) else r"[A-Z0-9_%]+" for part in rule.queue.parts]
    return re.compile("".join(pieces))


def published(rule):
    """An MQ topic that was meant: the fixed text in its place; a level of a device may be any text."""
    pieces = [re.escape(part) if isinstance(part, str) else ".*" for part in rule.mq_topic.parts]
    return re.compile("".join(pieces), re.DOTALL)


@pytest.mark.parametrize(("name", "rule"), RULES, ids=[f"{name}:{rule.name}" for name, rule in RULES])
@given(data=st.data())
def test_no_topic_reaches_a_queue_that_was_not_meant(name, rule, data):
    levels = [data.draw(LEVELS) if level in ("+", "#") else level for level in rule.levels]
    if rule.levels[-1] == "#":
        levels += data.draw(st.lists(LEVELS, max_size=3))
    topic = "/".join(levels) or "x"
    table = compile_mappings(LOADED[name])
    for payload in (b"", b'{"kind": "stop", "at": 1, "value": 2}'):
        for prepared in plan(table, Origin("dev", "", topic, 1), {}).settle(Body(payload)):
            try:
                built = prepared.build(1, Body(payload), 0.0)
            except Refused:
                continue
            if built.mq_topic:
                assert not set("+#\0") & set(built.mq_topic)
                assert published(prepared.rule).fullmatch(built.mq_topic)
            else:
                assert meant(prepared.rule).fullmatch(built.queue)
                assert len(built.queue) <= 48

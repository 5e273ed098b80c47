"""gateway.config.examine: what is found at once is what would otherwise be found one after the other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.config.examine import examine
from gateway.config.model import Settings
from gateway.config.source import read_yaml

WRONG = [
    "mqtt: {max_packet: 5XB}",
    "limits: {bytes_per_second: -1}",
    "listeners: [{name: a, port: 1}, {name: a, port: 2}, {name: b, port: 2}]",
    "admin: {bind: 0.0.0.0}",
    "events: {queue: Q, mq_topic: t}",
    "security: {methods: [ldap]}",
    "queue_manager: {embedded: {name: A}, ibm: {name: B}, buffer: {}}",
    "log: {level: loud, format: none}",
    "tracing: {share: 2}",
    "process: {nmae: x}",
    "mappings: {a: b}",
]
"""Each by itself, in a section of its own."""


def found(lines: list[str]) -> list[tuple[str, str]]:
    document = read_yaml("settings.yaml", "\n".join(lines))
    assert not document.findings
    whole = document.value
    settings, findings = examine(document, Settings)
    assert settings is not None
    assert document.value is whole
    assert [one.line for one in findings] == sorted(one.line for one in findings)
    return [(lines[one.line - 1], one.what) for one in findings]


@given(st.lists(st.sampled_from(WRONG), unique=True, min_size=1))
def test_all_at_once_is_each_by_itself(lines: list[str]) -> None:
    assert sorted(found(lines)) == sorted(one for line in lines for one in found([line]))


def test_what_is_right_is_found_right() -> None:
    settings, findings = examine(read_yaml("settings.yaml", "mqtt: {max_queued: 7}"), Settings)
    assert settings is not None
    assert (settings.mqtt.max_queued, findings) == (7, [])
    assert examine(read_yaml("settings.yaml", "5"), Settings)[0] is None

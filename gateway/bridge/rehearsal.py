"""Runs the tests that are next to the rules: publishes or puts one message, and compares the result."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import TypeVar

from gateway.bridge import outbound
from gateway.bridge.explain import Would, explain, reason_name
from gateway.bridge.inbound import Origin
from gateway.bridge.mqtt5 import (
    CONTENT_TYPE,
    CORRELATION_DATA,
    MESSAGE_EXPIRY,
    RESPONSE_TOPIC,
    USER_PROPERTY,
    user_properties,
)
from gateway.config.counting import counted
from gateway.errors import Finding, HeaderError, Refused
from gateway.mq import mqmd
from gateway.mq.headers import rfh2, xqh
from gateway.mq.headers.rfh2_folder import PropertyValue, folder
from gateway.mqtt.packets import Properties
from gateway.mqtt.topics import name_error
from gateway.ports.spread import Spread, names_of
from gateway.routing.table import Table, compile_mappings
from gateway.rules.mappings import Mappings, PlacedTest
from gateway.rules.trials import ExpectedPublication, ExpectedPut, QueueMessage, Test
from gateway.rules.trials import Publication as Published

TOPIC = "topic://"
NOW = 1_767_225_600.0
"""The time at which tests run: 2026-01-01 00:00:00 UTC."""


def run_tests(mappings: Mappings) -> list[Finding]:
    """Run all tests; returns one finding per difference, and none if every test passes."""
    table = compile_mappings(mappings)
    findings = []
    for placed in mappings.tests:
        findings += [_finding(placed, text) for text in _differences(table, mappings, placed.test)]
    return findings


def _finding(placed: PlacedTest, text: str) -> Finding:
    name = f"test `{placed.test.name}`" if placed.test.name else "test"
    return Finding(placed.file, placed.line, placed.column, f"{name} fails: {text}", "correct the rule or the test")


def _differences(table: Table, mappings: Mappings, test: Test) -> Iterator[str]:
    if test.publish is not None:
        wrong = name_error(test.publish.topic)
        if wrong:
            yield f"its topic is not valid: {wrong}"
            return
        yield from _compared(_puts(table, test.publish), test, _put_difference)
    elif test.put is not None:
        try:
            found = list(publications(mappings, test.put))
        except HeaderError as error:
            yield f"its message is not valid: {error}"
            return
        yield from _compared(found, test, _publication_difference)


T = TypeVar("T")
Expected = ExpectedPut | ExpectedPublication


def _compared(found: list[T], test: Test, difference: Callable[[Expected, T], Iterator[str]]) -> Iterator[str]:
    if len(found) != len(test.expect):
        shown = "; ".join(_shown(one) for one in found) or "nothing"
        yield f"expected {counted(len(test.expect), 'message')}, got {len(found)}: {shown}"
        return
    for expected, one in zip(test.expect, found, strict=True):
        yield from difference(expected, one)


def _shown(one: object) -> str:
    if isinstance(one, Would):
        return f"refused as {one.refused_as} ({one.refused})" if one.refused else f"{one.queue} by `{one.rule}`"
    return f"refused: {one}" if isinstance(one, Refused) else f"{getattr(one, 'topic', one)}"


def properties_of(published: Published) -> Properties:
    """The MQTT 5 properties of a test's publication."""
    users = published.user_properties
    found: Properties = {}
    pairs = list(users.items()) if isinstance(users, dict) else list(users)
    if pairs:
        found[USER_PROPERTY] = pairs
    if published.content_type is not None:
        found[CONTENT_TYPE] = published.content_type
    if published.response_topic is not None:
        found[RESPONSE_TOPIC] = published.response_topic
    if published.correlation_data is not None:
        found[CORRELATION_DATA] = published.correlation_data.encode()
    if published.expiry is not None:
        found[MESSAGE_EXPIRY] = int(published.expiry)
    return found


def payload_of(published: Published) -> bytes:
    """The bytes of a test's payload."""
    if published.payload_hex is not None:
        return bytes.fromhex(published.payload_hex)
    if isinstance(published.payload, str):
        return published.payload.encode()
    return json.dumps(published.payload).encode()


def _puts(table: Table, published: Published) -> list[Would]:
    origin = Origin(
        published.client, published.user, published.topic, published.qos, published.retain, listener=published.listener
    )
    return explain(table, origin, properties_of(published), payload_of(published), NOW).puts


def _put_difference(expected: Expected, would: Would) -> Iterator[str]:
    if not isinstance(expected, ExpectedPut):
        yield "`expect` of a publication describes puts: queue, persistence, properties ..."
        return
    if (expected.refused or "") != would.refused_as:
        yield f"refused as {would.refused_as or 'nothing'} ({would.refused}), not {expected.refused or 'at all'}"
        return
    found = {
        "rule": would.rule,
        "queue": "" if would.queue.startswith("topic://") else would.queue,
        "mq_topic": would.queue.removeprefix("topic://") if would.queue.startswith("topic://") else "",
        "queue_manager": _taker(would.queue_manager, expected.queue_manager),
        "persistence": "persistent" if would.persistent else "not_persistent",
        "priority": would.priority,
        "format": would.format,
    }
    for key, value in found.items():
        wanted = getattr(expected, key)
        if wanted is not None and wanted != value:
            yield f"`{key}` is {value!r}, not {wanted!r}"
    for name, asked in (expected.properties or {}).items():
        there = would.properties.get(name if "." in name else f"usr.{name}")
        if there != asked or isinstance(there, bool) != isinstance(asked, bool):
            yield f"property `{name}` is {there!r}, not {asked!r}"


def message_of(put: QueueMessage) -> tuple[bytes, bytes]:
    """Descriptor and data of a test's message."""
    by_folder: dict[str, list[tuple[str, PropertyValue]]] = {}
    for name, value in put.properties.items():
        where, _, rest = name.rpartition(".")
        by_folder.setdefault(where or "usr", []).append((rest, value))
    body = put.body.encode()
    md = mqmd.build(
        persistence=int(put.persistence == "persistent"),
        correl_id=put.correlation_id.encode()[:24].ljust(24, b"\0"),
        msg_type=1 if put.reply_to else 8,
        reply_to_q=put.reply_to,
        format=put.format,
        coded_char_set_id=1208,
    )
    data = body
    if by_folder:
        texts = [folder(name, pairs) for name, pairs in by_folder.items()]
        data = rfh2.build(texts, format_name=put.format.encode().ljust(8)) + body
        md = mqmd.with_format(md, b"MQHRF2  ")
    if put.remote_queue or put.remote_queue_manager:
        data = xqh.build(put.remote_queue, put.remote_queue_manager, md) + data
        md = mqmd.with_format(md, xqh.FORMAT)
    return md, data


def _taker(queue_manager: str, expected: str | None) -> str:
    """The queue manager that takes a message if none is away; if several take messages in turn, the expected one."""
    in_turn = isinstance(queue_manager, Spread) and queue_manager.in_turn
    names = names_of(queue_manager)
    return expected if in_turn and expected in names else names[0]


def publications(mappings: Mappings, put: QueueMessage) -> Iterator[outbound.Outgoing | Refused]:
    """Yield what becomes of a test's message: a publication or refusal for each source that has the message."""
    topic = put.queue.removeprefix(TOPIC) if put.queue.startswith(TOPIC) else None
    if topic is not None:  # as in MQ: every subscription gets a copy, which names the topic
        put = put.model_copy(update={"properties": put.properties | {"mqps.Top": topic}})
    for (source, target), rules in outbound.sources(mappings.to_mqtt).items():
        if put.queue_manager not in {None, target}:
            continue
        covered = topic is not None and source.startswith(TOPIC) and _covers(source.removeprefix(TOPIC), topic)
        if not covered and source != put.queue:
            continue
        try:
            yield outbound.first_publication(rules, *message_of(put))[1]
        except Refused as refused:
            yield refused


def _covers(filter_: str, topic: str) -> bool:
    """Whether a subscription to an MQ topic matches: `+` is one level, `#` any number of them, including none."""
    parts = ["[^/]*" if level == "+" else re.escape(level) for level in filter_.split("/")]
    pattern = "/".join(parts).replace(r"/\#", "(?:/.*)?").replace(r"\#/", "(?:.*/)?").replace(r"\#", ".*")
    return re.fullmatch(pattern, topic, re.DOTALL) is not None


def _publication_difference(expected: Expected, found: outbound.Outgoing | Refused) -> Iterator[str]:
    refused = reason_name(found.feedback) if isinstance(found, Refused) else ""
    if (expected.refused or "") != refused:
        yield f"refused as {refused or 'nothing'} ({found}), not {expected.refused or 'at all'}"
        return
    if isinstance(found, Refused):
        return
    if not isinstance(expected, ExpectedPublication):
        yield "`expect` of a put describes publications: topic, qos, payload ..."
        return
    shown = found._asdict() | {"payload": found.payload.decode("utf-8", "replace")}
    for key in ("topic", "qos", "retain", "payload", "client"):
        wanted = getattr(expected, key)
        if wanted is not None and wanted != shown[key]:
            yield f"`{key}` is {shown[key]!r}, not {wanted!r}"
    users = dict(user_properties(found.properties))
    for name, wanted in (expected.user_properties or {}).items():
        if users.get(name) != wanted:
            yield f"user property `{name}` is {users.get(name)!r}, not {wanted!r}"

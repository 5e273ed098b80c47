"""The payload as rules see it: JSON is read once per message, if something asks for it; and what its edge cases
become."""

from __future__ import annotations

import json

import pytest

from gateway.bridge import payload
from gateway.bridge.inbound import Origin, plan
from gateway.bridge.message import read_message
from gateway.bridge.payload import Body, condition_of
from gateway.errors import Refused
from gateway.routing.table import compile_mappings
from gateway.rules.feedback import Feedback
from gateway.rules.model import PayloadSize, When
from gateway.rules.parse import parse_mappings

SCHEMA = '{"type": "object", "required": ["v"]}'


def made(raw, *rules):
    """Values of the property `v` by queue, or the reason of the refusal."""
    text = json.dumps(
        {"to_mq": [{"name": f"r{n}", "topic": "a", "queue": "Q", **rule} for n, rule in enumerate(rules)]}
    )
    table = compile_mappings(parse_mappings([("m.yaml", text)], load=lambda _path: SCHEMA))
    body, found = Body(raw), []
    for prepared in plan(table, Origin("c", "", "a", 1), {}).settle(body):
        try:
            built = prepared.build(1, body, 0.0)
        except Refused as refused:
            found.append(refused.feedback)
        else:
            found.append(read_message(built.head[:364], built.head[364:] + built.body).property("usr", "v"))
    return found


@pytest.fixture
def reads(monkeypatch):
    found, read = [], payload.DECODE
    monkeypatch.setattr(payload, "DECODE", lambda raw: found.append(raw) or read(raw))
    return found


FIELD = {"properties": {"v": "{json.v}"}}


def test_condition_check_schema_and_fields_read_the_payload_once(reads):
    whole = {
        "when": {"json": {"v": 1}}, "payload": {"format": "json", "schema": "s.json"}, "continue": True,
        "properties": {"v": "{json.v}", "w": "{json.w} and {json.v}"},
    }  # fmt: skip
    assert made(b'{"v": 1, "w": "x"}', whole, {**whole, "when": {}}) == [1, 1]
    assert len(reads) == 1


def test_a_rule_that_does_not_ask_reads_nothing(reads):
    rules = [{}, {"payload": {"format": "string"}}, {"properties": {"v": "{received_at}"}}, {"headers": []}]
    for rule in rules:
        made(b'{"v": 1}', rule)
    assert reads == []


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'{"v": 1, "v": 2}', 2),
        (b'{"v": 9223372036854775807}', 2**63 - 1),
        (b'{"v": 9223372036854775808}', Feedback.VALUE_NOT_VALID),
        (b'{"v": 1e400}', None),
        (b'{"v": -0.0}', -0.0),
        (b'{"v": 0.1}', 0.1),
        (b'{"v": true}', True),
        (b'{"v": null}', None),
        (b'{"v": [1, {"a": "\xc3\xa9"}]}', '[1,{"a":"\\u00e9"}]'),
        (b'\xef\xbb\xbf{"v": 1}', 1),
        ('{"v": "é"}'.encode("utf-16"), "é"),
        (b'{"v": "\\ud83d\\ude00"}', "\U0001f600"),
        (b'{"v": "\\ud83d"}', None),
        (b'{"v": NaN}', None),
        (b'{"v": 1} {"v": 2}', None),
        (b'[{"v": 1}]', None),
        (b"7", None),
        (b"", None),
    ],
)
def test_edges_of_a_field(raw, value):
    assert made(raw, FIELD) == [value]


@pytest.mark.parametrize("raw", [b'{"v": "\\ud83d"}', b'{"v": NaN}', b'{"v": 1e400}', b"{} {}", b"", b"{'v': 1}"])
def test_what_is_no_json_is_refused_where_it_is_asked_for(raw):
    wanted = [Feedback.SCHEMA]
    assert made(raw, {"payload": {"format": "json"}}) == wanted
    assert made(raw, {"payload": {"schema": "s.json"}}) == wanted


@pytest.mark.parametrize("ask", [{"format": "json"}, {"schema": "s.json"}])
def test_what_is_too_long_is_no_json(monkeypatch, ask):
    monkeypatch.setattr(payload, "MAX_JSON_BYTES", 10)
    assert made(b'{"v": 1}  ', {"payload": ask}) == [None]
    assert made(b'{"v": 1}   ', {"payload": ask}) == [Feedback.SCHEMA]


@pytest.mark.parametrize("ask", [{"format": "json"}, {"schema": "s.json"}])
def test_a_payload_of_ever_so_many_arrays_and_objects_is_not_read(ask):
    many = payload.MAX_STRUCTURES
    for item in (b"[]", b"{}"):
        assert made(b'{"v": [' + (item + b",") * (many - 2) + b"1]}", {"payload": ask}) == [None]
        assert made(b'{"v": [' + (item + b",") * (many - 1) + b"1]}", {"payload": ask}) == [Feedback.SCHEMA]
        assert made(b'{"v": [' + (item + b",") * (many - 1) + b"1]}", FIELD) == [None]
        text = b'\\"' + item * many + b"\\\\"
        assert made(b'{"v": 1, "t": "' + text + b'"}', {"payload": ask, **FIELD}) == [1]


def test_where_a_long_payload_differs_from_its_schema_is_not_looked_for():
    """For that the validator writes out the whole document: for a megabyte, everybody had to wait 60 ms."""
    table = compile_mappings(
        parse_mappings(
            [
                (
                    "m.yaml",
                    json.dumps({"to_mq": [{"name": "r", "topic": "a", "queue": "Q", "payload": {"schema": "s"}}]}),
                )
            ],
            load=lambda _path: SCHEMA,
        )
    )
    for length, said in ((10, '"v" is a required property'), (payload.NAMED, "the document does not match")):
        body = Body(b'{"w": "' + b"x" * length + b'"}')
        (prepared,) = plan(table, Origin("c", "", "a", 1), {}).settle(body)
        with pytest.raises(Refused, match=said):
            prepared.build(1, body, 0.0)


def test_nesting():
    deep = b'{"v": ' + b"[" * 400 + b"]" * 400 + b"}"
    assert made(deep, {"payload": {"format": "json"}, **FIELD}) == ["[" * 400 + "]" * 400]
    endless = b'{"v": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert made(endless, FIELD) == [None]
    assert made(endless, {"payload": {"format": "json"}}) == [Feedback.SCHEMA]


@pytest.mark.parametrize(
    ("fields", "raw", "holds"),
    [
        ({"v": 1}, b'{"v": 1}', True),
        ({"v": 1}, b'{"v": 1.0}', True),
        ({"v": 1}, b'{"v": true}', False),
        ({"v": True}, b'{"v": 1}', False),
        ({"v": True}, b'{"v": true}', True),
        ({"v": "1"}, b'{"v": 1}', False),
        ({"v": 1}, b"{}", False),
        ({"a.b": "x", "l.1": 2}, b'{"a": {"b": "x"}, "l": [1, 2]}', True),
        ({"a.b": "x", "l.1": 2}, b'{"a": {"b": "x"}, "l": [1]}', False),
        ({"a.b": "x"}, b'{"a": "x"}', False),
        ({"l.x": 1}, b'{"l": [1]}', False),
        ({"v": 18446744073709551617}, b'{"v": 18446744073709551617}', True),
        ({"v": 18446744073709551617}, b'{"v": 18446744073709551616}', False),
    ],
)
def test_conditions_on_fields(fields, raw, holds):
    assert condition_of(When.model_validate({"json": fields}))(Body(raw)) is holds


def test_conditions_on_the_size(reads):
    holds = condition_of(When(payload=PayloadSize(at_least=2, at_most=3)))
    assert [holds(Body(b"x" * size)) for size in range(5)] == [False, False, True, True, False]
    assert condition_of(When(payload=PayloadSize(at_least=1)))(Body(b"x" * 1000))
    assert reads == []

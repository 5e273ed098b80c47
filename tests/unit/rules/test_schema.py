"""The JSON Schemas are valid draft-07, and agree with the readers about what is right and wrong."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema_rs
import pytest
import yaml

from gateway.config.schema import settings_schema
from gateway.errors import ConfigurationError
from gateway.rules.parse import parse_mappings
from gateway.rules.schema import mapping_schema

MAPPINGS = sorted(Path("mappings").glob("*.yaml"))
GOOD = [
    "to_mq: [{name: a, topic: a, queue: Q, when: {client: x}, descriptor: {report: coa, reply_to: {queue: R}}}]",
    "to_mq: [{name: a, topic: a, queue: Q, when: {qos: [1], client: [x]}, headers: mqtt, properties: {a: 1, b: true}}]",
    "to_mqtt: [{name: a, queue: Q, user_properties: false, qos: 1, retain: from_property}]",
    "tests: [{publish: {topic: a, payload: {a: [1]}, user_properties: [[a, b]]}, expect: [{queue: Q}]}]",
    "to_mq: [{name: a, topic: a, queue: Q, on_failure: {retry: {from: 1s, to: 1m30s}}, continue: true}]",
]
BAD = [
    "to_mq: [{name: a, topic: a, quue: Q}]",
    "to_mq: [{topic: a, queue: Q}]",
    "to_mq: [{name: a, topic: a, queue: Q, when: {qos: 3}}]",
    "to_mq: [{name: a, topic: a, queue: Q, on_failure: {retry: {from: soon}}}]",
    "to_mq: [{name: a, topic: a, queue: Q, headers: [usr]}]",
    "unmatched: drop",
    "version: 2",
]


def validator(schema):
    return jsonschema_rs.Draft7Validator(schema)


@pytest.mark.parametrize("schema", [mapping_schema(), settings_schema()])
def test_schemas_are_draft_7_and_describe_every_key(schema):
    validator(schema)
    assert schema["$schema"].startswith("http://json-schema.org/draft-07")
    assert "$defs" not in json.dumps(schema)
    for name, definition in [("", schema), *schema["definitions"].items()]:
        assert definition["additionalProperties"] is False, name
        for key, field in definition["properties"].items():
            named = schema["definitions"][field["$ref"].rpartition("/")[2]] if "$ref" in field else field
            assert named.get("description"), (name, key)


@pytest.mark.parametrize("text", GOOD)
def test_what_the_reader_takes_the_schema_takes(text):
    parse_mappings([("m", text)])
    assert validator(mapping_schema()).is_valid(yaml.safe_load(text))


@pytest.mark.parametrize("text", BAD)
def test_what_the_reader_refuses_the_schema_refuses(text):
    with pytest.raises(ConfigurationError):
        parse_mappings([("m", text)])
    assert not validator(mapping_schema()).is_valid(yaml.safe_load(text))


@pytest.mark.parametrize("path", MAPPINGS, ids=lambda path: path.name)
def test_the_shipped_mappings_are_valid(path):
    validator(mapping_schema()).validate(yaml.safe_load(path.read_text(encoding="utf-8")))

"""Whatever stands in a file of settings or mappings: read, or refused with findings that have a place and words."""

from __future__ import annotations

import json

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gateway.bridge.rehearsal import run_tests
from gateway.config.load import load_settings
from gateway.config.model import Settings
from gateway.config.schema import settings_schema
from gateway.errors import ConfigurationError
from gateway.routing.table import compile_mappings
from gateway.rules.model import MappingFile
from gateway.rules.parse import parse_mappings
from gateway.rules.schema import mapping_schema

LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 2**40), st.floats(allow_nan=True), st.text(max_size=8),
    st.sampled_from(["1MiB", "10s", "Q", "a/{x}", "T.{x}", "{x}", "#", "+/b", "{json.a}", "{usr.a}", "coa",
                     "3.1", "embedded", "{{", "a.json", "{client:int}", "x{y*}", "$SYS/x", "allow", "ff", "fff"]),
)  # fmt: skip


def shapes(model):
    """Values with the model's own keys most of the time, and anything at all the rest of it."""
    names = set()
    pending = [model.model_json_schema(by_alias=True)]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            names |= set(value.get("properties") or {})
            pending += value.values()
        elif isinstance(value, list):
            pending += value
    keys = st.one_of(st.sampled_from(sorted(names)), st.sampled_from(sorted(names)), st.text(max_size=5))
    return st.recursive(
        LEAVES,
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=5)),
        max_leaves=25,
    )


MAPPINGS, SETTINGS = shapes(MappingFile), shapes(Settings)
GOOD = {
    "to_mq": [
        {
            "name": "a", "topic": "a/{x}/{y*}", "queue": "T.{x}", "when": {"qos": [1]}, "payload": {"format": "json"},
            "descriptor": {"priority": 4, "expiry": "5m", "reply_to": {"queue": "R"}, "report": ["coa"]},
            "properties": {"x": "{x}", "n": 1}, "on_failure": {"retry": {"times": 1}, "then": "hold"},
        }
    ],
    "to_mqtt": [{"name": "b", "queue": "C", "topic": "p/{usr.x}", "backout": {"threshold": 1, "queue": "B"}}],
    "tests": [
        {"publish": {"topic": "a/b/c", "qos": 1, "payload": {"a": 1}}, "expect": [{"queue": "T.B"}]},
        {"put": {"queue": "C", "properties": {"x": "y"}, "body": "z"}, "expect": [{"topic": "p/y"}]},
    ],
}  # fmt: skip


def refuse_to_load(path):
    raise FileNotFoundError(path)


def read(text):
    try:
        mappings = parse_mappings([("m.yaml", text)], refuse_to_load)
    except ConfigurationError as error:
        check(error)
        return
    compile_mappings(mappings)
    for finding in run_tests(mappings):
        assert finding.what


def check(error):
    assert error.findings
    for finding in error.findings:
        in_a_file = not finding.file.startswith("environment ")
        assert finding.line >= in_a_file
        assert finding.column >= in_a_file
        assert finding.what


def paths(value, here=()):
    yield here
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from paths(inner, (*here, key))


ALL_PATHS = [path for path in paths(GOOD) if path]


@given(st.sampled_from(ALL_PATHS), st.one_of(LEAVES, MAPPINGS))
def test_one_wrong_value_in_a_good_mapping(path, value):
    changed = json.loads(json.dumps(GOOD))
    here = changed
    for step in path[:-1]:
        here = here[step]
    here[path[-1]] = value
    read(json.dumps(changed))


@given(MAPPINGS)
def test_any_value_as_a_mapping(value):
    read(json.dumps(value))


@given(st.text(alphabet="{}[]:,-#&*!|>'\"%@ \nabq\t\0\x85\ud7ff", max_size=60))
def test_any_text_as_a_mapping(text):
    read(text)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("settings") / "s.yaml"


@given(value=SETTINGS)
def test_any_value_as_settings(file, value):
    file.write_text(json.dumps(value), encoding="utf-8")
    try:
        load_settings(file)
    except ConfigurationError as error:
        check(error)


NAMES = st.lists(
    st.sampled_from(["mqtt", "listeners", "0", "7", "port", "users", "x", "", "log", "MAX_QOS"]), min_size=1, max_size=4
)


@given(st.dictionaries(NAMES.map(lambda steps: "MQGATE_" + "__".join(steps).upper()), st.text(max_size=8), max_size=4))
def test_any_environment(environ):
    try:
        load_settings(None, environ)
    except ConfigurationError as error:
        check(error)


BEYOND = {"value_error", "int_parsing_size"}
"""What a schema cannot say: our own checks, and numbers beyond 64 bits."""
MAPPING_SCHEMA, SETTINGS_SCHEMA = (jsonschema_rs.validator_for(one()) for one in (mapping_schema, settings_schema))


@given(st.sampled_from(ALL_PATHS), st.one_of(LEAVES, MAPPINGS))
def test_what_an_editor_finds_right_the_reader_takes(path, value):
    changed = json.loads(json.dumps(GOOD))
    here = changed
    for step in path[:-1]:
        here = here[step]
    here[path[-1]] = value
    if MAPPING_SCHEMA.is_valid(changed):
        try:
            MappingFile.model_validate(changed)
        except ValidationError as error:  # what no schema can say is said by our own checks
            assert all(one["type"] in BEYOND for one in error.errors()), (changed, error)  # noqa: PT017


@given(SETTINGS)
def test_what_an_editor_finds_right_settings_are_made_of(value):
    if isinstance(value, dict) and SETTINGS_SCHEMA.is_valid(value):
        try:
            Settings.model_validate(value)
        except ValidationError as error:
            assert all(one["type"] in BEYOND for one in error.errors()), (value, error)  # noqa: PT017

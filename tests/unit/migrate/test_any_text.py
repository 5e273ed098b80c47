"""Any text in a configuration gives a plan or a finding, never a traceback."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import ConfigurationError
from gateway.migrate import mosquitto_options
from gateway.migrate.amlen import read_amlen
from gateway.migrate.mosquitto import read_mosquitto
from gateway.migrate.mqxr import read_mqxr

WORDS = sorted(
    mosquitto_options.OF_LISTENERS | mosquitto_options.OF_BRIDGES | mosquitto_options.COMMON
    | {"listener", "port", "connection", "include_dir", "acl_file", "password_file", "allow_anonymous", "user", "x"}
)  # fmt: skip
VALUES = st.one_of(
    st.sampled_from(
        ["", "true", "false", "1883", "0", "-1", "0 /s", "a b c d", '"" both 2 x/ y/', "# in", "{x}", "5d"]
    ),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"), max_size=12),
)
LINES = st.lists(st.tuples(st.sampled_from(WORDS), VALUES), max_size=12)
ACL = st.lists(st.tuples(st.sampled_from(["topic", "user", "pattern", "deny", "#"]), VALUES), max_size=8)
KINDS = ["Endpoint", "SecurityProfile", "CertificateProfile", "ConnectionPolicy", "TopicPolicy", "Queue",
         "QueueManagerConnection", "DestinationMappingRule"]  # fmt: skip
KEYS = ["Port", "Interface", "Protocol", "ConnectionPolicies", "TopicPolicies", "MaxMessageSize", "SecurityProfile",
        "Enabled", "TLSEnabled", "CertificateProfile", "ClientID", "UserID", "Topic", "ActionList", "MaxMessages",
        "RuleType", "Source", "Destination", "QueueManagerConnection", "ConnectionName", "GroupID"]  # fmt: skip
TEXTS = st.sampled_from(["a", "5", "a,b", "*", "x/*", "${ClientID}/*", ""])
JSON = st.one_of(st.none(), st.booleans(), st.integers(), TEXTS, st.lists(st.integers(), max_size=2))
OBJECTS = st.dictionaries(st.sampled_from("ab"), st.dictionaries(st.sampled_from(KEYS), JSON), min_size=1)
TELEMETRY = ["CHANNEL(A)", "PORT(", "PORT(x)", "LOCLADDR(h(1))", ")", "\n", "CHLTYPE(MQTT)"]


def _text(lines: list[tuple[str, str]]) -> str:
    return "".join(f"{word} {value}\n" for word, value in lines)


@given(LINES, ACL)
def test_mosquitto(lines: list[tuple[str, str]], acl: list[tuple[str, str]]) -> None:
    text = _text(lines)
    try:
        plan = read_mosquitto("m.conf", text, lambda name: None if "x" in name else _text(acl), lambda _: None)
    except ConfigurationError:
        assert {word for word, _ in lines} <= {"x", "include_dir"}
    else:
        assert plan.settings["listeners"] is not None


@given(st.lists(st.one_of(st.sampled_from(TELEMETRY), st.text(max_size=6)), max_size=12))
def test_mqxr(parts: list[str]) -> None:
    for name in ("c.txt", "c.properties"):
        try:
            read_mqxr({name: " ".join(parts)})
        except ConfigurationError:
            continue


@given(st.one_of(JSON, st.fixed_dictionaries(dict.fromkeys(KINDS, st.one_of(OBJECTS, JSON)))))
def test_amlen(value: object) -> None:
    try:
        read_amlen({"a.json": json.dumps(value)})
    except ConfigurationError:
        return

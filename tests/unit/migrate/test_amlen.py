"""gateway.migrate.amlen: endpoints, policies and destination mapping rules."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.access.policy import acl_of
from gateway.config.model import Settings
from gateway.errors import ConfigurationError
from gateway.migrate.amlen import read_amlen
from gateway.migrate.plan import Plan
from gateway.routing.acl import Subject

CONFIGURATION: dict[str, Any] = {
    "Version": "v1",
    "Endpoint": {
        "Devices": {
            "Port": 16102, "Interface": "All", "Protocol": "MQTT,JMS", "ConnectionPolicies": "Conn",
            "TopicPolicies": "Own,Group,Middle,Half", "MaxMessageSize": "4MB", "SecurityProfile": "Secure",
        },
        "Demo": {"Port": 16105, "Interface": "[2001:db8::1]", "ConnectionPolicies": "Any", "TopicPolicies": "All"},
        "Off": {"Port": 1, "Enabled": False},
        "Jms": {"Port": 2, "Protocol": "JMS"},
    },
    "SecurityProfile": {
        "Secure": {"CertificateProfile": "Cert", "UseClientCertificate": True, "OAuthProfile": "Auth",
                   "MinimumProtocolMethod": "TLSv1.1"},
    },
    "CertificateProfile": {"Cert": {"Certificate": "amlen.pem", "Key": "amlen.key"}},
    "ConnectionPolicy": {"Conn": {"ClientID": "d*", "AllowDurable": False}, "Any": {"ClientID": "*"}},
    "TopicPolicy": {
        "Own": {"Topic": "iot/${ClientID}/*", "ActionList": "Publish,Subscribe", "MaxMessages": 7000,
                "MaxMessagesBehavior": "RejectNewMessages"},
        "Group": {"Topic": "admin/*", "ActionList": "Publish", "GroupID": "admins"},
        "Middle": {"Topic": "a/*/b/*", "ActionList": "Subscribe"},
        "Half": {"Topic": "pre*", "ActionList": "Subscribe"},
        "All": {"Topic": "*", "ActionList": "Publish,Subscribe"},
    },
    "QueueManagerConnection": {
        "QM": {"QueueManagerName": "QM1", "ConnectionName": "mq1(1415),mq2", "ChannelName": "IMA.SVRCONN",
               "ChannelUserName": "ima", "ChannelUserPassword": "XXXXXX"},
        "Other": {"QueueManagerName": "QM2", "ConnectionName": "mq3", "ChannelName": "C"},
    },
    "DestinationMappingRule": {
        "one": {"QueueManagerConnection": "QM", "RuleType": 1, "Source": "orders/new", "Destination": "ORDERS"},
        "five": {"QueueManagerConnection": "QM", "RuleType": 5, "Source": "iot", "Destination": "IOT.EVENTS"},
        "seven": {"QueueManagerConnection": "QM", "RuleType": 7, "Source": "iot", "Destination": "MQ/iot"},
        "three": {"QueueManagerConnection": "QM", "RuleType": 3, "Source": "COMMANDS", "Destination": "cmd/all"},
        "eight": {"QueueManagerConnection": "QM", "RuleType": 8, "Source": "News", "Destination": "news"},
        "nine": {"QueueManagerConnection": "QM", "RuleType": 9, "Source": "A", "Destination": "B"},
        "ten": {"QueueManagerConnection": "QM", "RuleType": 10, "Source": "Q", "Destination": "R"},
        "off": {"QueueManagerConnection": "QM", "RuleType": 1, "Source": "x", "Destination": "X", "Enabled": False},
    },
    "HighAvailability": {"EnableHA": True},
    "LogLevel": "NORMAL",
}  # fmt: skip


def _plan() -> Plan:
    return read_amlen({"amlen.json": json.dumps(CONFIGURATION)})


def _notes(plan: Plan) -> str:
    return "\n".join(str(one) for one in plan.notes)


def test_endpoints_for_mqtt_are_listeners() -> None:
    devices, demo = _plan().settings["listeners"]
    assert (devices["name"], devices["port"], devices["bind"], devices["anonymous"]) == ("Devices", 16102, "::", False)
    assert devices["tls"] == {
        "certificate": "amlen.pem",
        "key": "amlen.key",
        "client_ca": "client-ca.pem",
        "client_certificate": "required",
    }
    assert (devices["max_payload"], devices["max_queued"], devices["when_full"]) == (4 * 2**20, 7000, "refuse")
    assert (demo["bind"], demo["anonymous"]) == ("2001:db8::1", True)


@pytest.mark.parametrize(
    ("client", "listener", "action", "topic", "allowed"),
    [
        ("d1", "Devices", "publish", "iot/d1/evt", True),
        ("d1", "Devices", "publish", "iot/d2/evt", False),
        ("x1", "Devices", "publish", "iot/x1/evt", False),
        ("d1", "Devices", "publish", "admin/x", False),
        ("d1", "Devices", "deliver", "a/1/b/c", True),
        ("d1", "Devices", "deliver", "a/1/2/b/c", False),
        ("d1", "Devices", "deliver", "prefix", False),
        ("any", "Demo", "publish", "what/ever", True),
    ],
)
def test_policies_allow_what_they_did_or_less(
    client: str, listener: str, action: str, topic: str, allowed: bool
) -> None:
    rights = acl_of(Settings.model_validate(_plan().settings)).of(Subject(client, "", listener))
    assert getattr(rights, action)(topic) is allowed


def test_the_queue_manager_is_that_of_the_rules() -> None:
    ibm = _plan().settings["queue_manager"]["ibm"]
    assert ibm == {"name": "QM1", "connection": "mq1(1415),mq2(1414)", "channel": "IMA.SVRCONN", "user": "ima"}


def test_a_password_that_is_shown_goes_to_a_file_of_its_own() -> None:
    shown = json.loads(json.dumps(CONFIGURATION))
    shown["QueueManagerConnection"]["QM"]["ChannelUserPassword"] = "s3cret"
    plan = read_amlen({"amlen.json": json.dumps(shown)})
    assert plan.secrets == {"mq.password": "s3cret\n"}
    assert plan.settings["queue_manager"]["ibm"]["password_file"] == "mq.password"
    assert "s3cret" not in _notes(plan)


def test_destination_mapping_rules_are_rules() -> None:
    mappings = _plan().mappings
    assert [(one["topic"], one.get("queue") or one["mq_topic"]) for one in mappings["to_mq"]] == [
        ("orders/new", "ORDERS"),
        ("iot/#", "IOT.EVENTS"),
        ("iot/{rest*}", "MQ/iot/{rest}"),
    ]
    assert [(one.get("queue") or one["mq_topic"], one["topic"]) for one in mappings["to_mqtt"]] == [
        ("COMMANDS", "cmd/all"),
        ("News/#", "news"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Endpoint Off: not enabled",
        "Endpoint Jms: Protocol JMS",
        "OAuthProfile Auth: no counterpart",
        "MinimumProtocolMethod TLSv1.1",
        "ConnectionPolicy Conn: AllowDurable: no counterpart",
        "TopicPolicy Group: GroupID: no counterpart",
        "TopicPolicy Middle: Topic a/*/b/*: `*` in the middle is one level here: a/+/b/#",
        "TopicPolicy Half: Topic pre*: a wildcard is a whole level here",
        "QueueManagerConnection Other: no rule uses it; left out",
        "DestinationMappingRule nine: RuleType 9",
        "DestinationMappingRule ten: RuleType 10: no counterpart",
        "DestinationMappingRule off: not enabled",
        "HighAvailability: no counterpart: a pair",
        "LogLevel: no counterpart",
    ],
)
def test_what_has_no_counterpart_is_said(text: str) -> None:
    assert f"amlen.json: {text}" in _notes(_plan()) or text in _notes(_plan())


def test_several_answers_of_the_api_are_one_configuration() -> None:
    texts = {f"{key}.json": json.dumps({"Version": "v1", key: value}) for key, value in CONFIGURATION.items()}
    assert read_amlen(texts).settings == _plan().settings


def test_a_note_names_the_file_of_its_object() -> None:
    texts = {f"{key}.json": json.dumps({"Version": "v1", key: value}) for key, value in CONFIGURATION.items()}
    notes = [str(note) for note in read_amlen(dict(sorted(texts.items()))).notes]
    assert "Endpoint.json: Endpoint Off: not enabled; left out" in notes
    assert [one for one in notes if one.startswith("TopicPolicy.json: TopicPolicy Group: GroupID")]


def _with_two_queue_managers(**rules: dict[str, Any]) -> Plan:
    given = CONFIGURATION | {"DestinationMappingRule": CONFIGURATION["DestinationMappingRule"] | rules}
    return read_amlen({"amlen.json": json.dumps(given)})


def test_rules_put_to_the_queue_manager_that_they_name() -> None:
    plan = _with_two_queue_managers(
        far={"QueueManagerConnection": "Other", "RuleType": 1, "Source": "far", "Destination": "FAR"},
        topic={"QueueManagerConnection": "Other", "RuleType": 2, "Source": "t", "Destination": "T"},
        gone={"QueueManagerConnection": "Nowhere", "RuleType": 1, "Source": "g", "Destination": "G"},
        back={"QueueManagerConnection": "QM,Other", "RuleType": 3, "Source": "BACK", "Destination": "back"},
    )
    assert plan.settings["targets"] == {"QM2": {"connection": "mq3(1414)", "channel": "C"}}
    Settings.model_validate(plan.settings)
    to_mq, to_mqtt = plan.mappings["to_mq"], plan.mappings["to_mqtt"]
    assert [one.get("queue_manager") for one in to_mq if one["name"] in {"one", "far", "topic", "gone"}] == [
        None,
        "QM2",
    ]
    assert [one.get("queue_manager") for one in to_mqtt if one.get("queue") == "BACK"] == [None, ["QM2"]]
    assert plan.objects[-3:] == [
        "* On the queue manager QM2:",
        "DEFINE QLOCAL(FAR) DEFPSIST(YES) MAXDEPTH(1000000) NOREPLACE",
        "DEFINE QLOCAL(BACK) DEFPSIST(YES) MAXDEPTH(1000000) NOREPLACE",
    ]
    assert "rule gone: QueueManagerConnection Nowhere is not in the file".lower() in _notes(plan).lower()
    assert "DestinationMappingRule topic: devices publish on MQ topics of the gateway's own" in _notes(plan)


def test_a_certificate_beside_a_password_is_no_login() -> None:
    given = json.loads(json.dumps(CONFIGURATION))
    given["SecurityProfile"]["Alone"] = {"UseClientCertificate": True, "UsePasswordAuthentication": False}
    given["Endpoint"]["Meters"] = {"Port": 8884, "SecurityProfile": "Alone"}
    plan = read_amlen({"amlen.json": json.dumps(given)})
    assert plan.settings["security"]["certificate_user"] == "none"
    assert plan.users == []
    assert [one["anonymous"] for one in plan.settings["listeners"]] == [False, True, True]
    assert "Endpoint Meters: its clients have a certificate and no user name" in _notes(plan)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"Endpoint": {"x": {"Enabled": false}}}'])
def test_what_is_no_configuration_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^a\.json:1:"):
        read_amlen({"a.json": text})


@pytest.mark.parametrize(
    "endpoint",
    [
        {"Port": "x"},
        {"Port": []},
        {"Port": None},
        {"Interface": ["a"], "SecurityProfile": "S"},
        {"TopicPolicies": ["T"]},
    ],
)
def test_values_of_another_kind_are_no_defect(endpoint: dict[str, Any]) -> None:
    given = {
        "Endpoint": {"E": endpoint},
        "SecurityProfile": {"S": {"MinimumProtocolMethod": ["TLSv1"], "CertificateProfile": ["c"]}},
        "TopicPolicy": {
            "T": {"Topic": ["a"], "ActionList": ["Publish"], "MaxMessageTimeToLive": [], "MaxMessages": "x"}
        },
        "DestinationMappingRule": {"r": {"RuleType": ["5"], "Source": "a", "Destination": "B", "RetainedMessages": []}},
    }
    assert read_amlen({"a.json": json.dumps(given)}).settings["listeners"][0]["port"] == 1883


def test_a_rule_type_may_be_text() -> None:
    given = {
        "Endpoint": {"E": {"Port": "1"}},
        "DestinationMappingRule": {"r": {"RuleType": "1", "Source": "a", "Destination": "B"}},
    }
    assert read_amlen({"a.json": json.dumps(given)}).mappings["to_mq"][0]["queue"] == "B"


def test_the_queue_of_everything_takes_more_than_what_a_queue_takes() -> None:
    """With a default MAXDEPTH, every device would wait after 5,000 messages that nobody took."""
    given = {
        name: value
        for name, value in CONFIGURATION.items()
        if name not in {"DestinationMappingRule", "QueueManagerConnection"}
    }
    plan = read_amlen({"amlen.json": json.dumps(given)})
    assert plan.objects == ["DEFINE QLOCAL(MQGATE.DEFAULT) DEFPSIST(YES) MAXDEPTH(999999999) NOREPLACE"]

"""gateway.migrate.mqxr: telemetry channels as runmqsc prints them."""

from __future__ import annotations

import pytest

from gateway.config.model import Settings
from gateway.errors import ConfigurationError
from gateway.migrate.mqxr import read_mqxr
from gateway.migrate.plan import Plan

DISPLAYED = """\
5724-H72 (C) Copyright IBM Corp. 1994, 2024.
Starting MQSC for queue manager QM1.

     1 : DISPLAY CHANNEL(*) CHLTYPE(MQTT) ALL
AMQ8414I: Display Channel details.
   CHANNEL(PLAIN)                          CHLTYPE(MQTT)
   BACKLOG(4096)                           JAASCFG( )
   LOCLADDR( )                             MCAUSER(mqttuser)
   PORT(1883)                              PROTOCOL(MQTTV311,MQTTV3,HTTP)
   SSLCAUTH(NEVER)                         SSLCIPH( )
   SSLKEYP( )                              SSLKEYR( )
   TRPTYPE(TCP)                            USECLTID(NO)
AMQ8414I: Display Channel details.
   CHANNEL(SECURE)                         CHLTYPE(MQTT)
   BACKLOG(100)                            JAASCFG(MQXRConfig)
   LOCLADDR(192.0.2.9(8883))               MCAUSER( )
   PORT(8883)                              PROTOCOL(MQTTV311)
   SSLCAUTH(REQUIRED)                      SSLCIPH(TLS_RSA_WITH_AES_128_CBC_SHA256)
   SSLKEYP(********)                       SSLKEYR(/var/mqm/keys/mqtt.jks)
   TRPTYPE(TCP)                            USECLTID(YES)
AMQ8414I: Display Channel details.
   CHANNEL(WEB)                            CHLTYPE(MQTT)
   PORT(8080)                              PROTOCOL(HTTP)
   USECLTID(NO)                            MCAUSER(mqttuser)
     2 : end
"""
PROPERTIES = r"""
# of the service
webcontentpath=/opt/mqm/mqxr/web
com.ibm.mq.MQXR.channel/Plain: \
com.ibm.mq.MQXR.Port=1884;\
com.ibm.mq.MQXR.Backlog=4096;\
com.ibm.mq.MQXR.JAASConfig=Login;\
com.ibm.mq.MQXR.UserName=Guest;\
com.ibm.mq.MQXR.StartWithMQXRService=true
"""


def _plan() -> Plan:
    return read_mqxr({"channels.txt": DISPLAYED})


def test_each_channel_is_a_listener() -> None:
    plain, secure, web = _plan().settings["listeners"]
    assert plain == {
        "name": "PLAIN",
        "port": 1883,
        "bind": "::",
        "versions": ["3.1", "3.1.1"],
        "anonymous": True,
    }
    assert (secure["bind"], secure["anonymous"], secure["versions"]) == ("192.0.2.9", False, ["3.1.1"])
    assert secure["tls"]["client_certificate"] == "required"
    assert web["websocket"] == {"path": "/mqtt"}


def test_the_settings_are_valid_and_name_the_queue_manager() -> None:
    settings = Settings.model_validate(_plan().settings)
    assert settings.queue_manager.ibm is not None
    assert settings.queue_manager.ibm.name == "QM1"


def test_messages_are_put_under_the_name_they_were_put_under() -> None:
    first, second = _plan().mappings["to_mq"]
    assert (first["when"], first["descriptor"]) == ({"listener": ["PLAIN", "WEB"]}, {"user": "mqttuser"})
    assert (second["when"], second["descriptor"]) == ({"listener": ["SECURE"]}, {"user": "{client}"})


def test_what_has_no_counterpart_is_said_with_channel_and_line() -> None:
    notes = [str(one) for one in _plan().notes]
    for place, what in [(6, "PROTOCOL: HTTP"), (14, "JAASCFG(MQXRConfig)"), (14, "BACKLOG(100)"), (14, "SSLKEYR"),
                        (14, "SSLCIPH"), (22, "PROTOCOL(HTTP)")]:  # fmt: skip
        assert any(one.startswith(f"channels.txt:{place}: channel ") and what in one for one in notes), what
    assert not any("*****" in one for one in notes)


def test_definitions_are_read_as_well() -> None:
    text = "* dmpmqcfg\nDEFINE CHANNEL('ALPHA') +\n  CHLTYPE(MQTT) +\n  PORT(1885) +\n  REPLACE\n"
    plan = read_mqxr({"all.mqsc": text + "DEFINE CHANNEL('APP') CHLTYPE(SVRCONN) PORT(1)\n"})
    assert [(one["name"], one["port"]) for one in plan.settings["listeners"]] == [("ALPHA", 1885)]


def test_the_services_own_file_is_read_as_far_as_channels_go() -> None:
    plan = read_mqxr({"mqxr_unix.properties": PROPERTIES})
    assert [(one["name"], one["port"], one["anonymous"]) for one in plan.settings["listeners"]] == [
        ("Plain", 1884, False)
    ]
    notes = [str(one) for one in plan.notes]
    assert "mqxr_unix.properties:3: webcontentpath: no counterpart: a property of the telemetry service" in notes
    assert any("com.ibm.mq.MQXR.StartWithMQXRService: no counterpart" in one for one in notes)
    assert plan.mappings["to_mq"][0]["descriptor"] == {"user": "Guest"}


def test_a_text_without_channels_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match=r"x:1:1: it contains no telemetry channel: give the output of"):
        read_mqxr({"x": "AMQ8147E: IBM MQ object * not found."})

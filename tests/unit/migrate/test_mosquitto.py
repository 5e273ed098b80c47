"""gateway.migrate.mosquitto: what mosquitto.conf says is taken over, or a note says that it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from certificates import Authority

from gateway.access.passwords import hash_password
from gateway.access.policy import acl_of
from gateway.config.model import Settings
from gateway.errors import ConfigurationError
from gateway.migrate.mosquitto import read_mosquitto
from gateway.migrate.plan import Plan
from gateway.routing.acl import Subject

CONF = """\
# plant
per_listener_settings false
allow_anonymous false
password_file /etc/mosquitto/passwd
acl_file /etc/mosquitto/acl
max_inflight_messages 40
max_queued_messages 0
max_packet_size 100
persistent_client_expiration 2m
persistence true
autosave_interval 60
listener 1883 192.0.2.7
max_connections 500
listener 8883
cafile ca.pem
certfile /etc/ssl/server.pem
keyfile server.key
require_certificate true
use_identity_as_username true
tls_version tlsv1.3
listener 9001
protocol websockets
socket_domain ipv4
mount_point plants/
connection cloud
address broker.example:8883
topic sensors/# out 1 "" site7/
topic commands/# in 1
bridge_cafile ca.pem
frobnicate yes
"""
ACL = """\
topic read open/#
user alice
topic plant/alice/#
topic deny plant/alice/secret
topic write log
user star*
topic #
pattern readwrite devices/%c/#
pattern read users/%u
"""


def _no_directory(_: str) -> None:
    return None


def _plan(conf: str, **files: str) -> Plan:
    return read_mosquitto(
        "mosquitto.conf", conf, lambda name: files.get(name.rpartition("/")[2]), _no_directory, "/etc/mosquitto"
    )


def _settings(plan: Plan) -> Settings:
    return Settings.model_validate(plan.settings)


def _notes(plan: Plan) -> str:
    return "\n".join(str(one) for one in plan.notes)


def _full() -> Plan:
    return _plan(CONF, passwd="alice:$7$101$c2FsdA==$aGFzaA==\nbob:plain\n", acl=ACL)


def test_listeners_keep_address_limits_and_protection() -> None:
    plain, tls, web = _full().settings["listeners"]
    assert plain == {"name": "port-1883", "port": 1883, "bind": "192.0.2.7", "max_connections": 500}
    assert (tls["port"], tls["bind"]) == (8883, "::")
    assert tls["tls"] == {
        "certificate": "/etc/ssl/server.pem",
        "key": "/etc/mosquitto/server.key",
        "client_ca": "/etc/mosquitto/ca.pem",
        "client_certificate": "required",
        "minimum_version": "1.3",
    }
    assert web["websocket"] == {"path": "/mqtt"}
    assert "name those that are not the gateway's own host in `origins`" in _notes(_full())
    assert web["bind"] == "0.0.0.0"


def test_the_settings_are_valid_and_limits_are_taken_over() -> None:
    settings = _settings(_full())
    assert (settings.mqtt.max_inflight, settings.mqtt.max_queued, settings.mqtt.max_packet) == (40, 1_000_000, 128)
    assert settings.mqtt.session_expiry_max == 60 * 86400
    assert settings.security.certificate_user == "common_name"
    assert settings.security.anonymous is False


def test_the_path_of_a_socket_starts_where_those_of_certificates_do() -> None:
    (local,) = _plan("listener 0 run/mqtt.sock\n").settings["listeners"]
    assert local["unix"] == "/etc/mosquitto/run/mqtt.sock"


def test_a_packet_limit_below_the_smallest_here_is_said() -> None:
    notes = _notes(_plan("listener 1883\nmax_packet_size 100\n"))
    assert "max_packet_size 100: packets of 128 bytes are let in: the smallest `mqtt.max_packet`" in notes


@pytest.mark.parametrize("option", ["max_qos", "maximum_qos"])
def test_a_quality_of_service_that_all_listeners_have_is_taken_over(option: str) -> None:
    plan = _plan(f"listener 1883\n{option} 1\nlistener 1884\n{option} 1\n")
    assert _settings(plan).mqtt.max_qos == 1
    assert "qos" not in _notes(plan)


def test_a_quality_of_service_that_listeners_do_not_share_is_said() -> None:
    for other in ("", "max_qos 2\n"):
        plan = _plan(f"listener 1883\nmaximum_qos 1\nlistener 1884\n{other}")
        assert _settings(plan).mqtt.max_qos == 2
        assert "maximum_qos: no counterpart: `mqtt.max_qos` holds for all listeners" in _notes(plan)


def test_users_keep_their_passwords_and_what_is_no_hash_is_said() -> None:
    plan = _full()
    assert plan.users == ["alice:$7$101$c2FsdA==$aGFzaA=="]
    assert "/etc/mosquitto/passwd:2: user bob" in _notes(plan)


@pytest.mark.parametrize(
    ("user", "client", "action", "topic", "allowed"),
    [
        ("", "c1", "deliver", "open/a", True),
        ("", "c1", "publish", "open/a", False),
        ("alice", "c1", "publish", "plant/alice/x", True),
        ("alice", "c1", "publish", "plant/alice/secret", False),
        ("alice", "c1", "deliver", "plant/alice/secret", False),
        ("alice", "c1", "publish", "log", True),
        ("alice", "c1", "deliver", "log", False),
        ("alice", "c1", "deliver", "open/a", False),
        ("bob", "c7", "publish", "devices/c7/x", True),
        ("bob", "c7", "publish", "devices/c8/x", False),
        ("bob", "c7", "deliver", "users/bob", True),
        ("starling", "c7", "publish", "anything", False),
    ],
)
def test_the_access_list_decides_as_it_did(user: str, client: str, action: str, topic: str, allowed: bool) -> None:
    rights = acl_of(_settings(_full())).of(Subject(client, user, "port-1883"))
    assert getattr(rights, action)(topic) is allowed


def test_a_bridge_becomes_queues_and_says_so() -> None:
    plan = _full()
    out, into = plan.mappings["to_mq"][0], plan.mappings["to_mqtt"][0]
    assert (out["topic"], out["queue"]) == ("sensors/#", "BRIDGE.CLOUD")
    assert out["properties"] == {"localPrefix": "", "remotePrefix": "site7/"}
    assert into["queue"] == "BRIDGE.CLOUD.IN"
    assert [one.split()[1] for one in plan.objects] == ["QLOCAL(BRIDGE.CLOUD)", "QLOCAL(BRIDGE.CLOUD.IN)"]
    assert "connection cloud: no counterpart for a bridge to another broker" in _notes(plan)


@pytest.mark.parametrize(
    ("line", "word"),
    [(10, "persistence"), (11, "autosave_interval"), (24, "mount_point"), (29, "bridge_cafile"), (30, "frobnicate")],
)
def test_every_option_without_counterpart_has_its_line(line: int, word: str) -> None:
    assert any(one.line == line and one.text.startswith(word) for one in _full().notes)


def test_files_that_cannot_be_read_let_nobody_do_anything() -> None:
    plan = _plan("listener 1883\npassword_file p\nacl_file a\n")
    assert plan.users == []
    assert plan.settings["security"]["acl"] == [{"deny": ["#"]}]
    assert "mosquitto.conf:2: " in _notes(plan)
    assert "mosquitto.conf:3: " in _notes(plan)
    _settings(plan)


def test_a_listener_without_a_word_about_clients_lets_nobody_in_as_in_mosquitto_2() -> None:
    plan = _plan("listener 1883\n")
    assert plan.settings["security"] == {"anonymous": False, "password_file": "users"}
    assert _settings(plan).listeners[0].bind == "::"


def test_no_listener_is_one_for_this_host() -> None:
    settings = _settings(_plan("\n"))
    assert settings.listeners[0].local
    assert settings.anonymous_on(settings.listeners[0])


def test_keys_shared_before_are_no_reason_to_listen_without_any() -> None:
    plan = _plan("listener 1883\nallow_anonymous true\nlistener 8884\npsk_hint plant\n")
    assert [one["port"] for one in plan.settings["listeners"]] == [1883]
    assert "pre-shared keys" in _notes(plan)


def test_settings_of_each_listener_stay_its_own() -> None:
    conf = (
        "per_listener_settings true\nlistener 1883\nallow_anonymous true\nacl_file a\nlistener 1884\npassword_file p\n"
    )
    plan = _plan(conf, a="topic read open/#\n", p="x:$6$a$b\n")
    first, second = plan.settings["listeners"]
    assert (first["anonymous"], second["anonymous"]) == (True, False)
    acl = acl_of(_settings(plan))
    assert not acl.of(Subject("c", "", "port-1883")).publish("open/a")
    assert acl.of(Subject("c", "x", "port-1884")).publish("anything")


def test_files_of_a_directory_are_part_of_it_and_notes_name_the_file_and_its_line() -> None:
    files = [("conf.d/1.conf", "listener 1999\nallow_anonymous true\n"), ("conf.d/2.conf", "# mine\nfrobnicate yes\n")]
    plan = read_mosquitto("m.conf", "include_dir conf.d\n", lambda _: None, {"conf.d": files}.get)
    assert plan.settings["listeners"][0]["port"] == 1999
    assert [f"{one.file}:{one.line}" for one in plan.notes if "frobnicate" in one.text] == ["conf.d/2.conf:2"]


@pytest.mark.parametrize("text", ["root:x:0:0:root:/root:/bin/bash\n", '"Endpoint": {\n', "AMQ8147E: not found.\n"])
def test_what_has_no_line_of_mosquitto_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^m\.conf:1:1: no line of it is an option of mosquitto"):
        read_mosquitto("m.conf", text, lambda _: None, _no_directory)


def test_what_is_denied_with_braces_stays_denied() -> None:
    plan = _plan("listener 1883\nallow_anonymous true\nacl_file a\n", a="topic deny a/{x}/b\ntopic a/{y}\ntopic #\n")
    entry: dict[str, Any] = plan.settings["security"]["acl"][0]
    assert entry == {"anonymous": True, "deny": ["a/+/b"], "allow": ["#"]}


def test_what_mosquitto_2_1_says_of_a_listener_is_said_of_it_here() -> None:
    conf = (
        "listener 1883\naccept_protocol_versions 3, 4\nlistener_allow_anonymous true\n"
        "listener 1884\naccept_protocol_versions 5, 6\nlistener_allow_anonymous false\nenable_proxy_protocol 2\n"
        "listener 9001\nprotocol websockets\nwebsockets_origin http://a.example\nwebsockets_origin http://b.example\n"
        "global_max_connections 90\nglobal_max_clients 900\n"
    )
    plan = _plan(conf)
    settings = _settings(plan)
    old, new, web = settings.listeners
    assert (old.versions, new.versions, web.versions) == (["3.1", "3.1.1"], ["5.0"], None)
    assert [settings.anonymous_on(one) for one in settings.listeners] == [True, False, False]
    assert (new.proxy_protocol, [str(one) for one in new.proxy_from or ()]) == ("v2", ["127.0.0.1/32", "::1/128"])
    assert plan.settings["listeners"][2]["websocket"]["origins"] == ["http://a.example", "http://b.example"]
    assert (settings.mqtt.max_connections, settings.mqtt.max_sessions) == (90, 900)
    assert "mosquitto.conf:5: accept_protocol_versions 5, 6: the versions are 3, 4 and 5" in _notes(plan)
    assert "mosquitto.conf:7: enable_proxy_protocol 2: only headers from this host are believed" in _notes(plan)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("enable_proxy_protocol 3\n", "the versions are 1 and 2"),
        ("enable_proxy_protocol 2\nrequire_certificate true\n", "what a header says about TLS"),
        ("enable_proxy_protocol 2\nproxy_protocol_v2_require_tls true\n", "what a header says about TLS"),
    ],
)
def test_proxy_headers_that_mean_more_than_addresses_are_refused(options: str, why: str) -> None:
    plan = _plan("listener 1883\n" + options)
    assert set(plan.settings["listeners"][0]) == {"name", "port", "bind"}
    assert f": {why}" in _notes(plan)
    _settings(plan)


def test_a_listener_that_nobody_may_use_beside_an_open_one_is_said() -> None:
    conf = "per_listener_settings true\nlistener 1883\nallow_anonymous true\nlistener 1884\n"
    plan = _plan(conf)
    _settings(plan)
    assert plan.users == []
    assert "neither users nor anonymous clients are let in at port-1884" in _notes(plan)


def test_hashes_of_mosquitto_2_1_stay_valid() -> None:
    line = f"alice:{hash_password(b'secret')}"
    plan = _plan("listener 1883\npassword_file p\n", p=line + "\n")
    assert plan.users == [line]
    assert "not hashed" not in _notes(plan)


def test_a_chain_that_mosquitto_completes_from_cafile_is_asked_for(tmp_path: Path) -> None:
    conf = "listener 8883\ncertfile s.pem\nkeyfile s.key\ncafile ca.pem\n"
    root = Authority(tmp_path, "root")
    signing = Authority(tmp_path, "signing", above=root)
    whole = root.path.read_text() + signing.path.read_text()
    told = "mosquitto.conf:4: cafile ca.pem: mosquitto completes the server's chain from it"
    assert told in _notes(_plan(conf, **{"ca.pem": whole}))
    assert told not in _notes(_plan(conf, **{"ca.pem": root.path.read_text()})), "nothing is between"
    assert told not in _notes(_plan(conf + "require_certificate true\n", **{"ca.pem": whole})), (
        "`client_ca` completes it"
    )
    for unreadable in ({}, {"ca.pem": "no certificate"}, {"ca.pem": whole.replace("M", "\u20ac")}):
        assert told not in _notes(_plan(conf, **unreadable))


def test_what_stands_in_front_of_port_is_of_the_default_listener() -> None:
    lines = (
        "certfile c.pem\nkeyfile k.pem\nmax_connections 7\nprotocol websockets\nwebsockets_origin https://a.example\n"
    )
    more = "websockets_origin https://b.example\nport 8884\nlistener 1883\n"
    default, other = _plan(lines + more).settings["listeners"]
    assert default["tls"] == {"certificate": "/etc/mosquitto/c.pem", "key": "/etc/mosquitto/k.pem"}
    assert default["websocket"]["origins"] == ["https://a.example", "https://b.example"]
    assert default["max_connections"] == 7
    assert not other.keys() & {"tls", "websocket", "max_connections"}


def test_the_queue_of_everything_takes_more_than_what_a_queue_takes() -> None:
    """With a lower MAXDEPTH, every device would wait after 100,000 messages that nobody took."""
    assert _plan("listener 1883\n").objects == [
        "DEFINE QLOCAL(MQGATE.DEFAULT) DEFPSIST(YES) MAXDEPTH(999999999) MAXMSGL(104857600) NOREPLACE"
    ]

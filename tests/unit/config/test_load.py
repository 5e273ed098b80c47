"""Settings: the design's example, defaults, order of sources, origins, secrets, and every finding at once."""

from __future__ import annotations

import pytest

from gateway.config.load import display, examine_settings, load_settings
from gateway.errors import ConfigurationError

DESIGN = """
listeners:
  - {name: plain, port: 1883, bind: 127.0.0.1}
  - {name: tls, port: 8883, tls: {certificate: server.pem, key: server.key,
                               client_ca: ca.pem, client_certificate: required, crl: ca.crl}}
  - {name: web, port: 8083, websocket: {path: /mqtt, origins: [https://ops.example]}}
  - {name: local, unix: ./mqtt.sock}
admin: {port: 9160, bind: 127.0.0.1, token_file: admin.token}
queue_manager:
  embedded: {name: MQGATE, path: ./mqgate-data, objects: objects.mqsc, socket: ./mqgate-data/mqi.sock,
             users: {admin: {password_file: admin.pw}}, check_client: optional}
mqtt:
  versions: ["3.1", "3.1.1", "5.0"]
  strict_client_ids: true
  max_packet: 1MiB
  max_qos: 2
  retain: true
  max_inflight: 100
  topic_aliases: 10
  max_connections: 20000
  max_sessions: 100000
  connect_timeout: 10s
  max_queued: 1000
  retry_interval: 20s
  session_expiry_max: 7d
  keep_alive_max: 10m
security:
  anonymous: true
  users: {alice: {password_file: alice.pw}}
  password_file: users
  certificate_user: common_name
  jwt: {jwks_file: keys.json, audience: devices}
  acl:
    - {user: "sensor-*", publish: ["plant/{client}/#"], subscribe: ["plant/{client}/cmd/#"]}
    - {anonymous: true, deny_subscribe: ["secret/#"], publish: ["open/#"]}
    - {user: "*", deny: ["#"]}
mappings: [mappings/*.yaml]
log: {format: json, level: info}
"""
IBM = """
queue_manager:
  ibm: {name: QM1, connection: "mq1(1414),mq2(1414)", channel: DEV.APP.SVRCONN, user: app, password_file: pw,
        driver: auto,
        tls: {cipher: ANY_TLS12_OR_HIGHER, key_repository: /var/mqm/key}, connections: 4}
  buffer: {path: ./mqgate-buffer, max_bytes: 1GiB}
"""


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "mqgate.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def findings(path=None, environ=None, overrides=None):
    with pytest.raises(ConfigurationError) as caught:
        load_settings(path, environ, overrides)
    return caught.value.findings


def test_the_word_of_the_command_line_leads_to_the_key(file):
    (found,) = findings(file("queue_manager: {embedded: {data: here}}\n"))
    assert (found.line, found.column) == (1, 28)
    assert (found.what, found.fix) == ("`data` is not a known key", "did you mean `path`?")


def test_the_example_of_the_design_is_read(file):
    settings = load_settings(file(DESIGN))
    assert settings.listeners[1].tls.client_certificate == "required"
    assert settings.mqtt.max_packet == 2**20
    assert settings.mqtt.session_expiry_max == 604800
    assert settings.security.acl[2].deny == ["#"]
    assert settings.queue_manager.ibm is None


def test_ibm_mq_takes_the_place_of_the_embedded_queue_manager(file):
    manager = load_settings(file(IBM)).queue_manager
    assert (manager.embedded, manager.ibm.connection) == (None, "mq1(1414),mq2(1414)")
    assert manager.buffer.max_bytes == 2**30


def test_without_a_file_everything_has_a_default():
    settings = load_settings()
    assert [(one.bind, one.port) for one in settings.listeners] == [("127.0.0.1", 1883)]
    assert (settings.admin.bind, settings.admin.port) == ("127.0.0.1", 9160)
    assert settings.queue_manager.embedded.path == "./mqgate-data"
    assert settings.mappings == []
    assert settings.origin("mqtt.max_qos") == "default"


def test_the_empty_file_is_the_defaults(file):
    assert load_settings(file("# nothing\n")).model_dump() == load_settings().model_dump()


def test_environment_beats_the_file_and_options_beat_both(file):
    path = file("mqtt: {max_qos: 0, max_inflight: 5, max_packet: 1MiB}\n")
    environ = {"MQGATE_MQTT__MAX_QOS": "1", "MQGATE_MQTT__MAX_INFLIGHT": "6", "PATH": "x"}
    settings = load_settings(path, environ, {"mqtt.max_qos": 2})
    assert (settings.mqtt.max_qos, settings.mqtt.max_inflight, settings.mqtt.max_packet) == (2, 6, 2**20)
    assert settings.origin("mqtt.max_qos") == "option mqtt.max_qos"
    assert settings.origin("mqtt.max_inflight") == "environment MQGATE_MQTT__MAX_INFLIGHT"
    assert settings.origin("mqtt.max_packet") == f"{path}:1"


def test_what_the_file_leaves_out_is_a_default_whatever_stands_above_it(file):
    path = file("listeners:\n  - {name: a, port: 1, versions: ['5.0']}\nmqtt: {max_qos: 0}\n")
    settings = load_settings(path, {"MQGATE_MAPPINGS": "[a.yaml, b.yaml]"})
    said = {key: origin for key, _, origin in display(settings)}
    assert said["mqtt.max_qos"] == f"{path}:3"
    assert said["listeners.0.port"] == said["listeners.0.versions.0"] == f"{path}:2"
    assert said["mqtt.max_packet"] == said["listeners.0.unix"] == said["mqtt.versions.0"] == "default"
    assert said["mappings.1"] == "environment MQGATE_MAPPINGS"


def test_an_option_changes_the_default_listener_and_does_not_empty_it():
    settings = load_settings(overrides={"listeners.0.port": 0})
    assert [(one.name, one.port) for one in settings.listeners] == [("plain", 0)]


def test_lists_and_mappings_can_come_from_the_environment():
    environ = {"MQGATE_MQTT__VERSIONS": "['3.1.1']", "MQGATE_LISTENERS__1": "{name: b, port: 1884}"}
    settings = load_settings(environ=environ)
    assert settings.mqtt.versions == ["3.1.1"]
    assert [one.name for one in settings.listeners] == ["plain", "b"]


def test_variables_that_kubernetes_sets_by_itself_are_ignored():
    environ = {"MQGATE_SERVICE_HOST": "10.0.0.1", "MQGATE_PORT": "tcp://10.0.0.1:1883", "MQGATE_MQTT_PORT": "tcp://x"}
    admin = {"PORT": "tcp://10.0.0.1:9160", "PORT_9160_TCP": "tcp://10.0.0.1:9160", "PORT_9160_TCP_PORT": "9160"}
    environ |= {f"MQGATE_ADMIN_{name}": value for name, value in admin.items()}
    assert load_settings(environ=environ).model_dump() == load_settings().model_dump()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("MQGATE_LOG_LEVEL", "MQGATE_LOG__LEVEL"),
        ("MQGATE_SECURITY_ANONYMOUS", "MQGATE_SECURITY__ANONYMOUS"),
        ("MQGATE_LISTENERS_0_PORT", "MQGATE_LISTENERS__0__PORT"),
        ("MQGATE_LISTENERS_PORT", "MQGATE_LISTENERS__0__PORT"),
        ("MQGATE_QUEUE_MANAGER_EMBEDDED_PATH", "MQGATE_QUEUE_MANAGER__EMBEDDED__PATH"),
        ("MQGATE_LISTENERS_1_TLS_CLIENT_CA", "MQGATE_LISTENERS__1__TLS__CLIENT_CA"),
    ],
)
def test_a_setting_with_single_underscores_is_not_passed_over(name, meant):
    """Whoever closes a gateway to anonymous clients in this way would have one that is open."""
    found = findings(environ={name: "false"})
    assert [str(one) for one in found] == [
        f"environment {name}: no setting has this name: write {meant}, with two underscores between section and key"
    ]


def test_environment_names_find_keys_whatever_their_case(file):
    path = file("security: {users: {Alice: {password_file: a}}}\n")
    settings = load_settings(path, {"MQGATE_SECURITY__USERS__ALICE__PASSWORD": "s3cret"})
    assert settings.security.users["Alice"].password.get_secret_value() == "s3cret"


def test_secrets_are_masked_wherever_settings_are_shown():
    settings = load_settings(environ={"MQGATE_SECURITY__USERS__ALICE__PASSWORD": "s3cret"})
    shown = [str(row) for row in display(settings)] + [repr(settings), str(settings), settings.model_dump_json()]
    assert not any("s3cret" in text for text in shown)
    assert any("********" in text for text in shown)


def test_a_password_in_a_file_is_refused_without_repeating_it(file):
    found = findings(file("security:\n  users:\n    bob: {password: s3cret}\n"))
    assert [(one.line, one.column) for one in found] == [(3, 11)]
    assert "password_file" in found[0].fix
    assert "s3cret" not in str(found)


def test_every_error_is_reported_at_once_with_its_place(file):
    path = file(
        "listeners:\n"
        "  - {name: a, prot: 1883}\n"
        "  - {name: b, port: 99999}\n"
        "mqtt:\n"
        "  max_paket: 1MiB\n"
        "  connect_timeout: soon\n"
        "  versions: ['4.0']\n"
        "lgo: {}\n"
    )
    found = findings(path)
    places = [(one.line, one.column) for one in found]
    assert (2, 15) in places
    assert (3, 21) in places
    assert (5, 3) in places
    assert (6, 20) in places
    assert (7, 14) in places
    assert (8, 1) in places
    text = "\n".join(map(str, found))
    for fix in ("did you mean `port`?", "at most 65535", "did you mean `max_packet`?", "10s", "did you mean `log`?"):
        assert fix in text


def test_errors_in_the_environment_name_the_variable():
    found = findings(environ={"MQGATE_MQTT__MAX_QOS": "7", "MQGATE_MQT__X": "1", "MQGATE_LISTENERS__5__PORT": "1"})
    assert {one.file for one in found} == {
        "environment MQGATE_MQTT__MAX_QOS",
        "environment MQGATE_MQT__X",
        "environment MQGATE_LISTENERS__5__PORT",
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("listeners: [{name: a}]", "either `port` or `unix`"),
        ("listeners: [{name: a, port: 1, unix: x}]", "either `port` or `unix`"),
        ("listeners: [{name: a, port: 1}, {name: a, port: 2}]", "mqgate.yaml:1:40: two listeners are called `a`"),
        ("listeners: [{name: a, port: 1}, {name: b, port: 1}]", "1:49: listener `b` and listener `a` use 127.0.0.1:1"),
        ("listeners: [{name: a, unix: s}, {name: b, unix: s}]", "1:49: listener `b` and listener `a` use s: give"),
        ("listeners: [{name: a, port: 7}]\nadmin: {port: 7}", "1:29: listener `a` and the admin port use 127.0.0.1:7"),
        ("listeners: [{name: a, port: 1, tls: {certificate: c, key: k, client_certificate: required}}]", "client_ca"),
        ("queue_manager: {embedded: {}, ibm: {ccdt: x}}", "either `embedded` or `ibm`"),
        ("queue_manager: {ibm: {name: QM1}}", "`connection` and `channel`"),
        ("queue_manager: {buffer: {}}", "never away"),
        ("security: {anonymous: false, certificate_user: none}", "nobody could connect"),
        ("security: {anonymous: false}", "nothing says who the others are"),
        ("- a\n- b\n", "settings are a mapping"),
    ],
)
def test_combinations_that_cannot_work_are_refused(file, text, words):
    assert words in "\n".join(map(str, findings(file(text))))


def test_a_file_that_is_not_there_is_a_finding(tmp_path):
    found = findings(tmp_path / "none.yaml")
    assert "cannot be read" in found[0].what


def test_file_names_are_relative_to_the_file_of_settings(file, tmp_path):
    settings = load_settings(file("mappings: [m.yaml]\n"))
    assert settings.resolve("m.yaml", "mappings.0") == str(tmp_path / "m.yaml")
    assert load_settings().resolve("./mqgate-data", "queue_manager.embedded.path") == "./mqgate-data"


@pytest.mark.parametrize("admin", ["bind: 0.0.0.0", "bind: '::', hosts: [gate.example]", "bind: 10.0.0.2, port: 9999"])
def test_the_admin_port_is_for_this_host_unless_it_has_tls_or_the_settings_insist(file, admin):
    with pytest.raises(ConfigurationError) as caught:
        load_settings(file(f"log: {{level: info}}\nadmin: {{{admin}}}\n"))
    (finding,) = caught.value.findings
    assert finding.line == 2
    assert "other hosts reach the admin port" in finding.what
    assert "`insecure: true`" in finding.fix
    assert not load_settings(file(f"admin: {{{admin}, insecure: true}}\n")).admin.local
    assert load_settings(file(f"admin: {{{admin}, tls: {{certificate: a.pem, key: a.key}}}}\n")).admin.scheme == "https"
    assert load_settings(file("admin: {bind: 127.0.0.9}\n")).admin.scheme == "http"


@pytest.mark.parametrize(("listener", "says"), [
    ("bind: 0.0.0.0, anonymous: true, proxy_protocol: v1", "name the load balancers in `proxy_from`"),
    ("bind: 0.0.0.0, anonymous: true, proxy_protocol: v1, proxy_from: []", "name the load balancers in `proxy_from`"),
    ("proxy_protocol: v1, proxy_from: [10.0.0.300]", "is not a network"),
    ("proxy_protocol: v1, proxy_from: [10.0.0.7/24]", "is not a network"),
    ("proxy_from: [10.0.0.7]", "takes no PROXY headers"),
    ("proxy_from: [10.0.0.7], websocket: {}", "or `websocket.address_header` if HTTP proxies are in front"),
    ("websocket: {address_header: X-Forwarded-For}", "name the HTTP proxies in `proxy_from`"),
    ("websocket: {address_header: X-Forwarded-For}, proxy_from: []", "name the HTTP proxies in `proxy_from`"),
    ("websocket: {address_header: 'X-Real-IP:'}, proxy_from: [10.0.0.7]", "is not the name of a header"),
    ("websocket: {address_header: Forwarded}, proxy_from: [10.0.0.7], proxy_protocol: v2", "in two ways"),
    ("proxy_certificate: required", "give `proxy_protocol: v2`"),
    ("proxy_certificate: required, proxy_protocol: v1, proxy_from: [10.0.0.7]", "give `proxy_protocol: v2`"),
    ("proxy_certificate: required, proxy_protocol: v2", "name the load balancers in `proxy_from`"),
    ("proxy_certificate: optional, proxy_protocol: v2, proxy_from: [10.0.0.7], tls: {certificate: a, key: b}",
     "ends TLS itself"),
    ("websocket: {hosts: ['https://gw.example/mqtt']}", "is not a host name"),
])  # fmt: skip
def test_who_is_believed_about_addresses_and_names_has_to_be_said_right(tmp_path, listener, says):
    path = tmp_path / "settings.yaml"
    path.write_text(f"listeners:\n  - {{name: a, port: 0, {listener}}}\n")
    with pytest.raises(ConfigurationError, match=says):
        load_settings(str(path), {}, {})
    path.write_text("listeners:\n  - {name: a, port: 0, websocket: {hosts: [GW.example.]}, proxy_protocol: v2}\n")
    assert load_settings(str(path), {}, {}).listeners[0].websocket.hosts == ["gw.example"]
    networks = "['::ffff:10.0.0.7', '::ffff:10.1.0.0/112', '::/0']"
    path.write_text(f"listeners:\n  - {{name: a, port: 0, proxy_protocol: v2, proxy_from: {networks}}}\n")
    assert load_settings(str(path), {}, {}).listeners[0].proxy_from == ["10.0.0.7/32", "10.1.0.0/16", "::/0"]


def test_a_proxy_gives_the_common_name_of_a_certificate_and_no_other(file):
    listener = "listeners:\n  - {name: a, port: 0, bind: 0.0.0.0, proxy_protocol: v2, proxy_from: [10.0.0.7], "
    known = load_settings(file(listener + "proxy_certificate: required}\n"))
    assert known.listeners[0].knows_by_certificate, "nobody else has to be known"
    with pytest.raises(ConfigurationError, match="gives only common names"):
        load_settings(file(listener + "proxy_certificate: optional}\nsecurity: {certificate_user: dns}\n"))


@pytest.mark.parametrize(
    "text",
    [
        "mqtt: {max_queued: 1e30}",
        "mqtt: {max_user_properties: 1000000000000000000000000000000}",
        "mqtt: {session_expiry_max: 1e999}",
        "limits: {bytes_per_second: 1000000000000000000000000000000}",
        "process: {drain_rate: 1000000000000000000000000000000}",
    ],
)
def test_numbers_that_nothing_counts_to_are_refused_where_they_stand(file, text):
    with pytest.raises(ConfigurationError) as caught:
        load_settings(file(text), {})
    (found,) = caught.value.findings
    assert (found.line, found.fix[:14]) == (1, "write at most ")


def test_what_a_finding_quotes_moves_no_cursor_and_begins_no_line(file):
    with pytest.raises(ConfigurationError) as caught:
        load_settings(file('listeners: [{name: "a\\e[2J\\nall is well", port: 1}, {name: "' + "x" * 9000 + '"}]'), {})
    assert all(line.isprintable() and len(line) < 2500 for line in str(caught.value).splitlines())
    assert len(str(caught.value).splitlines()) == len(caught.value.findings)


@pytest.mark.parametrize("text", ["mqtt: {versions: [3.1.1, 5.0]}", "mqtt: {versions: [5]}"])
def test_a_version_that_yaml_takes_for_a_number_wants_quotes(file, text):
    (found,) = findings(file(text))
    assert found.fix == 'quote it: "5.0"'


@pytest.mark.parametrize("written", ["mq1.example:1414", "mq1.example(1414), mq2.example:1415"])
def test_a_port_behind_a_colon_is_no_connection_name_of_ibm_mq(file, written):
    for text in (
        f'queue_manager: {{ibm: {{connection: "{written}", channel: C}}}}',
        f'targets: {{B: {{connection: "{written}", channel: C}}}}',
    ):
        (found,) = findings(file(text))
        assert found.fix in {"write mq1.example(1414)", "write mq2.example(1415)"}


@pytest.mark.parametrize("written", ["mq1.example(1414),mq2.example", "unix:/run/mqi.sock", "::1(1414)", "fe80::1"])
def test_other_connection_names_are_taken(file, written):
    load_settings(file(f'queue_manager: {{ibm: {{connection: "{written}", channel: C}}}}'), {}, {})


def test_values_that_do_not_go_together_are_found_besides_wrong_ones(file):
    found = findings(
        file("""
listeners:
  - {name: plain, port: 1883, proxy_from: [10.0.0.7]}
  - {name: web, port: 1884, unix: ./mqtt.sock, websocket: {path: mqtt}}
  - {name: web, port: 1885}
admin: {bind: 0.0.0.0}
mqtt: {max_packet: 5XB}
queue_manager: {ibm: {connection: "unix:", ccdt: file.json, token_file: t, user: u, driver: pymqi}}
""")
    )
    assert [(one.line, one.what.partition(":")[0]) for one in found] == [
        (3, "listener `plain` takes no PROXY headers"),
        (4, "`mqtt` is not a path"),
        (5, "two listeners are called `web`"),
        (6, "other hosts reach the admin port on 0.0.0.0, and its tokens are not encrypted"),
        (7, "'5XB' is not a size"),
        (8, "a token and a user or password are given"),
        (8, "pymqi cannot send a token"),
        (8, "`unix"),
        (8, "an MQI socket has neither TLS nor a CCDT"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "listeners: [{name: plain, port: 70000}]",
        "listeners: [{name: plain, prot: 1884, bind: 10.0.0.1, anonymous: true}, {name: web, port: 1883}]",
        "security: {anonymous: false, password_file: [users]}",
        "listeners: [{name: plain, port: 1883, bind: 0.0.0.0}]\nsecurity: {password_file: [users]}",
        "listeners: [{name: plain, port: 9160}]\nadmin: {port: nine}",
        "queue_manager: {ibm: {connection: 5, channel: [C]}}\ntargets: {MQGATE: {connection: mq, channel: C}}",
        "security: {jwt: [{jwks_file: a}, {jwks_file: b, issuer: 5, audience: {}}]}",
        "queue_manager: {embedded: {}, ibm: {}}",
    ],
)
def test_what_only_follows_from_a_wrong_value_is_not_said(file, text):
    assert len({one.line for one in findings(file(text))}) == 1
    assert all("nobody" not in one.what and "one address" not in one.what for one in findings(file(text)))


def test_what_is_right_of_wrong_settings_can_be_looked_at(file):
    settings, found = examine_settings(file("mappings: [rules.yaml]\nmqtt: {max_packet: 5XB, max_queued: 7}"), {})
    assert len(found) == 1
    assert settings is not None
    assert (settings.mappings, settings.mqtt.max_queued, settings.mqtt.max_packet) == (["rules.yaml"], 7, 2**20)


@pytest.mark.parametrize("text", ["- a list", "mqtt: [", "mqtt: {}\nmqtt: {}"])
def test_nothing_is_known_of_settings_that_cannot_be_read(file, text):
    settings, found = examine_settings(file(text), {"MQGATE_MQTT__MAX_QOS": "3"})
    assert settings is None
    assert [one.file for one in found][1:] == ["environment MQGATE_MQTT__MAX_QOS"]


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("mqtt: {max_packet: 5XB}", True),
        ("queue_manager: {embedded: {path: /d}}\nmqtt: {max_packet: 5XB}", True),
        ("queue_manager: {embeded: {path: /d}}", False),
        ("queue_manager: {embedded: {pth: /d}}", False),
        ("queue_manager: 5", False),
    ],
)
def test_whether_a_section_is_whole(file, text, whole):
    settings, found = examine_settings(file(text), {})
    assert found
    assert settings is not None
    assert settings.is_whole("queue_manager") is whole

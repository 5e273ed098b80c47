"""Every series of the catalogue moves when what it counts happens, or it is said here why it cannot in this test.

One gateway goes through everything a site may see in a year: all versions, refusals, a queue that is full, inhibited or
missing, payloads that are not what the rule says, a bad reload, a client thrown out, an operator who replays.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import struct
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest
from certificates import Authority
from free_ports import free_port
from ops_machine import ROOT
from patient_device import Device
from running_gateway import TOKEN, Running, running

from gateway.errors import ProtocolError
from gateway.ports.counters import CATALOGUE, PREFIX, Counters, Label, Names

pytestmark = pytest.mark.ops

MAPPING = """
version: 1
to_mq:
  - {name: readings, topic: "plant/{site}/temperature", queue: MQGATE.DEFAULT}
  - {name: lost, topic: "lost/#", queue: NO.SUCH.QUEUE, on_failure: {then: dead_letter}}
  - {name: small, topic: "small/#", queue: SMALL, on_failure: {retry: {times: 0}, then: drop}}
  - {name: full, topic: "full/#", queue: FULL, on_failure: {retry: {times: 0}, then: dead_letter}}
  - {name: shut, topic: "shut/#", queue: SHUT, on_failure: {retry: {times: 1, from: 50ms}, then: dead_letter}}
  - {name: waits, topic: "waits/#", queue: SHUT, on_failure: {then: hold}}
  - {name: tight, topic: "tight/#", queue: TIGHT, on_failure: {then: dead_letter}}
  - {name: numbers, topic: "numbers/#", queue: MQGATE.DEFAULT, payload: {format: json, schema: number.json}}
  - {name: texts, topic: "texts/#", queue: MQGATE.DEFAULT, payload: {format: string, ccsid: 1208}}
  - {name: named, topic: "named/{x}", queue: "N.{x}", allowed_queues: ["N.*"]}
  - {name: shared, topic: "shared/{x}", mq_topic: "shared/{x}"}
to_mqtt:
  - {name: back, mq_topic: "shared/#"}
  - {name: commands, queue: COMMANDS, topic: "plant/cmd"}
unmatched: dead_letter
"""
OBJECTS = """
DEFINE QLOCAL(SMALL) MAXDEPTH(1)
DEFINE QLOCAL(FULL) MAXDEPTH(1)
DEFINE QLOCAL(SHUT) PUT(DISABLED)
DEFINE QLOCAL(TIGHT) MAXMSGL(600)
DEFINE QLOCAL(COMMANDS)
"""
MORE = """
security:
  users: {alice: {password_file: alice.pw}}
  guesses: {per_user: 2}
  acl: [{deny: ["forbidden/#"], allow: ["#"]}]
mqtt: {connect_timeout: 4s, max_packet: 64KiB, session_expiry_max: 1h}
process: {drain_timeout: 1s}
"""

MEASURED_ELSEWHERE = {
    "spool_recovered_messages": "what an earlier process left; tests/e2e",
    "mqtt_sessions_taken_over": "several gateways on one queue manager; tests/fault with their owners",
    "mqtt_sessions_signed_over": "as mqtt_sessions_taken_over",
    "mq_connect_attempts": "the embedded queue manager is never connected to; tests/contract with IBM MQ's client",
    "mq_gone_messages": "two gateways on one queue of IBM MQ; tests/contract/test_ibm_claims.py",
    "queue_incomplete_messages": "segments that do not come for ten seconds; tests/e2e/test_segments_to_devices.py",
    "spool_full_since_seconds": "a full disk; tests/fault/test_full_disk_gateway.py",
    "spool_corrupt_records": "a journal that is damaged while it is open; tests/fault/test_damaged_frame.py",
    "spool_drained_messages": "only with a buffer; its own tests",
    "spool_messages": "only with a buffer",
    "spool_state": "only with a buffer",
    "spool_oldest_message_age_seconds": "only with a buffer",
    "set_aside": "a defect of the gateway; tests/unit/broker/test_set_aside.py",
    "set_aside_messages": "a defect of the gateway; tests/e2e/test_set_aside.py",
    "reactor_stall_seconds": "a turn of the reactor that takes too long; tests/unit/net/test_turns.py",
    "mqtt_logins": "each method; tests/e2e/test_methods.py",
    "identity_requests": "keys for tokens from a URL; tests/e2e/test_token_issuers.py",
    "device_events": "device events are off by default; tests/e2e/test_device_events.py",
    "token_keys_age_seconds": "as identity_requests",
    "tls_crl_next_update_timestamp_seconds": "with a revocation list; tests/e2e/test_access_reload.py",
    "tls_handshakes_waiting": "more handshakes at once than threads; tests/unit/net/test_handshakes.py",
    "spans": "only with a collector of traces; tests/ops/test_tracing_live.py",
    "backpressure_events": "20,000 messages behind one commit; tests/unit/broker",
    "backpressure_paused_connections": "as backpressure_events",
}
VALUES_ELSEWHERE = {
    "mqtt_connects{result=banned}": "an answer that only a check of one's own gives",
    "mqtt_connects{result=unavailable}": "an answer that only a check of one's own gives",
    "mqtt_connects{result=too_many}": "session and password limits",
    "mqtt_connects{result=other}": "what has no name of its own",
    "mqtt_disconnects{reason=slow_consumer}": "16 MiB unread; tests/e2e",
    "mqtt_disconnects{reason=buffers_full}": "much begun and not finished; tests/e2e/test_attacks.py",
    "mqtt_disconnects{reason=draining}": "the end of the process: nobody scrapes it then",
    "mqtt_disconnects{reason=defect}": "a defect of the gateway; tests/unit/broker/test_set_aside.py",
    "mqtt_disconnects{reason=other}": "rules that say `then: disconnect`",
    "tls_handshakes{result=resumed}": "a client that keeps its ticket; tests/e2e/test_tls.py",
    "mqtt_packets{type=reserved}": "malformed; it ends the connection before it is counted as a packet",
    "mqtt_packets{type=auth}": "enhanced authentication; tests/e2e",
    "mqtt_packets{direction=in,type=connack}": "a server never gets it",
    "mqtt_packets{direction=in,type=suback}": "as above",
    "mqtt_packets{direction=in,type=unsuback}": "as above",
    "mqtt_packets{direction=in,type=pingresp}": "as above",
    "mqtt_packets{direction=out,type=connect}": "a server never sends it",
    "mqtt_packets{direction=out,type=subscribe}": "as above",
    "mqtt_packets{direction=out,type=unsubscribe}": "as above",
    "mqtt_packets{direction=out,type=pingreq}": "as above",
    "dlq_messages{reason=not_authorized}": "the queue manager's authority records; tests of IBM MQ",
    "dlq_messages{reason=backed_out}": "programs that back out; tests/unit/broker",
    "dlq_messages{reason=other}": "what has no name of its own",
    "messages_dropped{reason=*}": "each has its own test beside the code that drops",
    "transform_errors{reason=header}": "damaged headers on a queue; tests/unit/broker",
    "transform_errors{reason=other}": "what has no name of its own",
    "log_events{level=debug}": "not written at level info", "log_events{level=error}": "a defect, or a bad reload",
    "log_events{level=critical}": "the end of the process",
    "mq_errors{*}": "25 reasons; the one of this test is asserted by metric",
    "mq_call_seconds{call=*}": "the embedded queue manager has one call, commit",
    "mq_backouts{*}": "by metric", "log_suppressed{level=*}": "by metric",
    "dlq_replayed{result=failed}": "a destination that is still missing; tests/ops/test_api_contract.py",
    "mqtt_subscriptions_refused{reason=*}": "by metric; each beside the code that refuses",
}  # fmt: skip
"""Values of closed labels that this test does not bring about. `*` stands for anything."""
CHECKED = frozenset({"direction", "type", "qos", "protocol", "result", "reason", "state", "level"})


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, int]]:
    folder = tmp_path_factory.mktemp("all")
    authority = Authority(folder)
    certificate, key = authority.issue("server")
    authority.issue("device")
    tls = free_port()
    files = f"certificate: {certificate.name}, key: {key.name}, client_ca: {authority.path.name}"
    listener = f"  - {{name: tls, port: {tls}, tls: {{{files}, client_certificate: required}}}}"
    (folder / "objects.mqsc").write_text(OBJECTS)
    (folder / "number.json").write_text('{"type": "number"}')
    (folder / "alice.pw").write_text("secret\n")
    environment = {"MQGATE_QUEUE_MANAGER__EMBEDDED__OBJECTS": str(folder / "objects.mqsc")}
    with running(folder, listener, environment, more=MORE, mapping=MAPPING) as found:
        yield found, tls


def call(gateway: Running, method: str, path: str, body: object = None) -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{gateway.admin}/api/v1{path}", method=method)
    request.add_header("Authorization", f"Bearer {TOKEN}")
    request.add_header("Content-Type", "application/json")
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(request, data, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def device(gateway: Running, name: str, version: int = 4, **more: object) -> Device:
    found = Device("127.0.0.1", gateway.port, name, version=version)
    assert found.connect(**more) == 0  # type: ignore[arg-type]
    return found


def raw(gateway: Running, *parts: bytes, wait: bool = True) -> bytes:
    """Bytes to the gateway, and what it says until it closes."""
    with socket.create_connection(("127.0.0.1", gateway.port), 20) as sock:
        for part in parts:
            sock.sendall(part)
        said = b""
        while wait and (data := sock.recv(4096)):
            said += data
    return said


def connect_packet(name: bytes, level: int = 4, protocol: bytes = b"MQTT", keep_alive: int = 60) -> bytes:
    rest = struct.pack("!H", len(protocol)) + protocol + bytes([level, 2]) + struct.pack("!H", keep_alive)
    rest += b"\x00" if level == 5 else b""
    rest += struct.pack("!H", len(name)) + name
    return b"\x10" + bytes([len(rest)]) + rest


def all_versions(gateway: Running) -> None:
    listens = device(gateway, "listens", 5)
    for qos in (0, 1, 2):
        assert listens.subscribe(f"plant/q{qos}/#", qos) == qos
    listens.subscribe("plant/cmd", 1)
    for version in (3, 4, 5):
        with device(gateway, f"v{version}", version) as each:
            for qos in (0, 1, 2):
                each.publish(f"plant/q{qos}/temperature", b"21.5", qos)
                each.publish("plant/lima/temperature", b"21.5", qos)
            each.publish("plant/kept", b"1", 1, retain=True)
            each.publish("shared/a", b"1", 1)
            each._socket.sendall(b"\xc0\x00")  # PINGREQ
    call(gateway, "POST", "/queues/COMMANDS/messages", {"text": "open"})
    assert {listens.receive()[0] for _ in range(2)}
    _settle_qos2(listens)
    packet = struct.pack("!H", 77) + (b"\x00" if listens.version == 5 else b"") + struct.pack("!H", 7) + b"plant/#"
    listens._socket.sendall(b"\xa2" + bytes([len(packet)]) + packet)
    listens._next(11)
    listens.close()


def _settle_qos2(listens: Device) -> None:
    """Take what is on its way, with PUBREC and PUBCOMP."""
    released = False
    while not released:
        while listens._packets:
            packet = listens._packets.popleft()
            kind, number = packet[0] >> 4, packet[2] if packet[0] >> 4 == 3 else packet[1]
            if kind == 3 and packet[0] & 6:
                answer = b"\x50" if packet[0] & 4 else b"\x40"
                listens._socket.sendall(answer + b"\x02" + struct.pack("!H", number))
            elif kind == 6:
                listens._socket.sendall(b"\x70\x02" + struct.pack("!H", number))
                released = True
        if not released:
            listens._packets.extend(listens._reader.feed(listens._socket.recv(65536)))


def refusals(gateway: Running, tls: int) -> None:
    assert raw(gateway, connect_packet(b"x", level=9))
    raw(gateway, connect_packet(b"much-too-long-for-mqtt-3.1-it-is", 3, b"MQIsdp"))
    raw(gateway, b"\x10\x02\x00\x00")
    raw(gateway)  # says nothing: the connect timeout
    for version in (4, 5):
        with Device("127.0.0.1", gateway.port, "alice", version=version) as wrong:
            assert wrong.connect("alice", b"wrong") in {5, 0x86}
    for guess, reason in ((b"1", 0x86), (b"2", 0x86), (b"3", 0x9F)):
        with Device("127.0.0.1", gateway.port, "guesser", version=5) as guesser:
            assert guesser.connect("mallory", guess) == reason
    for _ in range(30):  # the log says it once and counts the rest
        with pytest.raises(urllib.error.HTTPError):
            gateway.text("/api/v1/me", "guessed")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with pytest.raises((OSError, ProtocolError)):
        Device("127.0.0.1", tls, "nobody", tls=context).connect()
    context.load_cert_chain(gateway.folder / "device.pem", gateway.folder / "device.key")
    Device("127.0.0.1", tls, "somebody", tls=context).close()
    with device(gateway, "denied", 5) as denied:
        assert denied.subscribe("forbidden/#") == 0x87
        with pytest.raises(ProtocolError):
            denied.publish("forbidden/x", b"1")


def ends(gateway: Running) -> None:
    first = device(gateway, "twice")
    with device(gateway, "twice"):
        first._socket.recv(1)
    big = b"\x30" + b"\xff\xff\x7f"
    raw(gateway, connect_packet(b"big"), big)
    raw(gateway, connect_packet(b"breaks"), b"\x20\x02\x00\x00")
    raw(gateway, connect_packet(b"gone"), wait=False)
    kicked = device(gateway, "kicked", 5)
    assert call(gateway, "DELETE", "/clients/kicked/connection") == 204
    kicked._next(14)
    raw(gateway, connect_packet(b"silent", keep_alive=1))


def queues(gateway: Running) -> None:
    with device(gateway, "fills", 5) as each:
        each.publish("lost/x", b"1")
        each.publish("small/1", b"1")
        each.publish("small/2", b"2")
        each.publish("full/1", b"1")
        each.publish("full/2", b"2")
        each.publish("shut/1", b"1")
        each.publish("tight/1", bytes(2000))
        each.publish("numbers/x", b'"text"')
        each.publish("texts/x", b"\xff\xfe")
        each.publish("named/a b", b"1")
        each.publish("nobody/knows", b"1")
    assert call(gateway, "POST", "/dlq/replay", {"reason": 2085, "to": "MQGATE.DEFAULT"}) == 200
    call(gateway, "POST", "/mqsc", {"text": "ALTER QLOCAL(COMMANDS) GET(DISABLED)"})
    call(gateway, "POST", "/queues/COMMANDS/messages", {"text": "never"})


def reloads(gateway: Running) -> None:
    path = gateway.folder / "plant.yaml"
    good = path.read_text()
    path.write_text(good.replace("queue:", "quue:", 1))
    assert call(gateway, "POST", "/reload") == 422
    path.write_text(good)
    assert call(gateway, "POST", "/reload") == 200


def series(gateway: Running) -> dict[str, float]:
    """`name{label=value,...}` by the catalogue's names."""
    found = {}
    for line in gateway.text("/metrics").splitlines():
        match = re.fullmatch(rf"{PREFIX}(\w+?)(?:\{{(.*)\}})? (\S+)", line)
        if match:
            labels = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2] or "")
            found[f"{match[1]}{{{','.join(f'{name}={value}' for name, value in sorted(labels))}}}"] = float(match[3])
    return found


def moved(found: dict[str, float], metric: str, **labels: object) -> bool:
    names = {metric, f"{metric}_total", f"{metric}_count"}
    for key, value in found.items():
        name, _, rest = key.partition("{")
        has = dict(pair.split("=", 1) for pair in rest[:-1].split(",") if "=" in pair)
        if name in names and value and all(has.get(one) == str(wanted) for one, wanted in labels.items()):
            return True
    return False


def wanted() -> Iterator[tuple[str, dict[str, object]]]:
    """(metric, labels): each metric as a whole, and each value of its closed labels."""
    for metric in CATALOGUE:
        if metric.name in MEASURED_ELSEWHERE:
            continue
        yield metric.name, {}
        for label in metric.labels:
            if label.name in CHECKED:
                for value in label.values:
                    if metric.name == "mqtt_packets" and label.name == "type":
                        yield from ((metric.name, {"direction": way, "type": value}) for way in ("in", "out"))
                    else:
                        yield metric.name, {label.name: value}


def said_elsewhere(metric: str, labels: dict[str, object]) -> bool:
    if not labels:
        return False
    text = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
    one = f"{metric}{{{text}}}"
    both = re.sub(r"direction=\w+,", "", one)
    return any(fnmatch(one, pattern) or fnmatch(both, pattern) for pattern in VALUES_ELSEWHERE)


def until(check: Callable[[], list[object]]) -> list[object]:
    """What is still missing after a generous while."""
    deadline = time.monotonic() + 60
    while (missing := check()) and time.monotonic() < deadline:
        time.sleep(0.3)
    return missing


def test_every_series_moves_or_it_is_said_why_not(gateway: tuple[Running, int]) -> None:
    found, tls = gateway
    all_versions(found)
    refusals(found, tls)
    queues(found)
    ends(found)
    reloads(found)

    def missing() -> list[object]:
        now = series(found)
        return [each for each in wanted() if not said_elsewhere(*each) and not moved(now, each[0], **each[1])]

    raw(found, connect_packet(b"returns").replace(b"MQTT\x04\x02", b"MQTT\x04\x00"), b"\xe0\x00")  # its session stays
    with device(found, "old", 3), device(found, "new", 5), device(found, "stays") as stays:
        stays.subscribe("plant/kept", 1)  # and does not acknowledge what is retained there
        stays._socket.sendall(b"\x32\x0c\x00\x07waits/x\x00\x01!")
        still = until(missing)
    assert not still, "\n".join(map(str, still))


def test_every_metric_has_a_series(gateway: tuple[Running, int]) -> None:
    names = {key.partition("{")[0] for key in series(gateway[0])}
    absent = {
        metric.name for metric in CATALOGUE if not names & {metric.name, f"{metric.name}_total", f"{metric.name}_count"}
    }
    buffer = {"spool_messages", "spool_state", "spool_oldest_message_age_seconds"}
    others = {"token_keys_age_seconds", "tls_crl_next_update_timestamp_seconds"}
    assert absent == buffer | others, "only with a buffer, keys for tokens from a URL, a revocation list"


def test_what_is_said_to_be_measured_elsewhere_exists() -> None:
    names = {metric.name for metric in CATALOGUE}
    assert set(MEASURED_ELSEWHERE) <= names
    assert {each.partition("{")[0] for each in VALUES_ELSEWHERE} <= names


def test_every_value_of_a_closed_label_is_raised_somewhere() -> None:
    """A reason that nothing raises is a row of a runbook that nobody ever needs."""
    source = "".join(
        path.read_text() for path in (ROOT / "gateway").rglob("*.py") if path.name not in {"counters.py", "gauges.py"}
    )
    values = {
        str(value)
        for metric in CATALOGUE
        for label in metric.labels
        if label.name in {"reason", "result", "cause", "state"}
        for value in label.values
    }
    assert {value for value in values if not value.startswith("MQRC_") and f'"{value}"' not in source} == set()


def test_labels_that_are_looked_at_are_closed() -> None:
    counters = Counters(Names())
    for metric in CATALOGUE:
        for label in metric.labels:
            if label.name in CHECKED:
                assert isinstance(label, Label)
                assert counters.names.values(label), (metric.name, label.name)


def test_the_folder_of_the_test_is_not_in_the_metrics(gateway: tuple[Running, int]) -> None:
    assert str(Path(gateway[0].folder).name) not in gateway[0].text("/metrics")

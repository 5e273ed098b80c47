"""Things broken on purpose: what the page, the probe and the metrics say of them, and that the runbook's cure works."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import gateway_template
import pytest
from patient_device import Device
from running_gateway import TOKEN, Running, running, until
from test_certificates_live import write_certificate

from gateway.mqtt import writer

pytestmark = pytest.mark.ops

MAPPING = """
version: 1
to_mq:
  - {name: waits, topic: "waits/#", queue: SHUT, on_failure: {retry: {from: 100ms, to: 500ms}, then: hold}}
  - {name: both, topic: "both/#", queue: BOTH, on_failure: {retry: {from: 100ms, to: 500ms}, then: hold}}
  - {name: forgotten, topic: "forgotten/#", queue: FORGOTTEN}
  - {name: full, topic: "full/#", queue: FULL, on_failure: {retry: {from: 100ms, to: 500ms}, then: hold}}
"""
OBJECTS = "DEFINE QLOCAL(SHUT)\nDEFINE QLOCAL(FULL) MAXDEPTH(1)\nDEFINE QLOCAL(BOTH) PUT(DISABLED)\n"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("troubles")
    (folder / "objects.mqsc").write_text(OBJECTS)
    write_certificate(folder, 5)
    listener = "  - {name: tls, port: 0, tls: {certificate: server.pem, key: server.key}}"
    environment = {"MQGATE_QUEUE_MANAGER__EMBEDDED__OBJECTS": str(folder / "objects.mqsc")}
    with running(folder, listener, environment, mapping=MAPPING) as found:
        yield found


def mqgate(gateway: Running, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return gateway_template.run(*words, text=text, cwd=gateway.folder)


def problems(gateway: Running) -> list[str]:
    found: list[str] = json.loads(gateway.text("/api/v1/overview", TOKEN))["problems"]
    return found


def attention(gateway: Running) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(gateway.text("/api/v1/overview", TOKEN))["attention"]
    return found


def probe(gateway: Running, topic: str, timeout: int) -> subprocess.CompletedProcess[str]:
    return mqgate(gateway, "probe", "--port", str(gateway.port), "--topic", topic, "--timeout", str(timeout))


@pytest.mark.parametrize(
    ("topic", "queue", "breaks", "says", "cure"),
    [
        ("waits/x", "SHUT", "ALTER QLOCAL(SHUT) PUT(DISABLED)", "put is inhibited", "ALTER QLOCAL(SHUT) PUT(ENABLED)"),
        ("full/x", "FULL", "", "it is full (1 message)", "ALTER QLOCAL(FULL) MAXDEPTH(100)"),
    ],
)
def test_a_queue_that_refuses_is_named_until_it_is_cured(
    gateway: Running, topic: str, queue: str, breaks: str, says: str, cure: str
) -> None:
    assert probe(gateway, topic, 50).returncode == 0
    broken = mqgate(gateway, "mqsc", "-c", "settings.yaml", text=breaks)
    assert broken.returncode == 0, broken.stdout + broken.stderr
    done = probe(gateway, topic, 5)
    assert done.returncode == 1
    assert "connected, but no acknowledgement" in done.stderr
    (problem,) = until(lambda: [each for each in problems(gateway) if queue in each])
    assert says in problem
    assert "not acknowledged" in problem
    route = topic.partition("/")[0]
    assert f'mqgate_messages_held{{route="{route}"}} 1.0' in gateway.text("/metrics")
    mqgate(gateway, "mqsc", "-c", "settings.yaml", text=cure)
    until(lambda: not [each for each in problems(gateway) if queue in each])
    assert f'mqgate_messages_held{{route="{route}"}} 0.0' in gateway.text("/metrics")
    assert json.loads(gateway.text(f"/api/v1/queues/{queue}", TOKEN))["depth"] == 2, "what was held has been put"


def test_a_queue_that_refuses_at_every_qos_is_named_once_with_all_that_it_holds(gateway: Running) -> None:
    with Device("127.0.0.1", gateway.port, "both") as device:
        device.connect()
        device.publish("both/0", b"x", qos=0)
        device._socket.sendall(writer.encode_publish(4, b"both/1", b"x", 1, packet_id=7))
        (trouble,) = until(lambda: [each for each in attention(gateway) if "2 messages are held" in each["text"]])
        assert trouble["section"] == "queues/BOTH"
        held = json.loads(gateway.text("/api/v1/clients?state=held_back&listener=plain", TOKEN))
        assert [each["client_id"] for each in held["items"]] == ["both"]
        assert json.loads(gateway.text("/api/v1/clients?state=held_back&user=alice", TOKEN))["items"] == []
        mqgate(gateway, "mqsc", "-c", "settings.yaml", text="ALTER QLOCAL(BOTH) PUT(ENABLED)")
        until(lambda: not [each for each in attention(gateway) if "BOTH" in each["text"]])


def test_a_queue_that_nobody_has_defined_is_named_before_anything_is_lost_there(gateway: Running) -> None:
    (problem,) = [each for each in problems(gateway) if "FORGOTTEN" in each]
    assert problem == "queue FORGOTTEN of a rule: MQRC 2085: no queue 'FORGOTTEN': DEFINE QLOCAL('FORGOTTEN') makes one"
    status = mqgate(gateway, "status", "-c", "settings.yaml")
    assert problem in status.stdout
    explain, said = ("explain", "forgotten/x", "-c", "settings.yaml"), "there is no queue FORGOTTEN (2085)"
    assert said in mqgate(gateway, *explain).stdout
    mqgate(gateway, "mqsc", "-c", "settings.yaml", text="DEFINE QLOCAL('FORGOTTEN')")
    assert said not in mqgate(gateway, *explain).stdout
    assert not [each for each in problems(gateway) if "FORGOTTEN" in each]


def test_many_queues_that_are_missing_have_one_sentence_beside_the_first(tmp_path: Path) -> None:
    rules = "".join(f"  - {{name: r{number}, topic: t{number}, queue: Q{number:02}}}\n" for number in range(13))
    with running(tmp_path, mapping=f"version: 1\nto_mq:\n{rules}") as found:
        named = [each for each in problems(found) if "queue" in each]
    assert [each.split()[1] for each in named[:-1]] == [f"Q{number:02}" for number in range(10)]
    assert named[-1] == "3 more queues of rules do not exist"


def test_a_certificate_is_warned_of_before_it_expires(gateway: Running) -> None:
    (problem,) = [each for each in problems(gateway) if "certificate" in each]
    assert problem.startswith("listener tls: its certificate expires in 5 days")


def test_a_command_in_the_wrong_place_says_what_it_wants_to_know(gateway: Running, tmp_path: Path) -> None:
    done = gateway_template.run("dlq", "list", cwd=tmp_path)
    assert done.returncode == 3
    assert "-c FILE" in done.stderr
    assert mqgate(gateway, "dlq", "list", "-c", "settings.yaml").stdout == "no dead letters\n"

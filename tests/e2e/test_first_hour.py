"""What somebody types in the first hour: a start on a terminal, and the commands about the gateway that runs."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from gateways import TREE, RunningGateway

from gateway.cli.main import main
from gateway.version import VERSION

MAPPING = 'version: 1\nto_mq:\n  - {name: up, topic: "up/#", queue: MQGATE.DEFAULT}\n'


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[RunningGateway]:
    (tmp_path / "map.yaml").write_text(MAPPING)
    running = RunningGateway(tmp_path, settings="mappings: [map.yaml]\n")
    try:
        yield running.start()
    finally:
        running.stop()


def mqgate(gateway: RunningGateway, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--data", str(gateway.directory / "data")])


def test_version() -> None:
    assert CliRunner().invoke(main, ["--version"]).output == f"mqgate {VERSION}\n"


def test_status_rules_and_reload(gateway: RunningGateway) -> None:
    status = mqgate(gateway, "status")
    assert status.exit_code == 0, status.output
    assert status.output.startswith(f"ready, mqgate {VERSION}, for ")
    rows = [line.split("\t") for line in mqgate(gateway, "rule", "list").output.splitlines()]
    assert rows[0][:3] == ["rule", "topic", "queue"]
    assert rows[1][:3] == ["up", "up/#", "MQGATE.DEFAULT"]
    file = gateway.directory / "map.yaml"
    file.write_text(MAPPING.replace("up/#", "up/+"))
    assert mqgate(gateway, "reload").output == "reloaded: 1 rule; changed: up\n"
    file.write_text(MAPPING.replace("queue:", "queeu:"))
    refused = mqgate(gateway, "reload")
    assert refused.exit_code == 1
    assert "map.yaml:3:" in refused.output
    assert "did you mean `queue`" in refused.output
    status = mqgate(gateway, "status")
    assert status.exit_code == 1
    assert "! the last reload was refused" in status.output
    assert "map.yaml:3:" in status.output
    file.write_text(MAPPING)
    assert mqgate(gateway, "reload").exit_code == 0
    assert mqgate(gateway, "status").exit_code == 0


def test_a_setting_that_waits_for_a_restart_is_named_until_it_is_in_force(gateway: RunningGateway) -> None:
    settings = gateway.directory / "settings.yaml"
    as_started = settings.read_text()
    said = "not in force yet: mqtt.max_queued: 1000 -> 7 (after a restart)\n"
    settings.write_text(as_started + "mqtt: {max_queued: 7}\n")
    assert mqgate(gateway, "reload").output == f"reloaded: 1 rule, none changed\n{said}"
    assert mqgate(gateway, "status").output.endswith(said)
    settings.write_text(as_started)
    assert mqgate(gateway, "reload").output == "reloaded: 1 rule, none changed\n"
    assert gateway.log.count("max_queued") == 1  # what is in force again needs no restart


def test_a_file_that_has_become_wrong_does_not_hide_the_gateway_that_runs(gateway: RunningGateway) -> None:
    settings = gateway.directory / "settings.yaml"
    settings.write_text(settings.read_text() + "mqtt: {max_qos: 3}\nlog: {level: loud}\n")
    status = mqgate(gateway, "status", "-c", str(settings))
    wrong, first, *_ = status.output.splitlines()
    assert wrong.startswith(f"{settings}: 2 things wrong in it, as `mqgate check` says")
    assert first.startswith("ready, ")
    assert status.exit_code == 0


def test_what_is_put_on_a_topic_or_a_remote_queue_is_said_to_be_put(gateway: RunningGateway) -> None:
    objects = gateway.directory / "objects.mqsc"
    objects.write_text("DEFINE QLOCAL(XMIT) USAGE(XMITQ)\nDEFINE QREMOTE(THERE) RNAME(Q) RQMNAME(QM9) XMITQ(XMIT)\n")
    assert mqgate(gateway, "mqsc", str(objects)).exit_code == 0
    for name in ("THERE", "topic://News/x"):
        done = mqgate(gateway, "queue", "put", name, "hello")
        assert (done.exit_code, done.output) == (0, "put\n")
    assert "hello" in mqgate(gateway, "queue", "browse", "XMIT", "--short").output


def test_a_queue_that_a_rule_consumes_is_in_use_until_the_rule_is_gone(gateway: RunningGateway) -> None:
    objects, file = gateway.directory / "objects.mqsc", gateway.directory / "map.yaml"
    objects.write_text("DEFINE QLOCAL(DOWN)\nDEFINE QALIAS(BELOW) TARGET(DOWN)\n")
    assert mqgate(gateway, "mqsc", str(objects)).exit_code == 0
    down = 'to_mqtt:\n  - {name: down, queue: DOWN, topic: "down/x"}\n'
    both = down + '  - {name: below, queue: BELOW, topic: "below/x"}\n'
    deleting = gateway.directory / "delete.mqsc"
    deleting.write_text("DELETE QLOCAL(DOWN)\n")
    for rules in (both, down):
        file.write_text(MAPPING + rules)
        assert mqgate(gateway, "reload").exit_code == 0
        refused = mqgate(gateway, "mqsc", str(deleting))
        assert refused.exit_code == 1
        assert "AMQ8148E: IBM MQ object DOWN in use: a rule of the gateway takes from it." in refused.output
    assert mqgate(gateway, "queue", "put", "DOWN", "still consumed").exit_code == 0
    until = time.monotonic() + 60
    while gateway.api("GET", "/queues/DOWN")["depth"] and time.monotonic() < until:
        time.sleep(0.05)
    assert gateway.api("GET", "/queues/DOWN")["depth"] == 0
    file.write_text(MAPPING)
    assert mqgate(gateway, "reload").exit_code == 0
    assert mqgate(gateway, "mqsc", str(deleting)).exit_code == 0


def test_without_a_gateway_it_is_said_how_to_start_one(tmp_path: Path) -> None:
    for command in (["status"], ["reload"], ["rule", "list"]):
        done = CliRunner().invoke(main, [*command, "--data", str(tmp_path)])
        assert done.exit_code == 3
        assert "mqgate run" in done.output


def test_a_message_published_and_one_received_by_hand(gateway: RunningGateway) -> None:
    port = ["--port", str(gateway.port)]
    command = [sys.executable, "-m", "gateway", "sub", "down/#", "-n", "1", *port, "--client-id", "hand"]
    environ = {**os.environ, "PYTHONPATH": TREE}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as listener:
        until = time.monotonic() + 60
        while time.monotonic() < until and not gateway.api("GET", "/clients?search=hand")["items"]:
            time.sleep(0.05)
        while time.monotonic() < until and not gateway.api("GET", "/clients/hand")["subscription_list"]:
            time.sleep(0.05)
        assert CliRunner().invoke(main, ["pub", "-t", "down/1", "-m", "hello", "-q", "1", *port]).exit_code == 0
        assert listener.communicate(timeout=60)[0] == "down/1\thello\n"
    done = CliRunner().invoke(main, ["pub", "up/1", "-V", "3.1.1", *port], input="")
    assert done.output.startswith("acknowledged in ")
    assert "3.1.1 acknowledges refused ones too" in done.output
    done = CliRunner().invoke(main, ["pub", "up/1", "--qos", "2", *port], input="from a pipe")
    assert "committed and acknowledged" in done.output
    assert "from a pipe" in mqgate(gateway, "queue", "browse", "MQGATE.DEFAULT").output


def test_what_is_not_permitted_is_not_said_to_be_committed(tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_text(MAPPING)
    running = RunningGateway(tmp_path, settings="mappings: [map.yaml]\nsecurity: {acl: [{publish: [down/x]}]}\n")
    try:
        port = ["--port", str(running.start().port)]
        for command in (["pub", "up/1", "hello"], ["probe", "--topic", "up/1"]):
            done = CliRunner().invoke(main, [*command, *port])
            assert (done.exit_code, "Not authorized" in done.output) == (1, True), done.output
        done = CliRunner().invoke(main, ["pub", "up/1", "hello", "-V", "3.1.1", *port])
        assert "committed" not in done.output
    finally:
        running.stop()


def listening(
    gateway: RunningGateway, client_id: str, *words: str, stdout: int = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    """`mqgate sub`, once all its subscriptions are made."""
    command = [sys.executable, "-m", "gateway", "sub", *words, "--port", str(gateway.port), "--client-id", client_id]
    process = subprocess.Popen(command, stdout=stdout, env={**os.environ, "PYTHONPATH": TREE})
    filters = sum(1 for word in words if word.startswith("down/"))
    until = time.monotonic() + 60
    while time.monotonic() < until:
        known = gateway.api("GET", f"/clients?search={client_id}")["items"]
        if known and len(gateway.api("GET", f"/clients/{client_id}")["subscription_list"]) == filters:
            break
        time.sleep(0.05)
    return process


def publish(gateway: RunningGateway, topic: str, payload: bytes, *words: str) -> None:
    done = CliRunner().invoke(main, ["pub", topic, "--port", str(gateway.port), *words], input=payload)
    assert done.exit_code == 0, done.output


HOSTILE = "a\x1b]0;title\x07\x1b[2Jé\n\u202e".encode() + b"\xff"


def test_what_devices_send_moves_no_cursor(gateway: RunningGateway) -> None:
    leader, follower = pty.openpty()
    with listening(gateway, "hand", "down/1", "-n", "1", stdout=follower) as listener:
        os.close(follower)
        publish(gateway, "down/1", HOSTILE)
        shown = b""
        while b"\n" not in shown:
            shown += os.read(leader, 4096)
        assert listener.wait(60) == 0
    assert shown.decode() == "down/1\ta\\x1b]0;title\\x07\\x1b[2Jé\\n\\u202e\\xff\r\n"
    os.close(leader)


def test_a_pipe_and_raw_get_the_bytes(gateway: RunningGateway) -> None:
    with listening(gateway, "hand", "down/1", "-n", "1") as listener:
        publish(gateway, "down/1", HOSTILE)
        assert listener.communicate(timeout=60)[0] == b"down/1\t" + HOSTILE + b"\n"
    leader, follower = pty.openpty()
    with listening(gateway, "hand", "down/1", "-n", "1", "--raw", stdout=follower) as listener:
        os.close(follower)
        publish(gateway, "down/1", b"\x1b[1mbold")
        shown = b""
        while b"\n" not in shown:
            shown += os.read(leader, 4096)
        assert listener.wait(60) == 0
    assert shown == b"down/1\t\x1b[1mbold\r\n"
    os.close(leader)


def test_qos_2_and_several_filters_with_retained_messages(gateway: RunningGateway) -> None:
    for name in "abc":
        publish(gateway, f"down/{name}", name.encode(), "--retain", "--qos", "2")
    words = ["down/a", "down/b", "down/c", "--qos", "2", "-n", "4"]
    with listening(gateway, "hand", *words) as listener:
        publish(gateway, "down/a", b"again", "--qos", "2")
        lines = sorted(listener.communicate(timeout=60)[0].splitlines())
    assert lines == [b"down/a\ta", b"down/a\tagain", b"down/b\tb", b"down/c\tc"]


def test_nobody_listens() -> None:
    done = CliRunner().invoke(main, ["pub", "a", "b", "--port", "1"])
    assert done.exit_code == 3
    assert "mqgate run" in done.output


def test_a_start_on_a_terminal_writes_text_and_ends_with_address_page_and_token(tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "gateway",
        "run",
        "--port",
        "0",
        "--admin-port",
        "0",
        "--data",
        str(tmp_path / "d"),
    ]
    environ = {**os.environ, "PYTHONPATH": TREE}
    process = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environ, cwd=tmp_path)
    os.close(follower)
    seen = b""
    try:
        while b"token  " not in seen or not seen.endswith(b"\n"):
            seen += os.read(leader, 65536)
        text = seen.decode().replace("\r\n", "\n")
        said = text[text.index("mqgate is ready") :]
        assert '{"ts"' not in text
        assert re.search(r"devices +127\.0\.0\.1:\d+ +\(plain\)", said)
        assert re.search(r"page +http://127\.0\.0\.1:\d+/admin/", said)
        assert (tmp_path / "d" / "admin.token").read_text().strip() in said
    finally:
        process.send_signal(signal.SIGTERM)
        while True:  # what is written at the end has to go somewhere
            try:
                if not os.read(leader, 65536):
                    break
            except OSError:
                break
        process.wait(60)
        os.close(leader)

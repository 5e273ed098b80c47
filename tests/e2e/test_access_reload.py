"""Access lists that change while devices are connected or away, and names that certificates impose."""

from __future__ import annotations

import contextlib
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import NOW, Authority
from gateways import RunningGateway
from patient_device import Device

from gateway.errors import ProtocolError
from gateway.mqtt import client, writer
from gateway.mqtt.packets import Will

OPEN = '[{user: "*", allow: ["#"]}, {anonymous: true, allow: ["#"]}]'
CLOSED = '[{user: "*", deny_subscribe: ["secret/#"], allow: ["#"]}, {anonymous: true, publish: ["#"]}]'


class World:
    """A gateway with certificates as identity and an access list in a file."""

    def __init__(self, directory: Path, naming: str) -> None:
        self.directory = directory
        self.authority = Authority(directory)
        self.server = self.authority.issue("localhost")
        self.device = self.authority.issue("device-7")
        self.lost = self.authority.issue("device-lost")
        self.crl = self.authority.revocation_list()
        (directory / "acl.yaml").write_text(OPEN)
        (directory / "objects.mqsc").write_text("DEFINE QLOCAL(COMMANDS)\n")
        (directory / "commands.yaml").write_text(
            'version: 1\nto_mqtt: [{name: commands, queue: COMMANDS, topic: "{usr.where}/from/queue"}]\n'
        )
        self.gateway = RunningGateway(
            directory,
            settings=f"""
listeners:
  - {{name: plain, port: 0}}
  - {{name: mutual, port: 0, tls: {{certificate: {self.server[0]}, key: {self.server[1]}, crl: {self.crl},
      client_ca: {self.authority.path}, client_certificate: required}}}}
security: {{certificate_user: {naming}, certificate_client_id: true, acl: acl.yaml}}
queue_manager: {{embedded: {{path: {directory}/data, objects: objects.mqsc}}}}
mappings: [commands.yaml]
""",
        )

    def connect(self, client_id: str, identity: tuple[Path, Path], version: int = 5) -> Device:
        """A device with its certificate; not yet a CONNECT."""
        context = ssl.create_default_context(cafile=str(self.authority.path))
        context.load_cert_chain(*identity)
        port = self.gateway.ports()["mutual"]
        return Device("127.0.0.1", port, client_id, version=version, tls=context, server_name="localhost")

    def reload(self) -> int:
        """POST /reload."""
        return int(bool(self.gateway.api("POST", "/reload", {})["ok"]))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("named"), "common_name")
    with made.gateway:
        yield made


def publish(world: World, *topics: str) -> None:
    with Device("127.0.0.1", world.gateway.ports()["plain"], "sender") as sender:
        assert sender.connect() == 0
        for topic in topics:
            sender.publish(topic, topic.encode(), 1)


def test_the_certificate_names_the_client_too(world: World) -> None:
    with world.connect("device-7", world.device) as device:
        assert device.connect() == 0
    with world.connect("", world.device) as device:
        assert device.connect() == 0
    with world.connect("somebody-else", world.device) as device:
        assert device.connect() == 0x85
    assert '"client_id":"device-7"' in world.gateway.log.replace('": "', '":"')


def test_a_connection_ends_with_the_certificate_it_was_made_with(world: World) -> None:
    for seconds in (3, 30):  # the first may be over before it is looked at, on a machine that stands still
        soon = world.authority.issue("device-8", days=(time.time() + seconds - NOW.timestamp()) / 86_400)
        with contextlib.suppress(OSError, ProtocolError), world.connect("device-8", soon) as device:
            if device.connect() == 0:
                with pytest.raises(ProtocolError) as told:
                    device.receive(timeout=60)
                break
    else:
        raise AssertionError("it was not let in")
    assert told.value.reason == 0x87
    with pytest.raises((OSError, ProtocolError)), world.connect("device-8", soon) as device:
        device.connect()


def test_a_list_that_is_reloaded_holds_for_subscriptions_and_for_what_is_queued(world: World) -> None:
    (world.directory / "acl.yaml").write_text(OPEN)
    assert world.reload()
    with world.connect("device-7", world.device, version=4) as device:
        connect = client.connect(4, "device-7")
        connect.clean_start = False
        device._socket.sendall(client.encode_connect(connect))
        assert device._next(2)[1].reason == 0
        assert device.subscribe("secret/#", 1) == 1
        assert device.subscribe("open/#", 1) == 1
    publish(world, "secret/queued", "open/queued")
    before = world.gateway.metric('mqgate_messages_dropped_total{reason="denied"')
    (world.directory / "acl.yaml").write_text(CLOSED)
    assert world.reload()
    with world.connect("device-7", world.device, version=4) as device:
        device._socket.sendall(client.encode_connect(connect))
        assert device.receive() == ("open/queued", b"open/queued"), "what was queued before is asked about again"
        publish(world, "secret/live", "open/live")
        assert device.receive() == ("open/live", b"open/live"), "an old subscription obeys the new list"
    assert world.gateway.metric('mqgate_messages_dropped_total{reason="denied"') == before + 1


def test_retained_messages_and_what_comes_from_queues_are_asked_about_too(world: World) -> None:
    (world.directory / "acl.yaml").write_text(OPEN)
    assert world.reload()
    with Device("127.0.0.1", world.gateway.ports()["plain"], "keeper") as keeper:
        assert keeper.connect() == 0
        for topic in ("secret/kept", "open/kept"):
            keeper.publish(topic, topic.encode(), 1, retain=True)
    (world.directory / "acl.yaml").write_text(CLOSED)
    assert world.reload()
    with world.connect("device-7", world.device) as device:
        assert device.connect() == 0
        assert device.subscribe("#", 1) == 1, "a denial overlaps it: message by message"
        assert device.receive() == ("open/kept", b"open/kept")
        for where in ("secret", "open"):
            world.gateway.api("POST", "/queues/COMMANDS/messages", {"text": where, "properties": {"where": where}})
        assert device.receive() == ("open/from/queue", b"open")
    (world.directory / "acl.yaml").write_text(OPEN)
    assert world.reload()
    with Device("127.0.0.1", world.gateway.ports()["plain"], "keeper") as keeper:
        assert keeper.connect() == 0
        for topic in ("secret/kept", "open/kept"):  # others subscribe to all there is
            keeper.publish(topic, b"", 1, retain=True)


@pytest.mark.parametrize("name", ["settings.yaml", "acl.yaml", "commands.yaml"])
def test_a_file_that_was_emptied_takes_nothing_away(world: World, name: str) -> None:
    file = next(world.gateway.directory.rglob(name))
    (world.directory / "acl.yaml").write_text(CLOSED)
    assert world.reload()
    before = file.read_text()
    file.write_text("")
    try:
        with pytest.raises(urllib.error.HTTPError) as refused:
            world.reload()
        assert refused.value.code == 422
        assert f'{name}", "line": ' in refused.value.read().decode()
        with world.connect("device-7", world.device) as device:
            assert device.connect() == 0
            assert device.subscribe("secret/a", 1) == 0x87, "the list that was in force still is"
    finally:
        file.write_text(before)
    assert world.reload()


def test_a_will_is_asked_about_when_it_is_left_and_when_it_is_published(world: World) -> None:
    def with_will(topic: str) -> tuple[Device, int]:
        device = world.connect("device-7", world.device)
        connect = client.connect(5, "device-7", will=Will(topic, b"gone", 1, retain=False))
        device._socket.sendall(client.encode_connect(connect))
        return device, int(device._next(2)[1].reason)

    silent = '[{user: "*", deny_publish: ["secret/#"], allow: ["#"]}, {anonymous: true, allow: ["#"]}]'
    (world.directory / "acl.yaml").write_text(silent)
    assert world.reload()
    device, reason = with_will("secret/will")
    assert reason == 0x87
    device._socket.close()
    (world.directory / "acl.yaml").write_text(OPEN)
    assert world.reload()
    with Device("127.0.0.1", world.gateway.ports()["plain"], "mourner") as mourner:
        assert mourner.connect() == 0
        assert mourner.subscribe("#", 0) == 0
        secret, reason = with_will("secret/will")
        assert reason == 0
        (world.directory / "acl.yaml").write_text(silent)
        assert world.reload()
        secret._socket.close()  # without DISCONNECT
        other, reason = with_will("open/will")
        assert reason == 0
        other._socket.close()
        assert mourner.receive() == ("open/will", b"gone"), "the first one was asked about again and is not published"


def test_a_list_that_is_wrong_changes_nothing(world: World) -> None:
    (world.directory / "acl.yaml").write_text(CLOSED)
    assert world.reload()
    (world.directory / "acl.yaml").write_text('[{user: "*", alow: ["#"]}]')
    with pytest.raises(urllib.error.HTTPError) as refused:
        world.reload()
    assert refused.value.code == 422
    with world.connect("device-7", world.device) as device:
        assert device.connect() == 0
        assert device.subscribe("open/#", 1) == 1
        assert device.subscribe("secret/#", 1) == 0x87


def test_a_certificate_that_is_revoked_stays_out_after_a_reload(world: World) -> None:
    (world.directory / "acl.yaml").write_text(OPEN)
    with world.connect("device-lost", world.lost) as device:
        assert device.connect() == 0
    world.authority.revoke(world.lost[0])
    assert world.authority.revocation_list() == world.crl
    assert world.reload()
    with contextlib.suppress(OSError, ProtocolError), world.connect("device-lost", world.lost) as device:
        assert device.connect() != 0
    with world.connect("device-7", world.device) as device:
        assert device.connect() == 0
    until = time.monotonic() + 60
    while "TLS:" not in world.gateway.log:
        assert time.monotonic() < until, "the refusal is in the log"
        time.sleep(0.02)
    assert world.gateway.metric('mqgate_mqtt_auth_failures_total{listener="mutual",reason="certificate"}') >= 1
    list_ends = world.gateway.metric('mqgate_tls_crl_next_update_timestamp_seconds{listener="mutual"}')
    assert 4 * 86_400 < list_ends - time.time() < 6 * 86_400


@pytest.mark.parametrize(("naming", "name"), [("subject", "CN=device-7"), ("dns", "localhost")])
def test_the_whole_subject_may_be_the_name_or_an_alternative_one(tmp_path: Path, naming: str, name: str) -> None:
    world = World(tmp_path, naming)
    with world.gateway, world.connect(name, world.device) as device:
        assert device.connect() == 0


def test_rates_hold_for_tls_as_for_plain_connections(tmp_path: Path) -> None:
    world = World(tmp_path, "common_name")
    world.gateway.settings += "limits: {publishes_per_second: 20}\n"
    with world.gateway, world.connect("device-7", world.device, version=4) as device:
        assert device.connect() == 0
        begun = time.monotonic()
        for number in range(1, 5):
            packets = [writer.encode_publish(4, b"a", b"x", 1, packet_id=number * 100 + one) for one in range(20)]
            device._socket.sendall(b"".join(packets))
            for _ in range(20):
                device._next(4)
        assert time.monotonic() - begun > 1.5


def test_other_hosts_are_not_let_in_without_a_word(tmp_path: Path) -> None:
    settings = "listeners: [{name: open, port: 0, bind: 0.0.0.0}]\n"
    with pytest.raises(AssertionError, match="nobody could connect to listener `open`"):
        RunningGateway(tmp_path, settings=settings).start()
    said = settings.replace("0.0.0.0}", "0.0.0.0, anonymous: true}")
    with RunningGateway(tmp_path, settings=said) as gateway:
        assert "clients on 0.0.0.0 may connect without credentials" in gateway.log
        assert "are not encrypted" in gateway.log

"""Rules that put to other queue managers directly: real ones on loopback."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import gateway_template
import pytest
from bridge_estate import Talker, wait
from target_estate import MAPPING, ROOT, Estate

from gateway.mqtt import packets as p
from gateway.mqtt import properties as prop
from gateway.mqtt import writer
from gateway.ports.state_queues import MARKERS

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(300)]

LONG = pytest.mark.skipif(not os.environ.get("MQGATE_LONG"), reason="takes seconds of waiting; with tests/run --long")


@pytest.fixture(params=["embedded", "ibm"])
def estate(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Estate]:
    made = Estate(tmp_path, request.param)
    yield made
    made.end()


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Estate]:
    made = Estate(tmp_path, "embedded")
    yield made
    made.end()


def talker(estate: Estate, name: str = "device") -> Talker:
    return Talker(estate.gateway.port, name, clean=False)


def send(one: Talker, topic: str, payload: bytes, qos: int, packet_id: int) -> None:
    """Without waiting for an answer."""
    packet = writer.encode_publish(5, topic.encode(), payload, qos, packet_id=packet_id, properties=prop.encode({}))
    one.socket.sendall(packet)


def test_publications_lie_at_the_target_when_they_are_acknowledged(estate: Estate) -> None:
    estate.start()
    with talker(estate) as device:
        for number in range(9):
            assert device.publish("there/a", b"%d" % number, number % 3) == 0
        assert device.publish("both/a", b"both", 1) == 0
        assert device.publish("both/a", b"both", 2) == 0
    assert estate.there.bodies("THERE") == [b"%d" % number for number in range(9)] + [b"both", b"both"]
    assert len(estate.there.bodies(MARKERS)) <= 2, "that of the connection, and that of the last unit"
    if estate.here is not None:
        assert estate.here.bodies("HERE") == [b"both", b"both"]


def test_a_target_that_is_away_holds_back_only_what_goes_to_it(embedded: Estate) -> None:
    estate = embedded
    estate.start()
    with talker(estate) as held, talker(estate, "other") as other:
        assert held.publish("there/a", b"0", 1) == 0
        estate.there.kill()
        for number in (1, 2):
            send(held, "there/a", b"%d" % number, 1, 100 + number)
        for number in range(20):
            assert other.publish("here/a", b"%d" % number, number % 3) == 0
        wait(lambda: "target QM2: away" in estate.ready(), 60)
        assert estate.ready().endswith("\nok\n"), "the gateway takes devices all the same"
        assert not [packet for packet in held.packets if packet[0] >> 4 == p.PUBACK]
        estate.there.start()
        for _ in (1, 2):
            held.next(p.PUBACK, 60)
        estate.until_connected()
    assert estate.there.bodies("THERE")[:3] == [b"0", b"1", b"2"]


def test_a_gateway_killed_between_the_two_commits_puts_a_qos_2_message_once(embedded: Estate) -> None:
    estate = embedded
    estate.start("target.committed")
    device = talker(estate)
    send(device, "there/a", b"once", 2, 7)
    device.next(p.PUBREC)
    device.socket.sendall(writer.encode_acks(p.PUBREL, [7]))
    estate.gateway.wait_killed()
    assert estate.there.bodies("THERE") == [b"once"]
    estate.start()
    back = talker(estate)
    back.socket.sendall(writer.encode_acks(p.PUBREL, [7]))
    back.next(p.PUBCOMP)
    assert back.publish("there/a", b"next", 2) == 0
    assert estate.there.bodies("THERE") == [b"once", b"next"]


def test_a_gateway_that_takes_over_puts_no_qos_2_message_again(tmp_path: Path) -> None:
    """It has been connected to the target all the time: it reads the marker of the one that died."""
    estate = Estate(tmp_path, "ibm", "lease: 6s, ")  # both live for a while: neither is to be taken for dead
    try:
        heir = estate.add_gateway("heir")
        estate.start("target.committed")
        heir.start()
        wait(lambda: "target QM2\n" in heir.get("/readyz"), 60)
        device = talker(estate)
        send(device, "there/a", b"once", 2, 7)
        device.next(p.PUBREC)
        device.socket.sendall(writer.encode_acks(p.PUBREL, [7]))
        estate.gateway.wait_killed()
        assert estate.there.bodies("THERE") == [b"once"]
        with Talker(heir.port, "device", clean=False) as back:
            back.socket.sendall(writer.encode_acks(p.PUBREL, [7]))
            back.next(p.PUBCOMP, 60)
            assert back.publish("there/a", b"next", 2) == 0
        assert estate.there.bodies("THERE") == [b"once", b"next"]
    finally:
        heir.kill()
        estate.end()


def test_kills_of_both_double_no_qos_2_message_and_lose_none(embedded: Estate) -> None:
    """The target is killed while messages go there, and the gateway is killed while it is away."""
    estate = embedded
    estate.start()
    expected = []
    for turn in range(12) if os.environ.get("MQGATE_LONG") else (1, 2):
        device = talker(estate)
        bodies = [b"%d:%d" % (turn, number) for number in range(20)]
        for number, body in enumerate(bodies):
            send(device, "there/a", body, 2, 1 + number)
        for _ in bodies:
            device.next(p.PUBREC, 60)
        device.socket.sendall(writer.encode_acks(p.PUBREL, range(1, 21)))
        if turn % 3 != 1:
            estate.there.kill()
        if turn % 3:
            estate.gateway.kill()
        device.socket.close()
        if turn % 3 != 1:
            estate.there.start()
        if turn % 3:
            estate.start()
        back = talker(estate)
        back.socket.sendall(writer.encode_acks(p.PUBREL, range(1, 21)))
        for _ in bodies:
            back.next(p.PUBCOMP, 60)
        back.close()
        expected += bodies
    assert sorted(estate.there.bodies("THERE")) == sorted(expected)


def test_of_several_targets_one_that_is_killed_keeps_only_what_it_may_have(tmp_path: Path) -> None:
    estate = Estate(tmp_path, "embedded", third=True)
    try:
        estate.start()
        expected: list[bytes] = []
        for turn in range(8 if os.environ.get("MQGATE_LONG") else 1):
            killed = estate.there if turn % 2 else estate.third
            bodies = [b"%d:%d" % (turn, number) for number in range(20)]
            with talker(estate) as device, talker(estate, "other") as other:
                for number, body in enumerate(bodies):
                    send(device, "turns/a", body, 2, 1 + number)
                for _ in bodies:
                    device.next(p.PUBREC, 60)
                for number in range(1, 21):
                    device.socket.sendall(writer.encode_acks(p.PUBREL, [number]))
                killed.kill()
                for number in range(10):
                    assert other.publish("turns/a", b"other %d %d" % (turn, number), 1) == 0
                killed.start()
                for _ in bodies:
                    device.next(p.PUBCOMP, 60)
            expected += bodies
            estate.until_connected()
        found = estate.there.bodies("THERE") + estate.third.bodies("THERE")
        assert sorted(body for body in found if b"other" not in body) == sorted(expected)
        assert len({body for body in found if b"other" in body}) == len(expected) // 2
    finally:
        estate.end()


@LONG
def test_a_target_that_stands_still_is_given_up_and_what_it_did_counts(embedded: Estate) -> None:
    estate = embedded
    estate.start()
    with talker(estate) as held, talker(estate, "other") as other:
        estate.there.stop()
        send(held, "there/a", b"1", 1, 1)
        assert other.publish("here/a", b"x", 1) == 0
        wait(lambda: "target QM2: away" in estate.ready(), 60)
        estate.there.go_on()
        held.next(p.PUBACK, 60)
    assert estate.there.bodies("THERE") == [b"1"]


@LONG
def test_what_the_target_refuses_is_dead_lettered_here(embedded: Estate) -> None:
    estate = embedded
    (estate.place / "edge" / "map.yaml").write_text(MAPPING.replace("queue: THERE", "queue: NO.SUCH"))
    estate.start()
    with talker(estate) as device:
        assert device.publish("there/a", b"lost?", 1) == 0
    assert 'mqgate_dlq_messages_total{reason="unknown_queue",route="there"} 1.0' in estate.gateway.get("/metrics")


Checked = Callable[[str], tuple[int, str]]


@pytest.fixture
def check(tmp_path: Path) -> Checked:
    def run(text: str) -> tuple[int, str]:
        (tmp_path / "settings.yaml").write_text(text)
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = gateway_template.run("check", "settings.yaml", cwd=tmp_path, env=environ)
        return done.returncode, done.stdout + done.stderr

    return run


def test_mistakes_are_told_with_their_place(check: Checked) -> None:
    code, said = check('targets:\n  QM2: {connection: "mq2(1414)"}\n  QM3: {conection: "unix:/a"}\n')
    assert code == 1
    assert "settings.yaml:2:8: nothing says which channel to use: give `channel`" in said
    assert "settings.yaml:3:9:" in said
    assert "connection" in said
    code, said = check('queue_manager: {embedded: {name: QM2}}\ntargets: {QM2: {connection: "unix:/a"}}\n')
    assert code == 1
    assert "settings.yaml:2:16: target `QM2` is the queue manager of the gateway itself" in said
    code, said = check('targets: {A: {connection: "unix:/a"}, B: {connection: "b(1)", channel: C}}\n')
    assert code == 1
    assert "give connections of one kind" in said


def test_names_that_are_no_targets_are_told_without_connecting(check: Checked, tmp_path: Path) -> None:
    target = '{connection: "mq(1414)", channel: C}'
    rules = tmp_path / "map.yaml"
    rules.write_text(
        'version: 1\nto_mq:\n  - {name: a, topic: "a/#", queue: A, queue_manager: [QM2, QM22]}\n'
        '  - {name: b, topic: "b/#", queue: B, queue_manager: qm2}\n'
    )
    settings = f"targets:\n  QM2: {target}\n  QM4: {target}\nmappings: [map.yaml]\n"
    code, said = check(settings)
    assert code == 1
    assert "map.yaml:3:54: rule 'a': `QM22` is not a target: the settings have `QM2`, `QM4`: did you mean" in said
    assert "map.yaml:4:54: rule 'b': `qm2` is not a target: its messages go by way of the gateway's own" in said
    rules.write_text('version: 1\nto_mq:\n  - {name: a, topic: "a/#", queue: A, queue_manager: [QM2]}\n')
    code, said = check(settings)
    assert code == 0
    rules.write_text("version: 1\nto_mqtt:\n  - {name: a, topic: t, queue: A, queue_manager: QM3}\n")
    refused = check(settings)
    assert refused[0] == 1
    assert "map.yaml:3:50: rule 'a': `QM3` is not a target: the settings have `QM2`, `QM4`" in refused[1]
    assert "no rule puts to the target `QM4`, or consumes from it: name it in a rule's `queue_manager`, or rem" in said

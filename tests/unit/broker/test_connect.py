"""gateway.broker.sessions.connect: who is answered how, and when, while it is found out who he is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from broker_harness import Device, Harness

from gateway.broker.sessions import early
from gateway.mqtt import client, writer
from gateway.mqtt import packets as p
from gateway.ports.access import Verdict

METHOD, DATA, LARGEST = 0x15, 0x16, 0x27


class Slow:
    """Access control that answers when the test says so."""

    def __init__(self, bench: Harness) -> None:
        self.done: list[Callable[[Verdict], None]] = []
        self.exchanges: list[object] = []
        bench.engine.context.access.authenticate = lambda _connect, _link, done: self.done.append(done)  # type: ignore[method-assign]
        bench.engine.context.access.exchange = self._exchange  # type: ignore[method-assign]

    def _exchange(self, connection: Any, _data: bytes, done: Callable[[Verdict], None]) -> None:
        self.exchanges.append(connection.exchange)
        self.done.append(done)


@pytest.fixture
def bench() -> Harness:
    return Harness(connect_timeout=2.0)


def code(device: Device) -> int:
    ((first, connack),) = device.take()
    assert first == 0x20
    return int(connack.reason)


@pytest.mark.parametrize(("version", "said"), [(3, 5), (4, 5), (5, 0x86)])
def test_a_refusal_that_is_held_back_beyond_the_timeout_is_said_before_the_end(
    bench: Harness, version: int, said: int
) -> None:
    access, device = Slow(bench), bench.device(version, "d")
    device.connect()
    access.done[0](Verdict(0x86 if version == 5 else 0x87, text="wrong", after=60.0))
    assert not device.take()
    bench.advance(4.5)
    assert not device.wire.closed, "it waits for us"
    bench.advance(1.0)
    assert code(device) == said
    assert device.wire.closed
    assert bench.engine.counters.mqtt_auth_failures["bench", "credentials"] == 1


def test_a_refusal_is_held_back_as_long_as_it_says(bench: Harness) -> None:
    access, device = Slow(bench), bench.device(4, "d")
    device.connect()
    access.done[0](Verdict(0x87, after=1.0))
    bench.advance(0.75)
    assert not device.wire.closed
    bench.advance(0.5)
    assert code(device) == 5


@pytest.mark.parametrize(("version", "said"), [(3, 3), (4, 3), (5, 0x89)])
def test_a_password_that_is_not_checked_in_time_is_answered_too(bench: Harness, version: int, said: int) -> None:
    access, device = Slow(bench), bench.device(version, "d")
    device.connect()
    bench.advance(4.5)
    assert not device.wire.closed
    bench.advance(1.0)
    assert code(device) == said
    access.done[0](Verdict(0))
    assert not bench.engine.sessions.get("d")


def test_who_says_nothing_in_an_exchange_is_refused_in_time(bench: Harness) -> None:
    access, device = Slow(bench), bench.device(5, "d")
    device.connect(properties={METHOD: "X"})
    access.done[0](Verdict(0x18, data=b"challenge", exchange=object()))
    device.take()
    bench.advance(2.5)
    assert code(device) == 0x87


def test_what_an_exchange_needs_goes_with_its_connection(bench: Harness) -> None:
    access, device = Slow(bench), bench.device(5, "d")
    device.connect(properties={METHOD: "X"})
    state = object()
    access.done[0](Verdict(0x18, exchange=state))
    device.send(writer.encode_auth(p.Auth(0x18, {METHOD: "X", DATA: b"proof"})))
    assert access.exchanges == [state]
    assert device.connection.exchange is state
    device.drop()
    assert device.connection.exchange is None


def test_guesses_that_are_not_looked_at_have_a_count_of_their_own(bench: Harness) -> None:
    access, device = Slow(bench), bench.device(5, "d")
    device.connect()
    access.done[0](Verdict(0x9F, after=1.0))
    bench.advance(1.5)
    assert code(device) == 0x9F
    counters = bench.engine.counters
    assert counters.mqtt_auth_failures["bench", "guessing"] == 1
    assert counters.mqtt_auth_failures["bench", "credentials"] == 0
    assert counters.mqtt_connects["bench", "5.0", "too_many"] == 1


def test_a_proof_that_was_wrong_again_ends_a_live_connection_later_and_nothing_else_is_taken(bench: Harness) -> None:
    access, device = Slow(bench), bench.device(5, "d")
    device.connect(properties={METHOD: "X"})
    access.done[0](Verdict(0))
    device.take()
    for _ in range(5):
        device.send(writer.encode_auth(p.Auth(0x19, {METHOD: "X", DATA: b"proof"})))
        if len(access.done) == 2:
            access.done[1](Verdict(0x87, after=1.0))
    assert len(access.done) == 2
    bench.advance(1.5)
    ((first, end),) = device.take()
    assert (first, end.reason) == (0xE0, 0x87)


def test_authentication_again_begins_with_0x19_whenever_and_goes_on_with_0x18_mqtt_4_12_0_3(bench: Harness) -> None:
    access, device = Slow(bench), bench.device(5, "d")
    device.connect(properties={METHOD: "X"})
    access.done[0](Verdict(0))
    steps = ((0x19, None, "a"), (0x18, "a", "b"), (0x19, None, "c"), (0x18, "c", None))
    for reason, known, afterwards in steps:
        device.send(writer.encode_auth(p.Auth(reason, {METHOD: "X", DATA: b"step"})))
        assert access.exchanges[-1] == known
        access.done[-1](Verdict(0x18 if afterwards else 0, exchange=afterwards))
    device.take()
    device.send(writer.encode_auth(p.Auth(0x18, {METHOD: "X", DATA: b"step"})))
    ((first, end),) = device.take()
    assert (first, end.reason, len(access.done)) == (0xE0, 0x82, 5), "nothing goes on"


@pytest.mark.parametrize("again", [False, True])
def test_authentication_again_has_as_long_as_connect_mqtt_4_12_1_2(bench: Harness, again: bool) -> None:
    """However often the client begins it anew; one that has ended in time is no part of it."""
    access, device = Slow(bench), bench.device(5, "d")
    device.connect(properties={METHOD: "X"})
    access.done[0](Verdict(0))
    for ends in (True, False):
        device.send(writer.encode_auth(p.Auth(0x19, {METHOD: "X", DATA: b"first"})))
        access.done[-1](Verdict(0x18, exchange="goes on"))
        bench.advance(1.5)
        if ends or again:
            device.send(writer.encode_auth(p.Auth(0x18 if ends else 0x19, {METHOD: "X", DATA: b"more"})))
            access.done[-1](Verdict(0 if ends else 0x18, exchange=None if ends else "anew"))
        bench.advance(0.25)
    device.take()
    device.wire.waits = True
    bench.advance(0.5)
    assert not device.wire.closed, "it may have sent it"
    device.wire.waits = False
    bench.advance(0.25)
    ((first, end),) = device.take()
    assert (first, end.reason, end.properties[0x1F]) == (0xE0, 0x87, "no AUTH came in time")
    assert device.wire.closed


def test_a_proof_that_is_not_looked_at_in_time_is_told_that_the_server_is_busy(bench: Harness) -> None:
    access, device = Slow(bench), bench.device(5, "d")
    device.connect(properties={METHOD: "X"})
    access.done[0](Verdict(0))
    device.take()
    device.send(writer.encode_auth(p.Auth(0x19, {METHOD: "X", DATA: b"token"})))
    bench.advance(4.5)
    assert not device.wire.closed, "it waits for us"
    bench.advance(1.0)
    ((first, end),) = device.take()
    assert (first, end.reason) == (0xE0, 0x89)
    access.done[1](Verdict(0))
    assert device.wire.closed


def test_of_two_proofs_the_one_that_came_last_holds_mqtt_4_12_1_1(bench: Harness) -> None:
    """Whichever takes longer to look at, as a token does for whose keys somebody else is asked."""
    access, device = Slow(bench), bench.device(5, "d")
    device.connect(properties={METHOD: "X", DATA: b"token"})
    access.done[0](Verdict(0, "d", expires=bench.engine.context.now + 9))
    assert code(device) == 0
    for _ in range(2):
        device.send(writer.encode_auth(p.Auth(0x19, {METHOD: "X", DATA: b"another"})))
    assert len(access.done) == 2, "the second is not looked at before the first is decided"
    access.done[1](Verdict(0, "d", expires=bench.engine.context.now + 3))
    access.done[2](Verdict(0, "d", expires=bench.engine.context.now + 60))
    assert [first >> 4 for first, _ in device.take()] == [p.AUTH, p.AUTH]
    bench.advance(30.0)
    assert not device.wire.closed
    bench.advance(31.0)
    assert device.wire.closed


def test_auth_that_was_not_asked_for_is_no_step_of_a_connect_mqtt_4_12_0_3(bench: Harness) -> None:
    access, device = Slow(bench), bench.device(5, "d")
    device.connect(properties={METHOD: "X"})
    device.send(writer.encode_auth(p.Auth(0x18, {METHOD: "X", DATA: b"step"})))
    assert code(device) == 0x82
    assert len(access.done) == 1


@pytest.mark.parametrize("live", [False, True])
def test_auth_is_no_larger_than_the_client_takes_mqtt5_3_1_2_24(bench: Harness, live: bool) -> None:
    access, device = Slow(bench), bench.device(5, "d")
    device.connect(properties={METHOD: "X", LARGEST: 100})
    if live:
        access.done[0](Verdict(0))
        device.take()
        device.send(writer.encode_auth(p.Auth(0x19, {METHOD: "X", DATA: b"step"})))
    access.done[-1](Verdict(0x18, data=bytes(90), exchange="challenge"))
    ((first, end),) = device.take()
    assert (first, end.reason) == (0xE0 if live else 0x20, 0x87)
    assert device.wire.closed


@pytest.mark.parametrize(("reason", "told"), [(0x85, 0x87), (0x88, 0x87), (0x89, 0x89), (0x9F, 0x9F)])
def test_a_reason_of_connack_alone_is_not_said_in_disconnect_mqtt_3_14_2_1(
    bench: Harness, reason: int, told: int
) -> None:
    access, device = Slow(bench), bench.device(5, "d")
    device.connect(properties={METHOD: "X"})
    access.done[0](Verdict(0))
    device.take()
    device.send(writer.encode_auth(p.Auth(0x19, {METHOD: "X", DATA: b"step"})))
    access.done[1](Verdict(reason))
    ((first, end),) = device.take()
    assert (first, end.reason) == (0xE0, told)


@pytest.mark.parametrize(("sent", "told"), [("", "device-7"), ("device-7", None)])
def test_an_identifier_that_was_given_is_told_mqtt5_3_1_3_7(bench: Harness, sent: str, told: str | None) -> None:
    access, device = Slow(bench), bench.device(5, sent)
    device.connect()
    access.done[0](Verdict(0, "device-7", client_id="device-7"))
    ((_, connack),) = device.take()
    assert connack.properties.get(0x12) == told
    assert bench.engine.sessions.get("device-7")


def test_little_is_kept_of_who_is_refused_later(bench: Harness) -> None:
    access, device = Slow(bench), bench.device(5, "d" * 20_000)
    big = [("k" * 1000, "v" * 1000)] * 20
    device.connect(will=p.Will("w", b"x" * 30_000, 1, retain=False), properties={0x26: big, 0x27: 100})
    device.publish("a", b"x" * 30_000)
    access.done[0](Verdict(0x86, after=1.0, text="a reason string that has no room in a packet of this size" * 3))
    request = device.connection.request
    assert (len(request.client_id), request.will, request.password) == (256, None, None)
    assert request.properties == {0x27: 100}
    assert not device.connection.early
    device.publish("a", b"x" * 30_000)
    device.send(writer.encode_disconnect(5, p.Disconnect()))
    assert not device.connection.early
    bench.advance(1.5)
    assert code(device) == 0x86


def test_what_is_behind_a_connect_is_kept_as_it_came_until_that_is_decided(bench: Harness) -> None:
    access, device = Slow(bench), bench.device(5, "d")
    device.connect()
    filters = client.encode_subscribe(5, p.Subscribe(1, [p.Subscription(f"{n}", 1) for n in range(2000)]))
    for at in range(0, len(filters), 999):
        device.send(filters[at : at + 999])
    assert device.connection.early == filters
    assert bench.engine.context.strangers == len(filters)
    device.send(writer.encode_publish(5, b"0", b"behind", 1, packet_id=7))
    access.done[0](Verdict(0))
    device.publish("0", b"later", 1, 8)
    bench.advance(1)
    assert device.connection.early == b""
    assert bench.engine.context.strangers == 0
    found = device.take()
    assert [packet[0] >> 4 for packet in found[:2]] == [p.CONNACK, p.SUBACK]
    assert [packet[1] for packet in found if packet[0] >> 4 == p.PUBACK] == [7, 8]
    assert [packet[4] for packet in found if packet[0] >> 4 == p.PUBLISH] == [b"behind", b"later"]


def test_strangers_keep_little_together_and_nobody_from_connecting(
    bench: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early, "MOST_TOGETHER", 250_000)
    access = Slow(bench)
    strangers = [bench.device(5, f"stranger-{one}").connect() for one in range(4)]
    half = bench.device(5, "half")
    half.send(b"\x10\xff\xff\x07" + bytes(50_000))
    for one in strangers:
        one.publish("a", bytes(90_000))
    assert [one.wire.closed for one in strangers] == [False, False, True, True]
    assert code(strangers[2]) == 0x97
    other = bench.device(5, "other").connect()
    other.publish("a", bytes(1000))
    access.done[-1](Verdict(0))
    assert code(other) == 0
    for one in (*strangers, half):
        one.drop()
    assert bench.engine.context.strangers == 0


@pytest.mark.parametrize("piece", [1, 5, 1000])
def test_auth_and_disconnect_alone_are_taken_in_an_exchange(bench: Harness, piece: int) -> None:
    access, device = Slow(bench), bench.device(5, "d")
    device.connect(properties={METHOD: "X"})
    access.done[0](Verdict(0x18, data=b"go on", exchange="begun"))
    data = writer.encode_auth(p.Auth(0x18, {METHOD: "X", DATA: b"proof"})) + b"\xc0\x00"
    for at in range(0, len(data), piece):
        device.send(data[at : at + piece])
    assert access.exchanges == ["begun"]
    assert not device.connection.early
    access.done[1](Verdict(0))
    bench.advance(1)
    auth, connack = device.take()
    assert (auth[0] >> 4, connack[0] >> 4, connack[1].reason) == (p.AUTH, p.CONNACK, 0x82)
    assert device.wire.closed


@pytest.mark.parametrize("version", [4, 5])
def test_a_connection_ends_with_its_certificate(bench: Harness, version: int) -> None:
    device = bench.device(version, "d")
    device.wire.certificate_ends = bench.clock.now() + 2
    device.connect()
    device.take()
    bench.advance(1.5)
    assert not device.wire.closed
    bench.advance(1)
    assert [one[1].reason for one in device.take()] == [0x87] * (version == 5)
    assert device.wire.closed
    assert device.connection.close_reason == "its certificate has ended"


@pytest.mark.parametrize(("largest", "told"), [(4, []), (5, [0x95]), (9, [0x95])])
def test_a_connect_without_room_for_its_connack_is_refused_and_changes_nothing(
    bench: Harness, largest: int, told: list[int]
) -> None:
    older = bench.device(5, "d").connect(clean=False, will=p.Will("w", b"x", 1, retain=False))
    older.take()
    device = bench.device(5, "d").connect(clean=False, properties={LARGEST: largest})
    assert [packet.reason for _, packet in device.take()] == told
    assert device.wire.closed
    assert device.connection.rejected, "it is a line of the log"
    assert "no room for CONNACK" in device.connection.close_reason
    assert not older.wire.closed
    assert bench.engine.context.sessions.get("d").connection is older.connection


@pytest.mark.parametrize("connack_sent", [True, False])
@pytest.mark.parametrize("behind", [b"\xe0\x00", b"\xf0\x00"], ids=["DISCONNECT", "a wrong packet"])
def test_the_socket_of_who_has_gone_waits_for_a_commit_no_longer_than_a_connect(
    bench: Harness, connack_sent: bool, behind: bytes
) -> None:
    """It counts as no connection any more: as many as one likes could be opened so while a queue manager is away."""
    bench.queues.automatic = connack_sent
    device = bench.device(4, "d").connect(clean=False)
    bench.queues.automatic = False
    device.publish("a", b"", 1, 1)
    device.send(behind)
    assert bench.engine.context.departing or device.wire.closed
    bench.advance(4.0)
    assert not device.wire.closed or (connack_sent and behind[0] == 0xF0)
    bench.advance(2.0)
    assert device.wire.closed
    assert not bench.engine.context.departing
    bench.queues.automatic = True
    while bench.queues.commit():
        pass
    assert not bench.engine.context.connections


def test_a_socket_that_its_client_closes_first_is_kept_nowhere(bench: Harness) -> None:
    device = bench.device(4, "d").connect(clean=False)
    bench.queues.automatic = False
    device.publish("a", b"", 1, 1)
    device.disconnect()
    device.drop()
    assert not bench.engine.context.departing


def test_nothing_that_was_to_go_with_its_connack_is_kept_of_one_whose_commit_has_not_come_back(bench: Harness) -> None:
    context, other = bench.engine.context, bench.device(4, "other").connect()
    bench.queues.automatic = False
    device = bench.device(4, "d").connect(clean=False)
    device.subscribe("a", 0)
    other.publish("a", b"x" * 100)
    assert context.behind_connacks
    device.disconnect()
    bench.advance(6.0)
    assert device.wire.closed
    assert context.behind_connacks == 0
    bench.queues.automatic = True
    while bench.queues.commit():
        pass
    assert context.behind_connacks == 0

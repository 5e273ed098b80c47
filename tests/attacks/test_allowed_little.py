"""A client with an account that may do little and tries everything: it gets nothing of others, and they stay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gateways import RunningGateway

from gateway.mqtt import client, writer
from gateway.mqtt import packets as p
from gateway.mqtt import reasons as r
from gateway.mqtt.packets import Subscribe, Subscription, Will

SETTINGS = """
security:
  anonymous: false
  users: {eve: {password_file: eve.pw}, bob: {password_file: bob.pw}}
  acl: [{user: eve, publish: ["eve/#"], subscribe: ["eve/#"]}, {user: bob, allow: ["#"]}]
"""


class Client:
    """A connection of one of the two."""

    def __init__(self, gateway: RunningGateway, user: str, name: str, will: Will | None = None) -> None:
        self.socket = gateway.connect()
        self.reader = client.server_reader(5)
        connect = client.connect(5, name, will=will)
        connect.username, connect.password = user, user.encode()
        self.reason = self.asked(client.encode_connect(connect))[0][1].reason
        if self.reason:
            self.socket.close()

    def asked(self, data: bytes) -> list[Any]:
        """What comes for it, at least one packet."""
        self.socket.sendall(data)
        found: list[Any] = []
        while not found:
            more = self.socket.recv(65_536)
            assert more, "the gateway closed the connection"
            found += self.reader.feed(more)
        return found

    def close(self) -> None:
        self.socket.close()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    directory: Path = tmp_path_factory.mktemp("little")
    for user in ("eve", "bob"):
        (directory / f"{user}.pw").write_text(f"{user}\n")
    with RunningGateway(directory, settings=SETTINGS) as running:
        yield running


@pytest.mark.parametrize("filter_", [
    "#", "+/#", "+/+", "secret/#", "/eve/#", "+/1", "$SYS/#", "$CONTROL/#", "$queue/secret/#", "$share/g/#",
    "$share/g/secret/1", "$share/g/$share/h/secret/#", "$share//eve/#", "$share/a+b/eve/#", "$share/g",
])  # fmt: skip
def test_no_filter_reaches_beyond_what_is_allowed(gateway: RunningGateway, filter_: str) -> None:
    eve = Client(gateway, "eve", "eve")
    answer = eve.asked(client.encode_subscribe(5, Subscribe(1, [Subscription(filter_, 1)])))[0][1]
    assert answer.reasons[0] in {r.NOT_AUTHORIZED, r.TOPIC_FILTER_INVALID}
    eve.close()


@pytest.mark.parametrize("topic", ["secret/1", "EVE/1", "/eve/1", "$SYS/x", "$share/g/eve/1"])
def test_no_topic_beyond_what_is_allowed_is_published_to(gateway: RunningGateway, topic: str) -> None:
    eve = Client(gateway, "eve", "eve")
    raw = writer.encode_publish(5, topic.encode(), b"", 1, retain=True, packet_id=7)
    assert eve.asked(raw)[0][:3] == (p.PUBACK << 4, 7, r.NOT_AUTHORIZED)
    eve.close()
    if not topic.startswith("$"):  # a will there is dropped, since bridges leave one
        assert Client(gateway, "eve", "dying", Will(topic, b"", 1, retain=True)).reason == r.NOT_AUTHORIZED


def test_another_users_session_is_not_taken_over(gateway: RunningGateway) -> None:
    bob = Client(gateway, "bob", "bob")
    assert Client(gateway, "eve", "bob").reason == r.CLIENT_IDENTIFIER_NOT_VALID
    assert bob.asked(b"\xc0\x00")[0][0] >> 4 == p.PINGRESP
    bob.close()

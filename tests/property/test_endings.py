"""The end of a connection, whatever it is and whenever it is seen: all that its client had sent is taken, in order and
once, its will is published unless it said DISCONNECT, and the hub is not told of it again and again."""

from __future__ import annotations

import contextlib
import socket
import struct

from hub_rig import Rig
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.mqtt import client, writer
from gateway.mqtt.packets import Disconnect
from gateway.net.hub_socket import HubSocket
from gateway.net.wire import poll_sockets

STEPS = st.sampled_from(
    ["send", "send much", "turn", "pause", "go on", "go on in a turn", "hold", "let go", "write", "write much"]
)
ENDS = st.sampled_from(["close", "reset", "half"])
BYE = writer.encode_disconnect(4, Disconnect())
LEAST_ROUNDS = 5
"""Turns after which nothing new is seen by itself."""


class Life(Rig):
    """One connection, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = 0
        self.held = False

    def step(self, name: str) -> None:
        put_off = self.harness.engine.put_off
        if name in {"pause", "go on"}:
            self.hub.pause(paused=name == "pause")
        elif name == "hold" and not (self.held or self.link.closed):
            put_off.hold(self.link.connection)
            self.held = True
        elif name == "let go" and self.held:
            self.held = False
            put_off.let_go(self.link.connection)
        elif name.startswith("write"):
            self.link.write(b"\xd0\x00" if name == "write" else b"\x30\xff\xff\x7f" + bytes(4 << 20))
        else:
            events = poll_sockets(self.hub._epoll, 0)
            if name == "go on in a turn":
                self.hub.pause(paused=False)
            self.hub._round(events)
            self.harness.clock.advance(0.001)

    def say(self, many: int) -> None:
        numbers = range(self.sent + 1, self.sent + many + 1)
        self.theirs.sendall(b"".join(writer.encode_publish(4, b"t", b"%06d" % one, 0) for one in numbers))
        self.sent += many

    def end(self, how: str) -> None:
        if how == "half":
            self.theirs.shutdown(socket.SHUT_WR)
            return
        if how == "reset":
            self.theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.theirs.close()

    def come_again(self) -> tuple[HubSocket, socket.socket]:
        link, theirs = self.connection()
        theirs.sendall(client.encode_connect(client.connect(4, "c", clean_start=True)))
        self.until(lambda: link.connection is not None and link.connection.connack_sent)
        return link, theirs

    def is_over(self) -> bool:
        """A peer that has said DISCONNECT and does not read is given a few seconds."""
        while self.later:
            self.later.pop()()
        return self.link.closed

    def landed(self) -> list[int]:
        rows = [row[3] for row in self.harness.queues.rows["Q"].values()]
        return [int(body[-6:]) for body in rows[1:]]


@settings(max_examples=150, deadline=None)
@given(
    before=st.lists(STEPS, max_size=8), bye=st.booleans(), end=ENDS, after=st.lists(STEPS, max_size=8),
    again=st.booleans(),
)  # fmt: skip
def test_whatever_ends_a_connection_what_was_sent_is_taken(
    before: list[str], bye: bool, end: str, after: list[str], again: bool
) -> None:
    with contextlib.closing(Life()) as life:
        for name in before:
            if name.startswith("send"):
                life.say(1 if name == "send" else 500)
            else:
                life.step(name)
        if bye:
            life.theirs.sendall(BYE)
        life.end(end)
        for name in [*after, *["turn"] * LEAST_ROUNDS]:
            life.step(name)
        if not (life.link.closed or life.held or life.hub.paused):
            life.until(life.is_over)
        assert life.link.closed or life.link.fd not in dict(life.hub._epoll.poll(0))
        life.step("let go")
        life.step("go on")
        if again:
            link, theirs = life.come_again()
            theirs.close()
            life.until(lambda: link.closed)
        life.until(life.is_over)
        life.until(lambda: life.harness.engine.context.idle)
        assert life.landed() == list(range(1, life.sent + 1))
        assert life.put("WILLS") == (not bye)
        assert not life.harness.engine.connections
        assert (life.hub.count, life.hub._apart, life.harness.engine.context.departing) == (0, set(), {})

"""The WebSocket handshake and frames as hostile clients write them: each ends with a text, none with an exception."""

from __future__ import annotations

import random

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import BytesMessage, CloseConnection, Request

from gateway.net.websocket import MAX_HANDSHAKE, WebSocketServer
from tests.support.uncollected import left_in_cycles

NAMES = frozenset({"localhost", "gw.plant.example", "*.mqtt.example"})


def request(
    *,
    target: bytes = b"/mqtt",
    host: bytes = b"localhost",
    more: bytes = b"",
    protocol: bytes = b"mqtt",
    key: bytes = b"dGhlIHNhbXBsZSBub25jZQ==",
) -> bytes:
    lines = [b"GET " + target + b" HTTP/1.1", b"Host: " + host, b"Upgrade: websocket", b"Connection: Upgrade",
             b"Sec-WebSocket-Key: " + key, b"Sec-WebSocket-Version: 13",
             b"Sec-WebSocket-Protocol: " + protocol]  # fmt: skip
    return b"\r\n".join(lines) + b"\r\n" + more + b"\r\n"


def server(*origins: str, strict: bool = False) -> WebSocketServer:
    return WebSocketServer("/mqtt", list(origins), NAMES, strict=strict)


def status(one: WebSocketServer, data: bytes) -> int:
    answer, _, over = one.receive(data)
    assert over is not answer.startswith(b"HTTP/1.1 101")
    return int(answer.split(b" ", 2)[1])


def opened() -> tuple[WebSocketServer, WSConnection]:
    one, client = server(), WSConnection(ConnectionType.CLIENT)
    answer, _, over = one.receive(client.send(Request(host="localhost", target="/mqtt", subprotocols=["mqtt"])))
    assert not over
    client.receive_data(answer)
    list(client.events())
    return one, client


@pytest.mark.parametrize(("data", "code"), [
    (request(target=b"//["), 404), (request(target=b"//[x]/mqtt"), 404),
    (request(more=b"Sec-WebSocket-Extensions: \xff\r\n"), 400), (request(more=b"Connection: \xe4\r\n"), 400),
    (request(host=b"\xc3\xa4.example"), 400), (request(host=b"\xff"), 400),
    (request(protocol=b"\xff"), 400), (request(protocol=b"chat"), 400), (request(target=b"/other"), 404),
    (b"POST /mqtt HTTP/1.1\r\nHost: localhost\r\n\r\n", 400), (b"\x10\x0c\x00\x04MQTT\x04\r\n\r\n", 400),
    (b"GET " + b"a" * MAX_HANDSHAKE, 400), (request(key=b"eA=="), 400), (request(key=b""), 400),
    (request(key=b"dGhlIHNhbXBsZSBub25jZQ"), 400), (request(key=b"dGhlIHNhbXBsZSBub25jZQ?=="), 400),
    (request().replace(b"HTTP/1.1", b"HTTP/1.0"), 400), (request().replace(b"HTTP/1.1", b"HTTP/0.9"), 400),
])  # fmt: skip
def test_a_handshake_that_is_none_is_refused_in_words(data: bytes, code: int) -> None:
    one = server()
    assert status(one, data) == code
    assert one.fault.startswith("WebSocket: ")
    assert one.receive(b"more") == (b"", b"", True)


def test_a_request_that_is_refused_hears_why() -> None:
    answer, _, _ = server().receive(request(protocol=b"chat"))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert body == b"no subprotocol of MQTT: ask for `mqtt` (Sec-WebSocket-Protocol)\n"
    assert b"content-length: %d" % len(body) in head.lower()
    head, _, body = server().receive(b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\n\r\n")[0].partition(b"\r\n\r\n")
    assert body == b"Missing header, 'Connection: Upgrade'\n"


@pytest.mark.parametrize(("origin", "host", "code"), [
    ("http://localhost:8083", "localhost:8083", 101), ("http://gw.plant.example", "gw.plant.example", 101),
    ("http://GW.plant.example", "GW.plant.example", 101), ("http://10.0.0.7:8083", "10.0.0.7:8083", 101),
    ("http://[::1]:8083", "[::1]:8083", 101), ("https://a.mqtt.example", "a.mqtt.example", 101),
    ("https://a.b.mqtt.example", "a.b.mqtt.example", 403), ("https://mqtt.example", "mqtt.example", 403),
    ("http://rebound.evil.example:8083", "rebound.evil.example:8083", 403), ("http://[", "[", 403),
    ("http://localhost.evil.example", "localhost.evil.example", 403), ("http://evil.example", "localhost", 403),
    ("https://ops.example", "anything.example", 101), ("null", "localhost", 403), ("http://0x7f.1", "0x7f.1", 403),
])  # fmt: skip
def test_a_page_comes_from_a_name_that_is_known_or_from_an_origin_that_is_set(
    origin: str, host: str, code: int
) -> None:
    one = server("https://ops.example")
    assert status(one, request(host=host.encode(), more=b"Origin: " + origin.encode() + b"\r\n")) == code


def test_a_device_may_use_any_name_unless_the_settings_name_them() -> None:
    assert status(server(), request(host=b"some.alias.example")) == 101
    assert status(server(strict=True), request(host=b"some.alias.example")) == 421
    assert status(server(strict=True), request(host=b"gw.plant.example:8083")) == 101


def test_what_comes_behind_a_close_is_nothing() -> None:
    one, client = opened()
    close = client.send(CloseConnection(code=1000))
    answer, _, over = one.receive(close)
    assert over
    assert answer[:1] == b"\x88"
    assert one.receive(close) == (b"", b"", True)
    assert one.fault == ""


def test_a_close_that_crosses_ours() -> None:
    one, client = opened()
    assert one.close()[:1] == b"\x88"
    close = client.send(CloseConnection(code=1000))
    assert one.receive(close + close) == (b"", b"", True)
    assert one.receive(close) == (b"", b"", True)
    assert one.send(b"late") == b""


def test_frames_that_are_none_end_the_connection_in_words() -> None:
    one, client = opened()
    message = client.send(BytesMessage(data=b"abc"))
    answer, chunks, over = one.receive(message + b"\x82\x03abc")  # not masked
    assert (chunks, over) == (b"abc", True)
    assert answer[:1] == b"\x88"


def test_no_bytes_raise_anything() -> None:
    chance = random.Random(7)
    pieces = [b"//[", b"\xff", b"\xc3\xa4", b"[", b"xn--", b"\r\n", b":", b",", b"\0", b"." * 70, b"Host: a\r\n"]
    for _ in range(3000):
        data = bytearray(request(more=b"Origin: http://localhost\r\n"))
        for _ in range(chance.choice([0, 0, 1, 3])):
            at = chance.randrange(len(data))
            data[at : at + chance.choice([0, 0, 5])] = chance.choice(pieces)
        one = server()
        one.receive(bytes(data))
        for _ in range(4):
            kind = bytes(
                (chance.choice([0x80, 0, 0xC0]) | chance.randrange(16), 0x80 | chance.choice([0, 1, 2, 5, 125]))
            )
            one.receive(kind + chance.randbytes(chance.randrange(140)))
            if chance.random() < 0.2:
                one.close()


@pytest.mark.parametrize("data", [
    request(more=b"Connection: \xff\r\n"), request(target=b"//["), request(protocol=b"\xff"), request(host=b"\xff"),
    b"GET //[ HTTP/1.1\r\nX: " + b"\xff" * 15_000 + b"\r\n\r\n", b"POST /mqtt HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"nonsense\r\n\r\n" + b"x" * 10_000,
])  # fmt: skip
def test_a_refused_handshake_keeps_nothing_of_what_was_read(data: bytes) -> None:
    """It is freed with its connection, not by the garbage collector."""

    def shake() -> None:
        one = server()
        one.receive(data)
        assert one.fault

    assert left_in_cycles(shake, "gateway", "wsproto", "h11") == []


@pytest.mark.parametrize(("data", "spoken"), [
    (b"\x10\x0c\x00\x04MQTT", "MQTT without WebSocket"), (b"\x16\x03\x01\x02\x00", "TLS"),
    (b"PROXY TCP4 1.2.3.4 ", "PROXY"), (b"\r\n\r\n\0\r\nQUIT\n\x21\x11", "PROXY"),
])  # fmt: skip
def test_what_comes_instead_of_a_request_is_called_by_its_name(data: bytes, spoken: str) -> None:
    one = server()
    assert one.receive(data)[2]
    assert f"the client speaks {spoken}" in one.fault


def test_whom_a_proxy_serves_is_asked_about_before_all_else() -> None:
    asked: list[list[tuple[bytes, bytes]]] = []

    def named(headers: list[tuple[bytes, bytes]]) -> bool:
        asked.append(headers)
        return (b"x-forwarded-for", b"192.0.2.7") in headers

    def behind_a_proxy() -> WebSocketServer:
        return WebSocketServer("/mqtt", [], NAMES, named=named)

    assert status(behind_a_proxy(), request(more=b"X-Forwarded-For: 192.0.2.7\r\n")) == 101
    assert status(behind_a_proxy(), request(target=b"/other", more=b"X-Forwarded-For: 192.0.2.7\r\n")) == 404
    turned_away = behind_a_proxy()
    assert status(turned_away, request(target=b"/other", more=b"X-Forwarded-For: 192.0.2.8\r\n")) == 429
    assert not turned_away.fault, "whoever was asked has said it to the log"
    assert len(asked) == 3

"""The admin port: who has no token costs nothing, whatever he sends, and requests wait for each other, not clients."""

from __future__ import annotations

import contextlib
import json
import socket

import pytest
from stall_attacks import LONG, Attacked, drain

FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data; boundary=b"
BODY = 6 << 20


def raw(attacked: Attacked) -> socket.socket:
    return socket.create_connection(("127.0.0.1", attacked.running.admin), 60)


def of_parts() -> bytes:
    part = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n'
    return part * (BODY // len(part) - 1) + b"--b--\r\n"


@pytest.mark.parametrize(("kind", "body"), [
    (FORM, b"a&" * (BODY // 2)), (FORM, b"a=%41;" * (BODY // 6)), (MULTIPART, of_parts()),
    ("application/json", b"[" * BODY),
], ids=["fields", "escapes", "parts", "nested"])  # fmt: skip
@pytest.mark.parametrize("token", ["", "Bearer wrong"])
def test_bodies_of_strangers_are_not_looked_at(attacked: Attacked, kind: str, body: bytes, token: str) -> None:
    with attacked.budget():
        for path in ("/api/v1/explain", "/api/v1/log", "/api/pipeline/put", "/metrics", "/nothing"):
            headers = {"Content-Type": kind, "Authorization": token}
            for host in ("127.0.0.1", "elsewhere.example"):
                status = attacked.request("POST", path, body, {**headers, "Host": host})
                assert status in {401, 404, 405, 421}, (path, status)


@pytest.mark.parametrize("path", ["/explain", "/log", "/dlq/replay", "/queues/MQGATE.DEFAULT/messages"])
@pytest.mark.parametrize("body", [
    b"[" * BODY, b'{"a":' * (BODY // 5), b"[" + b"1," * (BODY // 2 - 1) + b"1]", b"9" * BODY, b"-0." + b"1" * BODY,
    b'"' + b"\\u0041" * (BODY // 6 - 1) + b'"',
], ids=["lists", "objects", "numbers", "number", "fraction", "escapes"])  # fmt: skip
def test_bodies_of_an_operator_are_bounded_by_their_route(attacked: Attacked, path: str, body: bytes) -> None:
    token = (attacked.running.directory / "data" / "admin.token").read_text().strip()
    longest = {"/explain": 1 << 20, "/log": 64 << 10, "/dlq/replay": 1 << 20}.get(path, BODY)
    with attacked.budget():
        for length in (longest, BODY + 1):
            status = attacked.request("POST" if path != "/log" else "PUT", f"/api/v1{path}", body[:length], {
                "Authorization": f"Bearer {token}", "Content-Type": "application/json",
            })  # fmt: skip
            assert status in {0, 400, 413}, status


@pytest.mark.parametrize("path", ["/metrics", "/readyz", "/admin/", "/api/v1/overview", "/nothing"])
def test_requests_in_one_piece_wait_for_each_other(attacked: Attacked, path: str) -> None:
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    with attacked.budget() as sockets:
        held = [sockets.enter_context(raw(attacked)) for _ in range(40 if LONG else 8)]
        for sock in held:
            sock.settimeout(0.2)
            with contextlib.suppress(OSError):
                sock.sendall(request * (500 if LONG else 100))
        for sock in held:
            drain(sock, 0.2)


def test_long_heads_are_refused(attacked: Attacked) -> None:
    with attacked.budget():
        for head in (b"GET /?" + b"a&" * 8000, b"GET / HTTP/1.1\r\nCookie: " + b"a=b;" * 4000,
                     b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 10_000, b"GET /" + b"a/" * 8000 + b" HTTP/1.1"):  # fmt: skip
            for _ in range(10):
                with raw(attacked) as sock, contextlib.suppress(OSError):
                    sock.sendall(head + b"\r\n\r\n")
                    drain(sock)


@pytest.mark.parametrize("text", [
    "DISPLAY QUEUE(*) ALL\n" * 500, "PING QMGR\n" * 50_000, "\n" * 500_000, "*\n" * 500_000, "x+\n" * 300_000,
    "DEFINE QLOCAL(A) DESCR('" + "x" * 1_000_000, "DISPLAY QUEUE(" + "(" * 1_000_000,
    "DEFINE QLOCAL(A) REPLACE\n" * 1000,
], ids=["display", "pings", "empty", "comments", "continued", "quoted", "parentheses", "define"])  # fmt: skip
def test_long_texts_of_commands_are_carried_out_between_clients(attacked: Attacked, text: str) -> None:
    token = (attacked.running.directory / "data" / "admin.token").read_text().strip()
    with attacked.budget():
        body = json.dumps({"text": text[:1_000_000]}).encode()[: 1 << 20]
        status = attacked.request("POST", "/api/v1/mqsc", body, {
            "Authorization": f"Bearer {token}", "Content-Type": "application/json",
        })  # fmt: skip
        assert status in {200, 400, 413}, status

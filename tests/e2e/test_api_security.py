"""The admin port of a running gateway against those who should not be there: tokens, roles, origins, paths, bodies."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gateways import RunningGateway

WRITE, READ = "operator-token-1", "reader-token-2"
MUTATIONS = [("POST", "/reload"), ("POST", "/drain"), ("PUT", "/log"), ("POST", "/mqsc"), ("DELETE", "/clients/nobody")]


class Admin:
    """The gateway and a client of its admin port that can say whatever it likes."""

    def __init__(self, directory: Path) -> None:
        (directory / "write.token").write_text(WRITE + "\n")
        (directory / "read.token").write_text(READ + "\n")
        self.running = RunningGateway(
            directory,
            settings="admin: {token_file: write.token, read_token_file: read.token, hosts: [gateway.example]}\n",
        )

    def ask(
        self, method: str, path: str, token: str | None = WRITE, body: bytes | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the answer."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            sent.setdefault("Authorization", f"Bearer {token}")
        connection = http.client.HTTPConnection("127.0.0.1", self.running.admin, timeout=20)
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def raw(self, data: bytes) -> bytes:
        """Everything that comes back until the gateway closes."""
        with socket.create_connection(("127.0.0.1", self.running.admin), 20) as sock:
            sock.sendall(data)
            answer = b""
            while chunk := sock.recv(65_536):
                answer += chunk
            return answer


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    made = Admin(tmp_path_factory.mktemp("admin"))
    with made.running:
        yield made


@pytest.mark.parametrize("authorization", [
    None, "", "Bearer", "Bearer ", f"Basic {WRITE}", WRITE, f"Bearer {WRITE}x", f"Bearer {WRITE[:-1]}", "Bearer \u00ff",
    f"Bearer {WRITE}, Bearer {READ}",
])  # fmt: skip
def test_without_a_token_nothing_is_said(admin: Admin, authorization: str | None) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    for path in ("/api/v1/overview", "/api/v1/settings", "/api/v1/clients", "/api/v1/nothing"):
        status, answered, body = admin.ask("GET", path, None, **headers)
        assert status == 401
        assert answered["www-authenticate"] == "Bearer"
        assert "set-cookie" not in answered
        assert WRITE.encode() not in body


@pytest.mark.parametrize(("method", "path"), MUTATIONS)
def test_a_token_for_reading_changes_nothing(admin: Admin, method: str, path: str) -> None:
    status, _, body = admin.ask(method, f"/api/v1{path}", READ, b"{}")
    assert status == 403, body
    assert admin.ask("GET", "/api/v1/overview", READ)[0] == 200


def test_what_was_refused_and_what_was_done_is_in_the_log(admin: Admin) -> None:
    admin.ask("POST", "/api/v1/reload", READ, b"{}")
    admin.ask("PUT", "/api/v1/log", WRITE, b'{"level": "info"}')
    records = [json.loads(line) for line in admin.running.log.splitlines() if '"audit"' in line]
    done = {(record["status"], record["role"]) for record in records if "status" in record}  # a handshake has none
    assert {(403, "viewer"), (200, "administrator")} <= done
    assert WRITE not in admin.running.log
    assert READ not in admin.running.log


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9160", "127.0.0.1.evil.example", "", "localhost@evil"])
def test_other_names_of_the_host_are_refused(admin: Admin, host: str) -> None:
    for path in ("/api/v1/overview", "/admin/"):
        assert admin.ask("GET", path, Host=host)[0] == 421


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:1", "gateway.example", "[::1]:9160"])
def test_its_own_names_are_accepted(admin: Admin, host: str) -> None:
    assert admin.ask("GET", "/api/v1/overview", Host=host)[0] == 200


def test_a_foreign_page_cannot_write(admin: Admin) -> None:
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
        assert admin.ask("PUT", "/api/v1/log", WRITE, b'{"level": "info"}', Origin=origin)[0] == 403
    own = f"http://127.0.0.1:{admin.running.admin}"
    assert admin.ask("PUT", "/api/v1/log", WRITE, b'{"level": "info"}', Origin=own)[0] == 200


def test_answers_carry_the_headers_that_bind_browsers(admin: Admin) -> None:
    for path in ("/", "/admin/", "/api/v1/overview", "/api/v1/nothing", "/admin/nothing", "/nothing", "/api", "/api/x",
                 "/metrics", "/livez", "/api/v1/pipeline/x", "/" + "a" * 40_000):  # fmt: skip
        _, headers, _ = admin.ask("GET", path)
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(("method", "path", "status"), [
    ("GET", "/nothing", 404), ("GET", "/api", 404), ("GET", "/api/x", 404), ("GET", "/favicon.ico", 404),
    ("GET", "/livez/x", 404), ("GET", "/metrics/x", 404), ("GET", "/metrics/", 200), ("HEAD", "/metrics", 200),
    ("HEAD", "/admin/", 200), ("POST", "/metrics", 405), ("OPTIONS", "/admin/", 405), ("FOO", "/readyz", 405),
    ("FOO", "/nothing", 404),
])  # fmt: skip
def test_what_is_not_there_is_said_in_one_form(admin: Admin, method: str, path: str, status: int) -> None:
    answered, headers, body = admin.ask(method, path)
    assert answered == status
    if status >= 400:
        assert headers["content-type"] == "application/problem+json"
        assert json.loads(body)["status"] == status
    if status == 405:
        assert headers["allow"] == "GET, HEAD"


def test_the_page_without_the_slash_leads_to_the_page(admin: Admin) -> None:
    """What it names beside itself would not be found from there."""
    status, headers, _ = admin.ask("GET", "/admin")
    assert (status, headers["location"]) == (302, "admin/")


@pytest.mark.parametrize("path", [
    "/admin/../gateway.json", "/admin/%2e%2e/api.py", "/admin/..%2f..%2fhub.py", "/admin/views/../../hub.py",
    "/admin/%00", "/admin//etc/passwd", "/admin/.", "/admin/views/", "/admin/\\..\\hub.py", "/../etc/passwd",
])  # fmt: skip
def test_no_path_leaves_the_pages_folder(admin: Admin, path: str) -> None:
    answer = admin.raw(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    status = int(answer.split(b" ", 2)[1])
    assert status in {400, 404}, answer[:200]
    assert b"import " not in answer


@pytest.mark.parametrize("name", ["..%2F..%2Fetc%2Fpasswd", "%00", "%FF", "a" * 5000, "MQGATE.SESSIONS%27--"])
def test_names_in_paths_are_only_names(admin: Admin, name: str) -> None:
    for path in (f"/api/v1/queues/{name}", f"/api/v1/clients/{name}"):
        status, _, body = admin.ask("GET", path)
        assert status in {400, 404}, (status, body)
        assert b"Traceback" not in body


def test_bodies_are_bounded_before_they_are_kept(admin: Admin) -> None:
    head = f"PUT /api/v1/log HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {WRITE}\r\n".encode()
    assert b" 413 " in admin.raw(head + b"Content-Length: 1000000000000\r\n\r\n")
    with socket.create_connection(("127.0.0.1", admin.running.admin), 20) as sock:
        sock.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
        sent = 0
        try:
            while sent < 64 << 20:
                sock.sendall(b"10000\r\n" + bytes(65_536) + b"\r\n")
                sent += 65_536
        except OSError:
            pass
    assert sent < 32 << 20, "chunks without end were taken"
    assert admin.ask("GET", "/api/v1/overview")[0] == 200


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /api/v1/topics?under=" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 40_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: 123\r\n" * 8000 + b"\r\n", 400),
        (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nno header\r\nX: y\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (
            b"PUT /api/v1/log HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 9999999\r\n\r\n" + b"a" * 9_999_999,
            413,
        ),
    ],
    ids=["address", "header", "headers", "star", "no header", "body"],
)
def test_what_is_refused_unread_is_answered_once(admin: Admin, request_: bytes, status: int) -> None:
    """The connection is not closed with something unread: that would be a reset, and the answer would be lost."""
    answer = admin.raw(request_)
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:200]
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-length: %d" % len(body) in head
    assert json.loads(body)["status"] == status


@pytest.mark.parametrize(
    "body", [b"[]", b"{", b'"x"', b"\xff\xfe", b"[" * 60_000, b'{"level": {"a": 1}}', b'{"level": null}']
)
def test_bodies_that_are_no_request_are_refused(admin: Admin, body: bytes) -> None:
    status, _, answer = admin.ask("PUT", "/api/v1/log", WRITE, body)
    assert status == 400, (status, answer)
    assert b"Traceback" not in answer


def test_secrets_are_masked_and_files_are_private(admin: Admin) -> None:
    _, _, body = admin.ask("GET", "/api/v1/settings")
    assert WRITE.encode() not in body
    data = admin.running.directory / "data"
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    for path in data.rglob("*"):
        if path.is_file():
            assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


def test_tokens_are_renewed_by_a_reload_and_an_empty_one_is_refused(admin: Admin) -> None:
    file = admin.running.directory / "write.token"
    file.write_text("\n")
    status, _, body = admin.ask("POST", "/api/v1/reload", WRITE, b"{}")
    assert status == 422
    assert b"is empty" in body
    assert admin.ask("GET", "/api/v1/overview", "")[0] == 401
    file.write_text("another-token-3\n")
    assert admin.running.process is not None
    admin.running.process.send_signal(signal.SIGHUP)
    until = time.monotonic() + 60
    while admin.ask("GET", "/api/v1/overview", "another-token-3")[0] != 200:
        assert time.monotonic() < until
        time.sleep(0.02)
    assert admin.ask("GET", "/api/v1/overview", WRITE)[0] == 401
    file.write_text(WRITE + "\n")
    assert admin.ask("POST", "/api/v1/reload", "another-token-3", b"{}")[0] == 200


def test_answers_say_nothing_of_the_server_and_name_each_status(admin: Admin) -> None:
    sent = f"Authorization: Bearer {WRITE}\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    body = '{"items": []}'
    answers = [
        admin.raw(f"GET /readyz HTTP/1.1\r\n{sent}\r\n".encode()),
        admin.raw(f"PUT /api/v1/log HTTP/1.1\r\n{sent}Content-Length: {len(body)}\r\n\r\n{body}".encode()),
        admin.raw(b"GET /api/v1/me HTTP/1.1\r\nHost: elsewhere\r\nConnection: close\r\n\r\n"),
    ]
    assert answers[2].startswith(b"HTTP/1.1 421 Misdirected Request\r\n")
    assert not [one for one in answers if b"\r\nserver:" in one.lower() or b"Unknown Status" in one]

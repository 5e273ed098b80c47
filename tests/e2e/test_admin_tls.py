"""TLS on the admin port: who is believed, what is refused, and what goes on working behind it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import gateway_template
import pytest
from certificates import Authority
from gateways import TREE, RunningGateway

SETTINGS = """
admin: {tls: {certificate: admin.pem, key: admin.key%s}}
"""


class Secured(NamedTuple):
    """A gateway whose admin port has TLS, and who has signed its certificate."""

    gateway: RunningGateway
    authority: Authority

    def context(self) -> ssl.SSLContext:
        """Of a client that believes the authority."""
        return ssl.create_default_context(cafile=self.authority.path)

    def ask(self, path: str, method: str = "GET", body: bytes | None = None) -> tuple[int, bytes]:
        """Status and body of an answer."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.gateway.admin, timeout=60, context=self.context())
        token = (self.gateway.directory / "data" / "admin.token").read_text().strip()
        try:
            connection.request(method, path, body, {"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def served(self) -> bytes:
        """The certificate that the port shows now."""
        pem = ssl.get_server_certificate(("127.0.0.1", self.gateway.admin), ca_certs=str(self.authority.path))
        return ssl.PEM_cert_to_DER_cert(pem)


def install(authority: Authority, name: str) -> None:
    for source, target in zip(authority.issue(name, days=60), ("admin.pem", "admin.key"), strict=True):
        source.replace(authority.directory / target)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("admin-tls")
    authority = Authority(directory)
    install(authority, "admin")
    with RunningGateway(directory, settings=SETTINGS % "") as gateway:
        yield Secured(gateway, authority)


def test_page_api_metrics_and_probes_are_behind_it(secured: Secured) -> None:
    assert secured.ask("/livez")[0] == 200
    status, body = secured.ask("/admin/app.js")
    assert status == 200
    assert len(body) > 5_000
    assert b'mqgate_tls_certificate_not_after_timestamp_seconds{listener="admin"}' in secured.ask("/metrics")[1]
    status, body = secured.ask("/api/v1/me")
    assert status == 200
    assert json.loads(body)["queue_manager"]


def test_long_requests_and_long_answers_go_through(secured: Secured) -> None:
    text = "".join(f"DEFINE QLOCAL(LONG.{number:04})\n" for number in range(500)) + "* " + "x" * 300_000
    status, body = secured.ask("/api/v1/mqsc", "POST", json.dumps({"text": text}).encode())
    assert status == 200, body[:200]
    status, body = secured.ask("/api/v1/queues?limit=500")
    assert status == 200
    assert len(json.loads(body)["items"]) == 500


def test_a_body_that_is_announced_too_long_is_refused_at_once(secured: Secured) -> None:
    plain = socket.create_connection(("127.0.0.1", secured.gateway.admin), 60)
    with plain, secured.context().wrap_socket(plain, server_hostname="localhost") as secure:
        secure.sendall(b"POST /api/v1/mqsc HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000\r\n\r\n")
        assert secure.recv(100).startswith(b"HTTP/1.1 413 ")


def test_one_connection_answers_many_requests_and_sends_events(secured: Secured) -> None:
    connection = http.client.HTTPSConnection("127.0.0.1", secured.gateway.admin, timeout=60, context=secured.context())
    for _ in range(20):
        connection.request("GET", "/livez")
        assert connection.getresponse().read()
    token = (secured.gateway.directory / "data" / "admin.token").read_text().strip()
    connection.request("GET", "/api/v1/trace?client=nobody", headers={"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.readline() == b": open\n"
    connection.close()


def test_what_is_not_tls_gets_nothing(secured: Secured) -> None:
    for sent in (b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03\x01\x40\x00" + b"\x00" * 20_000):
        with socket.create_connection(("127.0.0.1", secured.gateway.admin), 60) as plain:
            plain.sendall(sent)
            answer = b""
            try:
                while chunk := plain.recv(65_536):
                    answer += chunk
            except ConnectionError:
                pass
            assert b"HTTP" not in answer
    assert secured.ask("/livez")[0] == 200
    assert '"TLS: ' in secured.gateway.log


def test_a_client_that_does_not_know_the_authority_goes_no_further(secured: Secured) -> None:
    plain = socket.create_connection(("127.0.0.1", secured.gateway.admin), 60)
    with plain, pytest.raises(ssl.SSLCertVerificationError):
        ssl.create_default_context().wrap_socket(plain, server_hostname="localhost")


def command(secured: Secured, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": TREE, **environ}
    return gateway_template.run(*arguments, "--data", secured.gateway.directory / "data", env=environ)


def test_commands_believe_the_gateways_own_certificate_and_no_other(secured: Secured) -> None:
    done = command(secured, "status")
    assert done.returncode == 0, done.stderr
    record = secured.gateway.directory / "data" / "gateway.json"
    kept = record.read_text()
    foreign, _ = Authority(secured.authority.directory, "another authority").issue("other")
    try:
        record.write_text(json.dumps({**json.loads(kept), "certificate": foreign.read_text()}))
        done = command(secured, "status")
    finally:
        record.write_text(kept)
    assert done.returncode == 3
    assert "certificate" in done.stderr


def test_commands_believe_an_authority_that_they_are_given_and_no_other(secured: Secured) -> None:
    """Here one that has signed itself, as a company's own. What gateway.json says of the certificate is not asked."""
    other = Authority(secured.authority.directory, "a third authority")
    record = secured.gateway.directory / "data" / "gateway.json"
    kept = record.read_text()
    try:
        record.write_text(json.dumps({**json.loads(kept), "certificate": other.path.read_text()}))
        assert command(secured, "status").returncode == 3
        done = command(secured, "status", "--ca", str(secured.authority.path))
        assert done.returncode == 0, done.stderr
        assert command(secured, "user", "list", MQGATE_CA=str(secured.authority.path)).returncode == 1, "not managed"
        assert command(secured, "mqsc", "/dev/null", MQGATE_CA=str(secured.authority.path)).returncode == 0
    finally:
        record.write_text(kept)
    done = command(secured, "status", "--ca", str(other.path))
    assert (done.returncode, "certificate" in done.stderr) == (3, True), done.stderr
    (secured.gateway.directory / "empty.pem").write_text("none\n")
    done = command(secured, "status", "--ca", str(secured.gateway.directory / "empty.pem"))
    assert (done.returncode, "has no certificates" in done.stderr) == (2, True), done.stderr


def test_a_renewed_certificate_is_shown_after_a_reload_and_commands_follow(secured: Secured) -> None:
    before = secured.served()
    install(secured.authority, "renewed")
    assert secured.gateway.process is not None
    secured.gateway.process.send_signal(signal.SIGHUP)
    until = time.monotonic() + 60
    while secured.served() == before and time.monotonic() < until:
        time.sleep(0.1)
    assert secured.served() != before
    while '"reloaded"' not in secured.gateway.log and time.monotonic() < until:
        time.sleep(0.1)
    assert command(secured, "status").returncode == 0


def test_a_broken_certificate_changes_nothing_and_is_said(secured: Secured) -> None:
    before = secured.served()
    kept = (secured.authority.directory / "admin.pem").read_text()
    (secured.authority.directory / "admin.pem").write_text("no certificate\n")
    try:
        status, body = secured.ask("/api/v1/reload", "POST")
    finally:
        (secured.authority.directory / "admin.pem").write_text(kept)
    assert status == 422, body
    assert "the certificate of the admin port cannot be used" in body.decode()
    assert secured.served() == before


def test_a_port_that_wants_certificates_answers_only_those_who_show_one(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    install(authority, "admin")
    certificate, key = authority.issue("operator")
    more = f", client_ca: {authority.path.name}, client_certificate: required"
    with RunningGateway(tmp_path, settings=SETTINGS % more) as gateway:
        context = ssl.create_default_context(cafile=authority.path)
        for shows in (False, True):
            if shows:
                context.load_cert_chain(certificate, key)
            connection = http.client.HTTPSConnection("127.0.0.1", gateway.admin, timeout=60, context=context)
            try:
                connection.request("GET", "/livez")
                assert connection.getresponse().status == 200
                assert shows
            except (ssl.SSLError, ConnectionError, http.client.RemoteDisconnected):
                assert not shows
            finally:
                connection.close()

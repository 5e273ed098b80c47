"""gateway.cli.device: what `mqgate pub` says about a port that speaks differently."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET, create_server, socket
from struct import pack

import pytest
from certificates import Authority
from click.testing import CliRunner

from gateway.cli.connection import untrusted
from gateway.cli.main import main


@contextmanager
def served(answer: Callable[[socket], None]) -> Iterator[str]:
    """Yields a port on which one connection is answered by `answer`."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            answer(connection)

    with create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield str(listener.getsockname()[1])
        thread.join(60)


def published(port: str, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["pub", "-p", port, *words, "a", "b"])
    assert isinstance(done.exception, SystemExit), repr(done.exception)
    return done.exit_code, done.output


def test_who_speaks_plainly_to_tls_is_told_of_it(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).issue("one")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with served(lambda connection: context.wrap_socket(connection, server_side=True).close()) as port:
        code, said = published(port)
    assert (code, "a listener with TLS needs --ca-file" in said) == (1, True), said


def test_a_certificate_of_somebody_else_is_no_gateway_that_is_away(tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    certificate, key = Authority(tmp_path / "theirs").issue("one")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with served(lambda connection: context.wrap_socket(connection, server_side=True).close()) as port:
        code, said = published(port, "--ca-file", str(Authority(tmp_path / "ours").path))
    assert (code, "do not trust each other" in said, "Is the gateway running" in said) == (1, True, False), said


def closed_at_once(context: ssl.SSLContext, connection: socket) -> None:
    context.wrap_socket(connection, server_side=True).close()


def reset_after_connect(context: ssl.SSLContext, connection: socket) -> None:
    """What the client sees if the alert of a gateway that requires a certificate is lost."""
    context.verify_mode = ssl.CERT_NONE
    with context.wrap_socket(connection, server_side=True) as wrapped:
        wrapped.read(1)
        wrapped.setsockopt(SOL_SOCKET, SO_LINGER, pack("ii", 1, 0))


@pytest.mark.parametrize("end", [closed_at_once, reset_after_connect])
@pytest.mark.parametrize("command", ["pub", "probe"])
def test_who_shows_no_certificate_where_one_is_required_is_told_of_it(
    command: str, end: Callable[[ssl.SSLContext, socket], None], tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(authority.path)
    context.verify_mode = ssl.CERT_REQUIRED
    with served(lambda connection: end(context, connection)) as port:
        words = [command, "-p", port, "--ca-file", str(authority.path), "--server-name", "localhost", "-t", "a"]
        done = CliRunner().invoke(main, [*words, *(["-m", "b"] if command == "pub" else [])])
    assert (done.exit_code, "--certificate and --key" in done.output) == (1, True), done.output


@pytest.mark.parametrize("command", ["pub", "probe"])
def test_the_client_identifier_may_be_named_and_may_be_empty(command: str) -> None:
    def refuse(connection: socket) -> None:
        connects.append(connection.recv(1000))
        connection.sendall(b"\x20\x03\x00\x87\x00")

    connects: list[bytes] = []
    for name in ("line-001", ""):
        with served(refuse) as port:
            words = [command, "-p", port, "-i", name, "-t", "a", *(["-m", "b"] if command == "pub" else [])]
            CliRunner().invoke(main, words)
    assert (connects[0].count(b"\x00\x08line-001"), connects[1][-2:]) == (1, b"\x00\x00")


def test_who_speaks_tls_to_a_plain_port_is_told_of_it(tmp_path: Path) -> None:
    with served(lambda connection: connection.recv(65_536) and None) as port:
        code, said = published(port, "--ca-file", str(Authority(tmp_path).path))
    assert (code, "leave out --ca-file for a plain listener" in said) == (1, True), said


def test_so_it_is_with_a_later_openssl_and_an_earlier_python() -> None:
    newer, older = ssl.SSLError(1, "[SSL] record layer failure"), ssl.SSLZeroReturnError(6, "closed (EOF)")
    newer.reason, older.reason = "RECORD_LAYER_FAILURE", ""
    for error in (newer, older):
        assert "leave out --ca-file for a plain listener" in untrusted("here:1", error)


@pytest.mark.parametrize(
    ("version", "answer"), [("5.0", b"\x20\x03\x00\x84\x00"), ("3.1", b"\x20\x02\x00\x01")], ids=["5.0", "3.1"]
)
@pytest.mark.parametrize("command", ["pub", "probe"])
def test_who_speaks_a_version_that_is_switched_off_is_told_of_others(command: str, version: str, answer: bytes) -> None:
    def refuse(connection: socket) -> None:
        connection.recv(1000)
        connection.sendall(answer)

    with served(refuse) as port:
        words = ["--port", port, "-V", version, *(["a", "b"] if command == "pub" else [])]
        done = CliRunner().invoke(main, [command, *words])
    assert (done.exit_code, "Unsupported Protocol Version" in done.output, "-V" in done.output) == (1, True, True)


@pytest.mark.parametrize(
    "words", ["pub -h 127.0.0.9 -p 4 -t x -m y", "sub -p 4 x -h 127.0.0.9", "probe -p 4 -h 127.0.0.9"]
)
def test_the_host_is_written_as_for_the_clients_of_mosquitto(words: str) -> None:
    asked = CliRunner().invoke(main, words.split())
    assert (asked.exit_code, "127.0.0.9:4" in asked.output) in {(3, True), (1, True)}, asked.output


@pytest.mark.parametrize("words", ["pub -h", "sub -h", "probe -h", "pub -h -p 4"])
def test_help_is_still_asked_for_in_short(words: str) -> None:
    assert "Usage:" in CliRunner().invoke(main, words.split()).output

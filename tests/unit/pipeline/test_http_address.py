"""What is told of an address where a gateway does not answer as it should, and whether to wait for it."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from certificates import Authority

from gateway.pipeline.errors import GatewayMissing, GatewayRefuses, QueueUnreachable
from gateway.pipeline.source import http_access
from gateway.pipeline.source.http_access import HttpAddress

ANSWERS = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@contextmanager
def port(answer: bytes, certificate: tuple[Path, Path] | None = None) -> Iterator[int]:
    """One where a request gets an answer, and anything else is waited for to become one, as a gateway does."""
    context = None if certificate is None else ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if context is not None and certificate is not None:
        context.load_cert_chain(*certificate)

    def serve(asked: socket.socket) -> None:
        with suppress(OSError), context.wrap_socket(asked, server_side=True) if context else asked as spoken:
            said = b""
            while b"\r\n\r\n" not in said and (more := spoken.recv(4096)):
                said += more
            if b"\r\n\r\n" in said:
                spoken.sendall(answer)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


def refused(address: HttpAddress, kind: type[QueueUnreachable] = GatewayRefuses) -> str:
    with pytest.raises(kind) as caught:
        address.call("GET", "groups")
    assert caught.type is kind
    return str(caught.value)


def test_tls_is_spoken_to_a_port_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for the end of a line, which never comes. What it is shows by asking without TLS."""
    monkeypatch.setattr(http_access, "HANDSHAKE", 2.0)
    with port(ANSWERS) as plain:
        said = refused(HttpAddress(f"https://127.0.0.1:{plain}", "secret", "", ""))
    assert "no TLS connection to https" in said
    assert "write http:// where the gateway" in said


def test_a_balancer_that_breaks_off_a_handshake_has_tls_all_the_same() -> None:
    """As while it is loaded anew. What it says to a request without TLS is that this is none."""
    said = iter([b"", b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"])

    def answer() -> None:
        for each in said:
            with listening.accept()[0] as asked:
                asked.recv(4096)
                asked.sendall(each)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=answer, daemon=True).start()
        address = HttpAddress(f"https://127.0.0.1:{listening.getsockname()[1]}", "", "", "")
        assert "no TLS connection to https" in refused(address, QueueUnreachable)


def test_a_port_that_is_silent_may_speak_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_access, "HANDSHAKE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = HttpAddress(f"https://127.0.0.1:{silent.getsockname()[1]}", "", "", "")
        with pytest.raises(QueueUnreachable, match="no TLS connection to https") as caught:
            address.call("GET", "groups")
    assert caught.type is QueueUnreachable


def test_what_is_there_until_somebody_does_something(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with port(ANSWERS, authority.issue("gateway")) as secured:
        assert "is not trusted here" in refused(HttpAddress(f"https://127.0.0.1:{secured}", "", "", ""))
        good = HttpAddress(f"https://127.0.0.1:{secured}", "wrong", "", str(authority.path))
        assert "refuses the token" in refused(good)
        assert "cannot be read (Is a directory" in refused(good._replace(token="", token_file=str(tmp_path)))
        none = good._replace(token="", token_file=str(tmp_path / "none"))
        assert "cannot be read (No such file" in refused(none, GatewayMissing)
        assert "as `ca_file`" in refused(good._replace(ca_file=str(tmp_path / "none")))
        with pytest.raises(QueueUnreachable, match=r"hangs up \(.*write https:// where the gateway") as caught:
            HttpAddress(f"http://127.0.0.1:{secured}", "", "", "").call("GET", "groups")
        assert caught.type is QueueUnreachable
    assert "there is no host of the name in http://gateway.invalid:1 (" in refused(
        HttpAddress("http://gateway.invalid:1", "", "", ""), GatewayMissing
    )


def test_nobody_is_there_yet() -> None:
    with pytest.raises(QueueUnreachable, match="does not answer") as caught:
        HttpAddress("http://127.0.0.1:1", "", "", "").call("GET", "groups")
    assert caught.type is QueueUnreachable

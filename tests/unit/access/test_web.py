"""Asking providers over HTTP: which are not asked, and what no answer of a provider can cause."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import Authority
from free_ports import free_port
from key_server import KeyServer, Request

from gateway.access.web import MAX_ANSWER, Manner, Unanswered, ask

QUICK, PATIENT = Manner(timeout=0.5), Manner(timeout=30)


@pytest.fixture
def server() -> Iterator[KeyServer]:
    with KeyServer() as running:
        yield running


def refused(url: str, manner: Manner = PATIENT, origin: str = "") -> str:
    with pytest.raises(Unanswered) as caught:
        ask(url, manner, origin)
    return str(caught.value)


def test_an_answer_is_json_with_the_time_it_may_be_kept(server: KeyServer) -> None:
    server.paths["/k"] = lambda request: request.give({"a": 1}, Cache_Control="public, max-age=120")
    server.paths["/chunked"] = lambda request: request.raw(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nCache-Control: no-store\r\n\r\n",
        b"3\r\n[1,\r\n2\r\n2]\r\n0\r\n\r\n",
    )
    assert ask(f"{server.url}/k", PATIENT) == ({"a": 1}, 120.0)
    assert ask(f"{server.url}/chunked", PATIENT) == ([1, 2], 0.0)


@pytest.mark.parametrize(("pieces", "why"), [
    ((b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n", b"[" * (MAX_ANSWER + 2)), "more than"),
    ((b"HTTP/1.1 200 OK\r\n\r\n", *[b" " * 65536] * 40), "more than"),
    ((b"HTTP/1.1 100 Continue\r\n\r\n" * 40_000,), "more than"),
    ((b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000,), "headers"),
    ((b"HTTP/1.1 200 OK\r\nX: " + b"y" * 1_000_000,), "line"),
    ((b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[[[[",), "ends before"),
    ((b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 200_000,), ""), ((b"HTTP/1.1 200 OK\r\n\r\n<html>",), ""),
    ((b"HTTP/1.1 200 OK\r\n\r\n\xff\xfe",), ""), ((b"\x15\x03\x01",), ""), ((b"",), ""),
    ((b"HTTP/1.1 200 OK\r\n\r\n" + b"9" * 100_000,), ""), ((b"HTTP/1.1 500 " + b"no" * 900 + b"\r\n\r\n",), "500"),
])  # fmt: skip
def test_an_answer_that_is_none_is_said_in_a_line(server: KeyServer, pieces: tuple[bytes, ...], why: str) -> None:
    server.paths["/k"] = lambda request: request.raw(*pieces)
    said = refused(f"{server.url}/k")
    assert why in said
    assert len(said) < 500
    assert "\n" not in said


def test_a_provider_that_drips_is_given_up_in_time(server: KeyServer) -> None:
    """A byte now and then does not extend the time, neither in the head nor in the body."""
    gone = threading.Event()

    def drip(request: Request) -> None:
        request.raw(b"HTTP/1.1 200 OK\r\nX: ")
        while not gone.wait(0.02):
            request.raw(b"y")

    server.paths["/k"] = drip
    begun = time.monotonic()
    assert "within 0.5 s" in refused(f"{server.url}/k", QUICK)
    assert time.monotonic() - begun < 20
    gone.set()


def test_a_provider_that_hangs_or_is_not_there(server: KeyServer) -> None:
    server.free.clear()
    assert "within 0.5 s" in refused(f"{server.url}/k", QUICK)
    port = free_port()
    assert f"127.0.0.1:{port}" in refused(f"http://127.0.0.1:{port}/k")


def test_an_address_that_leads_nowhere_leaves_time_for_the_next(
    server: KeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is what an IPv6 address of a provider does in a network without a route to it."""
    server.paths["/"] = lambda request: request.give({"here": True})
    with socket.socket() as deaf, socket.socket() as first, socket.socket() as second:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for one in (first, second):  # who comes after them is not answered
            one.setblocking(False)
            one.connect_ex(deaf.getsockname())
        found = [(2, 1, 6, "", deaf.getsockname()), (2, 1, 6, "", ("127.0.0.1", server.port))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_arguments, **_more: found)
        assert ask("http://localhost:1/", Manner(8.0)).value == {"here": True}


def test_redirects_are_followed_where_it_is_said_and_not_for_ever(server: KeyServer) -> None:
    server.paths["/k"] = lambda request: request.give([1])
    server.paths["/to"] = lambda request: request.give({}, 302, Location="/k")
    server.paths["/loop"] = lambda request: request.give({}, 307, Location="/loop")
    server.paths["/bad"] = lambda request: request.give({}, 301, Location="http://[/")
    follow = Manner(timeout=30, redirects=True)
    assert "redirects: true" in refused(f"{server.url}/to")
    assert ask(f"{server.url}/to", follow).value == [1]
    assert "more than 3" in refused(f"{server.url}/loop", follow)
    refused(f"{server.url}/bad", follow)


@pytest.mark.parametrize(("target", "why"), [
    ("http://example.com/k", "not https"), ("file:///etc/passwd", "not https"), ("gopher://127.0.0.1/", "not https"),
    ("https://10.0.0.1/k", "private"), ("https://169.254.169.254/latest", "private"), ("https://[::1]/k", ""),
    ("https://[::ffff:10.0.0.1]/k", "private"), ("https://0.0.0.0/k", "private"), ("https://[fe80::1]/k", "private"),
    ("https://100.64.0.1/k", "private"), ("https://224.0.0.1/k", "private"),
])  # fmt: skip
def test_where_a_redirect_may_not_lead(server: KeyServer, target: str, why: str) -> None:
    server.paths["/to"] = lambda request: request.give({}, 302, Location=target)
    assert why in refused(f"{server.url}/to", Manner(timeout=5, redirects=True))


def test_only_an_address_of_the_settings_leads_to_loopback(server: KeyServer) -> None:
    """A document from a provider elsewhere that names this host is not followed."""
    server.paths["/k"] = lambda request: request.give([1])
    assert ask(f"{server.url}/k", PATIENT, f"{server.url}/").value == [1]
    assert "not https" in refused(f"{server.url}/k", PATIENT, "https://login.example")
    assert "private" in refused(f"https://127.0.0.1:{server.port}/k", PATIENT, "https://login.example")
    assert not [path for path in server.asked if path != "/k"]


def test_its_certificate_is_checked(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    with KeyServer(authority.issue("keys")) as server:
        server.paths["/k"] = lambda request: request.give([1])
        assert ask(f"{server.url}/k", Manner(timeout=30, ca=str(authority.path))).value == [1]
        assert "certificate" in refused(f"{server.url}/k", Manner(timeout=30, ca=str(other.path)))
        assert "certificate" in refused(f"{server.url}/k")
        refused(f"{server.url}/k", Manner(timeout=30, ca=str(tmp_path / "missing")))
    with KeyServer(authority.issue("late", days=-1)) as server:
        assert "expired" in refused(f"{server.url}/k", Manner(timeout=30, ca=str(authority.path)))


def test_what_is_said_of_an_address_holds_no_secret(server: KeyServer) -> None:
    said = refused(f"{server.url}/k?secret=s3cr3t")
    assert "404" in said
    assert "s3cr3t" not in said

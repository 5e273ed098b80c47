"""A gateway that is stopped while it waits for those who know users: time in which it stood still is not charged to
them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from key_server import KeyServer, Request

from gateway.access.patience import Patience

SECONDS = 1.5
"""The timeout of the methods. A quarter of a second of it is counted where the process is stopped, and what it takes on
a machine with much else to do."""
WEBHOOK = """
import sys, threading
from gateway.access.logins import Credentials
from gateway.access.webhook import Asked
from gateway.config.identity import Webhook
asked = Asked(Webhook(url=sys.argv[1], timeout=1.5), None, None, lambda url, why: None)
def ask(): said.append(asked.ask(Credentials("c1", "alice", b"pw", "tls", "10.0.0.9")))
said = []
threads = [threading.Thread(target=ask) for _ in range(4)]
for each in threads: each.start()
for each in threads: each.join()
print(*said, sep="\\n")
"""
KEYS = """
import sys
from gateway.access.web import Manner, ask
print(ask(sys.argv[1], Manner(1.5)), flush=True)
"""
DIRECTORY = """
import sys
from gateway.access.directory import Directory
from gateway.access.logins import Credentials
from gateway.config.identity import Ldap
settings = Ldap(servers=[sys.argv[1]], start_tls=False, bind_as="uid={user},o=plant", timeout=1.5)
asked = Directory(settings, None, None, lambda url, why: None)
print(asked.ask(Credentials("c1", "alice", b"pw", "tls", "10.0.0.9")), flush=True)
"""
BOUND = b"\x30\x0c\x02\x01\x01\x61\x07\x0a\x01\x00\x04\x00\x04\x00"
"""The answer to a first bind: success (RFC 4511, 4.2.2)."""


class Stopped:
    """A process that is stopped while it waits."""

    def __init__(self, script: str, url: str) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", script, url], stdout=subprocess.PIPE, text=True)

    def sleep(self, answer: Callable[[], Any]) -> None:
        """Stop the process, answer meanwhile, and continue after more than all the times that it counts."""
        os.kill(self._process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)
        answer()
        time.sleep(2.5 * SECONDS)
        os.kill(self._process.pid, signal.SIGCONT)

    def said(self) -> list[str]:
        text, _ = self._process.communicate(timeout=60)
        return text.splitlines()


def test_a_webhook_has_its_time() -> None:
    """Four questions, some of which wait for the answer to another one's request."""
    stopped: list[Stopped] = []

    def serve(request: Request) -> None:
        asked = json.loads(request.rfile.read(int(request.headers["Content-Length"])))["logins"]
        answer = {"logins": [{"allow": True, "user": one["user"]} for one in asked]}
        if len(server.asked) == 1:
            stopped[0].sleep(lambda: request.give(answer))
        else:
            request.give(answer)

    with KeyServer() as server:
        server.paths["/login"] = serve
        stopped.append(Stopped(WEBHOOK, f"{server.url}/login"))
        said = stopped[0].said()
    assert len(said) == 4
    assert all(one.startswith("Login(user='alice'") for one in said), said


def test_keys_have_their_time() -> None:
    with KeyServer() as server:
        server.paths["/keys"] = lambda request: stopped.sleep(lambda: request.give([1]))
        stopped = Stopped(KEYS, f"{server.url}/keys")
        assert stopped.said() == ["Answer(value=[1], max_age=None)"]


def test_a_directory_has_its_time() -> None:
    pytest.importorskip("ldap3")

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(1000)
            stopped.sleep(lambda: connection.sendall(BOUND))
            connection.recv(1000)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        stopped = Stopped(DIRECTORY, f"ldap://127.0.0.1:{server.getsockname()[1]}")
        [said] = stopped.said()
    assert said.startswith("Login(user='alice'"), said


def test_who_does_not_answer_is_given_up_in_time() -> None:
    patience, tries = Patience(0.6), []

    def wait(seconds: float) -> None:
        tries.append(seconds)
        time.sleep(seconds)
        raise TimeoutError

    with pytest.raises(TimeoutError):
        patience.call(wait)
    assert sum(tries) > 0.5
    assert tries[0] == 0.25

"""People sign in at an OpenID provider that is not ours (oidc-provider-mock, over authlib), as a browser does it: its
discovery document, its form, its code, its keys. Attacks on signing in are in `test_people_elsewhere.py`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from urllib.parse import urlencode

import pytest
from free_ports import free_port
from gateways import RunningGateway

PROGRAM = Path(sys.executable).with_name("oidc-provider-mock")
PEOPLE = [
    {"sub": "0815", "preferred_username": "dora", "roles": ["mq-operate", "else"]},
    {"sub": "0816", "preferred_username": "emil", "roles": ["else"]},
]
SETTINGS = """
admin:
  oidc:
    name: Plant login
    issuer: http://127.0.0.1:{provider}
    client_id: mqgate
    client_secret_file: client.secret
    gateway_url: http://127.0.0.1:{admin}
    roles_claim: roles
    roles: [{{value: mq-operate, role: operator}}]
"""


class _Stays(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:  # type: ignore[override]
        """Follow nothing."""


class Browser:
    """Keeps the cookies of the gateway, follows nothing by itself."""

    def __init__(self, gateway: str) -> None:
        self._gateway = gateway
        self._cookies: dict[str, str] = {}

    def ask(self, url: str, form: dict[str, str] | None = None) -> tuple[int, Message, bytes]:
        request = urllib.request.Request(url, None if form is None else urlencode(form).encode())
        if url.startswith(self._gateway):
            request.add_header("Cookie", "; ".join(f"{name}={value}" for name, value in self._cookies.items()))
        try:
            answer = urllib.request.build_opener(_Stays).open(request, timeout=60)
        except urllib.error.HTTPError as error:
            answer = error
        for one in answer.headers.get_all("set-cookie") or ():
            if url.startswith(self._gateway):
                name, _, value = one.partition(";")[0].partition("=")
                self._cookies[name] = value
        return answer.status, answer.headers, answer.read()

    def signs_in(self, who: str) -> tuple[int, Message, bytes]:
        """From the gateway's page to the provider's form and back; what the gateway says then."""
        until = time.monotonic() + 120
        status, headers, body = self.ask(f"{self._gateway}/api/v1/sign-in/begin")
        while status != 302:  # the provider has not started yet
            assert time.monotonic() < until, body
            time.sleep(0.2)
            status, headers, body = self.ask(f"{self._gateway}/api/v1/sign-in/begin")
        status, _, body = self.ask(headers["location"])
        assert status == 200, body
        status, headers, body = self.ask(headers["location"], {"sub": who})
        assert status == 302, body
        return self.ask(headers["location"])

    def me(self) -> tuple[int, dict[str, object]]:
        status, _, body = self.ask(f"{self._gateway}/api/v1/me")
        return status, json.loads(body)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("provider")
    (folder / "client.secret").write_text("a-secret-of-the-client\n")
    port, admin = free_port(), free_port()
    command = [str(PROGRAM), "--port", str(port), "--require-nonce", "true"]
    for person in PEOPLE:
        command += ["--user-claims", json.dumps(person)]
    with (folder / "provider.log").open("wb") as log:
        provider = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        running = RunningGateway(folder, settings=SETTINGS.format(provider=port, admin=admin))
        running.start(admin_port=admin)
        try:
            yield f"http://127.0.0.1:{admin}"
        finally:
            running.kill()
    finally:
        provider.terminate()
        provider.wait(30)


def test_who_has_a_role_there_is_signed_in_here(gateway: str) -> None:
    browser = Browser(gateway)
    status, headers, _ = browser.signs_in("0815")
    assert (status, headers["location"]) == (302, "/admin/")
    status, me = browser.me()
    assert (status, me["name"], me["role"], me["method"]) == (200, "dora", "operator", "oidc")


def test_who_has_none_is_not(gateway: str) -> None:
    browser = Browser(gateway)
    status, _, body = browser.signs_in("0816")
    assert status in {401, 403}, body
    assert browser.me()[0] == 401

"""A service of the operator that says who clients are: what it can answer, and what its answers cannot cause."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from key_server import KeyServer, Request

from gateway.access.granted import MAX_FILTERS
from gateway.access.logins import Answer, Credentials, Login, NotNow
from gateway.access.web import MAX_ANSWER
from gateway.access.webhook import MAX_QUESTIONS, Asked
from gateway.app.access import ask_each
from gateway.config.identity import Webhook
from gateway.config.load import load_settings
from gateway.routing.acl import Lists

Answers = Callable[[dict[str, Any]], object]


class Service(KeyServer):
    """Answers each login by a function, and keeps the requests."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[dict[str, Any]] = []
        self.tokens: list[str | None] = []

    def answers(self, each: Answers) -> None:
        def handle(request: Request) -> None:
            asked = self.read(request)
            request.give({"logins": [each(one) for one in asked["logins"]]})

        self.paths["/login"] = handle

    def read(self, request: Request) -> dict[str, Any]:
        asked: dict[str, Any] = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        self.requests.append(asked)
        self.tokens.append(request.headers["Authorization"])
        return asked


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as running:
        running.answers(lambda one: {"allow": one.get("password") == "pw", "user": one["user"]})
        yield running


class Asking:
    """The method, and what it has reported."""

    def __init__(self, service: Service, token: str | None = None, **settings: object) -> None:
        made = Webhook(**{"url": f"{service.url}/login", "timeout": 30, **settings})  # type: ignore[arg-type]
        self.told: list[str] = []
        self.asked = Asked(made, None, token, lambda _url, why: self.told.append(why))

    def ask(self, user: str | None = "alice", password: bytes | None = b"pw") -> Answer:
        return self.asked.ask(Credentials("c1", user, password, "tls", "10.0.0.9"))


def test_it_is_asked_with_all_that_is_known(service: Service) -> None:
    asking = Asking(service, token="s3cret")
    assert asking.ask() == Login("alice", "webhook", 300.0)
    assert asking.ask(password=b"\xff") is None
    assert asking.ask(None, None) is None
    about = {"client_id": "c1", "user": "alice", "listener": "tls", "address": "10.0.0.9"}
    assert service.requests == [
        {"version": 1, "logins": [{**about, "password": "pw"}]},
        {"version": 1, "logins": [{**about, "password_base64": "/w=="}]},
        {"version": 1, "logins": [{**about, "user": None, "password": None}]},
    ]
    assert set(service.tokens) == {"Bearer s3cret"}
    assert asking.told == ["", "", ""]


@pytest.mark.parametrize("answer", [{"logins": []}, {"logins": [{"allow": 1}]}, None])
def test_what_stands_behind_its_address_is_not_told(service: Service, answer: object) -> None:
    if answer is not None:
        service.paths["/login?key=planted"] = lambda request: (service.read(request), request.give(answer))
    told: list[str] = []
    made = Webhook(url=f"{service.url}/login?key=planted", timeout=30)
    asked = Asked(made, None, None, lambda provider, why: told.append(f"{provider} {why}"))
    assert isinstance(asked.ask(Credentials("c1", "alice", b"pw")), NotNow)
    assert told[0].startswith(f"{service.url}/login webhook: {service.url}/login")
    assert "planted" not in told[0]


def test_check_says_why_a_method_cannot_say(service: Service, tmp_path: Path) -> None:
    """`mqgate check --ask` is for the operator, whom the answer for devices, to try again, does not help."""
    file = tmp_path / "settings.yaml"
    file.write_text(f'security: {{webhook: {{url: "{service.url}/away", timeout: 30}}}}\n')
    said = list(ask_each(load_settings(str(file), {}, {}), Credentials("c1", "alice", b"pw")))
    assert said == [("webhook", f"cannot say: webhook: {service.url}/away answers 404 Not Found", False)]


def test_an_answer_names_the_user_and_what_he_may_do(service: Service) -> None:
    topics = {"publish": ["plant/{client}/#"], "subscribe": ["+/cmd"]}
    said = {"allow": True, "user": "line7", "client_id": "c7", "lasts": 20, "ends": 1e9, "topics": topics}
    service.answers(lambda _one: said)
    asking = Asking(service)
    lists = Lists(("plant/{client}/#",), ("+/cmd",))
    assert asking.ask() == Login("line7", "webhook", 20.0, "c7", 1e9, lists)
    said["topics"], said["lasts"] = ["a/#"], 1e6
    assert asking.ask() == Login("line7", "webhook", 300.0, "c7", 1e9, Lists(("a/#",), ("a/#",)))


@pytest.mark.parametrize("said", [
    None, [], "yes", True, {}, {"allow": "true", "user": "a"}, {"allow": 1, "user": "a"}, {"allow": True},
    {"allow": True, "user": ""}, {"allow": True, "user": ["a"]}, {"allow": True, "user": "a\nb"},
    {"allow": True, "user": "a" * 5000}, {"allow": True, "user": "a", "client_id": 7},
    {"allow": True, "user": "a", "lasts": "long"}, {"allow": True, "user": "a", "ends": -1},
    {"allow": True, "user": "a", "topics": "#"}, {"allow": True, "user": "a", "topics": ["a/#/b"]},
    {"allow": True, "user": "a", "topics": {"publish": ["#"], "sub": []}},
    {"allow": True, "user": "a", "topics": ["#"] * (MAX_FILTERS + 1)},
    {"allow": True, "user": "a", "topics": ["{secret}"]}, {"allow": True, "user": "a", "topics": ["a\x00b"]},
    {"allow": True, "user": "a", "topics": {"publish": None}}, {"allow": True, "user": "a", "topics": [7]},
])  # fmt: skip
def test_an_entry_that_is_none_lets_nobody_in(service: Service, said: object) -> None:
    service.answers(lambda _one: said)
    asking = Asking(service)
    assert isinstance(asking.ask(), NotNow)
    assert asking.told[0].startswith(f"webhook: {service.url}/login: ")
    assert len(asking.told[0]) < 500


HUGE = b'{"logins": [{"allow": true, "user": "alice"}]' + b" " * 65536


def _flood(request: Request) -> None:
    request.close_connection = True
    request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
    for _ in range(1600):  # 100 MB, for as long as anybody listens
        request.wfile.write(HUGE)


@pytest.mark.parametrize("answer", [
    _flood,
    lambda request: request.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n", HUGE),
    lambda request: request.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n", HUGE[:45]),
    lambda request: request.raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2d\r\n", HUGE[:45]),
    lambda request: request.give(b"<html>allow</html>", Content_Type="application/json"),
    lambda request: request.give(b"\x1f\x8b\x08junk", Content_Type="application/json", Content_Encoding="gzip"),
    lambda request: request.give({"logins": [{"allow": True, "user": "alice"}]}, 500),
    lambda request: request.give({"logins": [{"allow": True, "user": "alice"}]}, 204),
    lambda request: request.give({"logins": [{"allow": True, "user": "alice"}]}, 302, Location="http://127.0.0.1:9/"),
    lambda request: request.give({"logins": []}), lambda request: request.give([1]), lambda request: request.give({}),
    lambda request: request.give({"logins": [{"allow": True, "user": "alice"}] * 2}),
    lambda request: request.give({"logins": {"allow": True}}), lambda request: request.raw(b""),
    lambda request: request.give(b"[" * 100_000),
])  # fmt: skip
@pytest.mark.parametrize("fail", ["closed", "open"])
def test_an_answer_that_is_none_is_no_yes(service: Service, answer: Callable[[Request], None], fail: str) -> None:
    def handle(request: Request) -> None:
        service.read(request)
        answer(request)

    service.paths["/login"] = handle
    asking = Asking(service, fail=fail)
    said = asking.ask()
    assert isinstance(said, NotNow), said
    assert said.instead == (Login("alice", "webhook", 2.0) if fail == "open" else None)
    assert asking.told[0].startswith("webhook: ")
    assert len(asking.told[0]) < 500
    assert service.requests[0]["logins"][0]["user"] == "alice"
    assert len(HUGE) * 1600 > 100_000_000 > MAX_ANSWER


def test_where_it_fails_open_only_a_name_is_let_in(service: Service) -> None:
    service.paths.clear()
    for user in (None, "", "a\nb", "x" * 2000):
        said = Asking(service, fail="open").ask(user)
        assert isinstance(said, NotNow)
        assert said.instead is None


def test_nobody_waits_for_a_service_that_hangs_longer_than_once(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.access.webhook.REST_SECONDS", 3600.0)
    service.free.clear()
    asking = Asking(service, timeout=2)
    assert isinstance(asking.ask(), NotNow)
    assert [asking.ask() for _ in range(50)] == [NotNow(asking.ask().why)] * 50  # type: ignore[union-attr]
    until(lambda: service.asked)
    assert len(service.asked) == 1, "it rests"
    assert "within 2 s" in asking.told[0]


def until(met: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not met():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_questions_that_come_together_go_together(service: Service) -> None:
    """While two requests are under way the others form a batch; each gets its own answer."""
    service.free.clear()
    asking = Asking(service)
    each = [f"u{number}" for number in range(MAX_QUESTIONS + 30)]
    service.answers(lambda one: {"allow": one["user"] != "u7", "user": f"<{one['user']}>"})
    with ThreadPoolExecutor(len(each)) as threads:
        answers = [threads.submit(asking.ask, each[0])]
        until(lambda: len(service.asked) == 1)
        answers.append(threads.submit(asking.ask, each[1]))
        until(lambda: len(service.asked) == 2)
        answers += [threads.submit(asking.ask, user) for user in each[2:]]
        until(lambda: asking.asked._forming is not None and len(asking.asked._forming.questions) > 1)
        service.free.set()
        said = [one.result(60) for one in answers]
    names = [one.user if isinstance(one, Login) else one for one in said]
    assert names == [None if user == "u7" else f"<{user}>" for user in each]
    sizes = [len(one["logins"]) for one in service.requests]
    assert sum(sizes) == len(each)
    assert 1 < max(sizes) <= MAX_QUESTIONS
    assert len(sizes) < len(each)


@pytest.mark.parametrize("url", ["http://example.com/x", "ftp://127.0.0.1/", "https://user:pw@example.com/", "/login"])
def test_a_service_is_asked_over_https_or_loopback(url: str) -> None:
    with pytest.raises(ValueError, match=r"address|protected"):
        Webhook(url=url)

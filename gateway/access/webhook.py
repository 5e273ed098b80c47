"""Users that a service of the operator knows, asked over HTTP. Blocks, so it is used on threads.

Questions that come together go in one request: those that come while requests are under way form the next one. If the
service does not answer as it should, nobody waits for it for some time.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable
from typing import Any

from gateway.access.granted import NoLists, lists_of
from gateway.access.logins import Answer, Credentials, Login, NotNow
from gateway.access.patience import STEP
from gateway.access.web import Manner, Unanswered, ask, shown
from gateway.config.identity import Webhook
from gateway.config.security import MethodName

REQUESTS = 2
"""How many requests may be under way at a time."""
MAX_QUESTIONS = 50
"""How many questions may be in one request."""
GATHERING, MOST_GATHERING = 0.125, 0.02
"""How long a batch waits for more questions: a share of the last request's time, and the most seconds. The devices that
the last answer let through make room for as many others, and the first of these should not go alone."""
REST_SECONDS = 2.0
MAX_NAME = 1024
_NOT_NOW = "the service that knows users does not answer now: try again later"


class _Batch:
    """Questions that go together, and their answers."""

    def __init__(self) -> None:
        self.questions: list[Credentials] = []
        self.answers: list[Answer] = []
        self.done = threading.Event()

    def wait(self, seconds: float) -> None:
        """Wait for the answers, in steps: time in which this process stands still in one of them does not count."""
        while seconds > 0 and not self.done.wait(STEP):
            seconds -= STEP


class Asked:
    """Users of the service."""

    name: MethodName = "webhook"
    by_client = waits = True
    asked_again = False

    def __init__(
        self, settings: Webhook, ca: str | None, token: str | None, told: Callable[[str, str], None]
    ) -> None:  # fmt: skip
        self._settings, self._told = settings, told
        self._shown = shown(settings.url)  # a secret may follow its `?`
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._manner = Manner(settings.timeout, ca, settings.private_addresses)
        self._lock = threading.Lock()
        self._forming: _Batch | None = None
        self._under_way = threading.BoundedSemaphore(REQUESTS)
        self._rests_until = 0.0
        self._took = 0.0
        """The seconds that the last request took."""

    def ask(self, who: Credentials) -> Answer:
        """Who the service says this is."""
        if time.monotonic() < self._rests_until:
            return self._unanswered(who)
        with self._lock:
            batch = self._forming
            first = batch is None or len(batch.questions) >= MAX_QUESTIONS
            if batch is None or first:
                batch = self._forming = _Batch()
            place = len(batch.questions)
            batch.questions.append(who)
        if first:
            self._send(batch)
        else:
            batch.wait(3 * self._settings.timeout)
        return batch.answers[place] if batch.answers else self._unanswered(who)

    def _send(self, batch: _Batch) -> None:
        """Send a batch when its turn has come, with what has joined it until then."""
        try:
            with self._under_way:
                if len(batch.questions) < MAX_QUESTIONS:
                    time.sleep(min(MOST_GATHERING, self._took * GATHERING))
                with self._lock:
                    if self._forming is batch:
                        self._forming = None
                if time.monotonic() >= self._rests_until:
                    self._request(batch)
        finally:
            batch.done.set()

    def _request(self, batch: _Batch) -> None:
        why, begun = "", time.monotonic()
        try:
            said = self._said(batch.questions)
        except Unanswered as error:
            self._rests_until = time.monotonic() + REST_SECONDS
            why = str(error)
        else:
            self._took = time.monotonic() - begun
            answers: list[Answer] = []
            for who, one in zip(batch.questions, said, strict=True):
                try:
                    answers.append(self._login(one))
                except NoLists as error:
                    why = f"{self._shown}: {error}"
                    answers.append(self._unanswered(who))
            batch.answers = answers
        self._told(self._shown, f"webhook: {why}" if why else "")

    def _said(self, questions: list[Credentials]) -> list[Any]:
        """The entries of the answer, one for each question. Raises Unanswered."""
        url = self._settings.url
        question = {"version": 1, "logins": [_question(one) for one in questions]}
        answer = ask(url, self._manner, body=json.dumps(question).encode(), headers=self._headers)
        said = answer.value.get("logins") if isinstance(answer.value, dict) else None
        if not isinstance(said, list) or len(said) != len(questions):
            raise Unanswered(f"{self._shown}: its answer has no list `logins` with an entry for each question")
        return said

    def _login(self, said: Any) -> Answer:
        """The login in an entry of an answer; None: the entry refuses. Raises NoLists if the entry cannot be
        understood, which lets nobody in."""
        if not isinstance(said, dict) or not isinstance(said.get("allow"), bool):
            raise NoLists("an entry of `logins` has no `allow` that is true or false")
        if not said["allow"]:
            return None
        user, client_id = said.get("user"), said.get("client_id")
        if not _is_name(user) or not (client_id is None or _is_name(client_id)):
            raise NoLists("an entry of `logins` that allows has no `user`, or one that is not a name")
        ends, lasts = _number(said, "ends"), _number(said, "lasts")
        topics = None if said.get("topics") is None else lists_of(said["topics"])
        lasts = self._settings.cache if lasts is None else min(lasts, self._settings.cache)
        return Login(str(user), self.name, lasts, client_id, ends or 0.0, topics)

    def _unanswered(self, who: Credentials) -> NotNow:
        """What is answered while the service does not answer. With `fail: open`, whoever gives a name is let in under
        it if no other method accepts."""
        if self._settings.fail == "open" and _is_name(who.username):
            return NotNow(_NOT_NOW, Login(str(who.username), self.name, REST_SECONDS))
        return NotNow(_NOT_NOW)

    def close(self) -> None:
        """Nothing is open."""


def _question(who: Credentials) -> dict[str, str | None]:
    said = {
        "client_id": who.client_id, "user": who.username, "listener": who.listener, "address": who.address,
    }  # fmt: skip
    try:
        said["password"] = None if who.password is None else who.password.decode()
    except UnicodeDecodeError:
        said["password_base64"] = base64.b64encode(who.password or b"").decode()
    return said


def _is_name(said: object) -> bool:
    return isinstance(said, str) and 0 < len(said) <= MAX_NAME and said.isprintable()


def _number(said: dict[str, Any], name: str) -> float | None:
    value = said.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise NoLists(f"`{name}` is not a number of seconds")
    return float(value)

"""Whether what is set aside may go back: without a look at all sessions, or retained messages, for each record."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from broker_harness import Harness

from gateway.app.api.set_aside import has_session, is_retained
from gateway.broker.publish.retained import Retained
from gateway.session.publication import Publication
from gateway.session.record import encode_publication, key_of
from gateway.session.registry import Registry
from gateway.session.session import Session


class Looked(Registry):
    """Counts the sessions that are looked at."""

    at = 0

    def __iter__(self) -> Iterator[Session]:
        for one in super().__iter__():
            self.at += 1
            yield one


@pytest.fixture
def sessions() -> Looked:
    made = Looked()
    for number in range(1000):
        made.add(Session(f"device-{number}", 5))
    return made


def record(client: str) -> bytes:
    return Session(client, 5).to_record(0.0, {})


def test_a_session_is_found_by_the_client_of_its_record(sessions: Looked) -> None:
    assert has_session(sessions, key_of("device-999"), record("device-999"))
    assert not has_session(sessions, key_of("device-1000"), record("device-1000"))
    assert not sessions.at


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"{}", b"[" * 100_000, record("device-1000")])
def test_a_record_that_does_not_say_whose_it_is_is_looked_for(sessions: Looked, data: bytes) -> None:
    assert has_session(sessions, key_of("device-999"), data)
    assert not has_session(sessions, key_of("device-1001"), data)
    assert 1000 < sessions.at <= 2000


class LookedTopics(Retained):
    """Counts the retained messages that are looked at."""

    at = 0

    def __iter__(self) -> Iterator[Publication]:
        for one in super().__iter__():
            self.at += 1
            yield one


def retained_record(topic: str) -> bytes:
    return encode_publication(Publication(topic.encode(), b"x", 1, True), 1)


def test_a_retained_message_is_found_by_the_topic_of_its_record() -> None:
    retained = LookedTopics(Harness().engine.context)
    for number in range(1000):
        retained.restore(Publication(f"r/{number}".encode(), b"x", 1, True))
    assert is_retained(retained, key_of("r/999"), retained_record("r/999"))
    assert not is_retained(retained, key_of("r/1000"), retained_record("r/1000"))
    assert not is_retained(retained, key_of("r"), retained_record("r"))
    assert not retained.at
    for data in (b"", b"\xff" * 40, retained_record("r/1000")):
        assert is_retained(retained, key_of("r/999"), data)
        assert not is_retained(retained, key_of("r/1001"), data)
    assert retained.at == 6000

"""gateway.broker.sessions.questions: what others ask and cannot be answered yet."""

from __future__ import annotations

from typing import Any

from gateway.broker.sessions.questions import Questions


def ask(client: str, sender: str) -> dict[str, Any]:
    return {"kind": "ask", "client": client, "from": sender}


def made(*asked: tuple[str, str]) -> Questions:
    questions = Questions()
    for client, sender in asked:
        questions.add(ask(client, sender))
    return questions


def test_who_asked_first_is_first() -> None:
    questions = made(("a", "2"), ("b", "1"), ("a", "1"))
    assert "a" in questions
    assert questions.take() == [ask("a", "2"), ask("a", "1"), ask("b", "1")]
    assert not questions
    assert "a" not in questions


def test_what_is_withdrawn_is_not_answered() -> None:
    questions = made(("a", "2"), ("a", "1"), ("b", "2"))
    questions.withdraw("a", "2")
    questions.withdraw("b", "2")
    questions.withdraw("c", "2")
    assert "b" not in questions
    assert questions.take() == [ask("a", "1")]


def test_a_gateway_that_has_ended_is_not_answered() -> None:
    questions = made(("a", "2"), ("a", "1"), ("b", "2"))
    questions.drop_those_of(["2", "3"])
    assert questions.take() == [ask("a", "1")]

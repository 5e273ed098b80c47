"""gateway.config.counting: one file, two files."""

from __future__ import annotations

import pytest

from gateway.config.counting import counted


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 files"), (1, "1 file"), (2, "2 files"), (1234, "1,234 files"), (-1, "-1 files")]
)
def test_words_follow_their_number(number: int, text: str) -> None:
    assert counted(number, "file") == text


def test_a_word_of_its_own() -> None:
    assert (counted(1, "entry", "entries"), counted(3, "entry", "entries")) == ("1 entry", "3 entries")


def test_a_verb_of_its_own() -> None:
    found = [counted(number, "message waits", "messages wait") for number in (0, 1, 2)]
    assert found == ["0 messages wait", "1 message waits", "2 messages wait"]

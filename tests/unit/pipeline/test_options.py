"""Options of the data source whose values MQ would not have are refused, and each says what to write."""

from __future__ import annotations

import pytest

from gateway.pipeline.errors import WrongOption
from gateway.pipeline.source.options import Options


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("priority", "12", "write a whole number from 0 to 9"),
        ("persistence", "5", "write a whole number from 0 to 1"),
        ("partitions", "0", "write a whole number of at least 1"),
        ("startingSeq", "²", "write a whole number of at least 0"),
        ("format", "ÄÖÜ", "write the name of an MQ format"),
        ("format", "TOOLONGNAME", "write the name of an MQ format"),
    ],
)
def test_a_value_that_mq_would_not_have(name: str, value: str, says: str) -> None:
    with pytest.raises(WrongOption, match=f"option '{name}' is '{value}': {says}"):
        Options.read({"queue": "Q", name: value})


@pytest.mark.parametrize(("one", "other"), [("connection", "path"), ("ccdt", "url")])
def test_two_places(one: str, other: str) -> None:
    """The queue of IBM MQ was read, and the journal not."""
    with pytest.raises(WrongOption, match=rf"^options '{one}' and '{other}' name two places: leave one of them out"):
        Options.read({"queue": "Q", one: "there", other: "/here"})


def test_values_that_it_has() -> None:
    found = Options.read({"queue": "Q", "priority": "9", "persistence": "0", "format": "MQHRF2"})
    assert (found.priority, found.persistence, found.format) == (9, 0, "MQHRF2")

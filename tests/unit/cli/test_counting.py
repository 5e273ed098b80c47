"""gateway.cli.counting: one file, two files."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli.check import check
from gateway.cli.counting import counted

ONE = """
version: 1
to_mq:
  - {name: up, topic: up, queue: Q}
tests:
  - {publish: {topic: up, payload: x}, expect: [{queue: Q}]}
"""


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 files"), (1, "1 file"), (2, "2 files"), (1234, "1,234 files"), (-1, "-1 files")]
)
def test_words_follow_their_number(number: int, text: str) -> None:
    assert counted(number, "file") == text


def test_a_word_of_its_own() -> None:
    assert (counted(1, "entry", "entries"), counted(3, "entry", "entries")) == ("1 entry", "3 entries")


def test_check_counts_as_a_person_does(tmp_path: Path) -> None:
    file = tmp_path / "map.yaml"
    file.write_text(ONE)
    assert CliRunner().invoke(check, [str(file)]).output == "all is well: 1 file, 1 test passed\n"

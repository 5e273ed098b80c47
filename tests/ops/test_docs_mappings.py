"""The page of the shipped mappings: every file is on it, and each command says what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "howto" / "shipped-mappings.md").read_text()
COMMANDS = re.findall(r"^\$ mqgate (.+)\n((?:(?!\$ |```).*\n)*)", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("words", "shown"), COMMANDS, ids=[words for words, _ in COMMANDS])
def test_a_command_says_what_the_page_says(words: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(main, shlex.split(words))
    assert done.exit_code == 0, done.output
    said = [line.rstrip() for line in done.output.splitlines()]
    expected = shown.splitlines()
    if expected[-1] == "...":
        expected.pop()
        said = said[: len(expected)]
    assert said == expected


def test_every_mapping_is_on_the_page() -> None:
    checked = {words.split()[1] for words, _ in COMMANDS if words.startswith("check ")}
    assert checked == {f"mappings/{path.name}" for path in (ROOT / "mappings").glob("*.yaml")}

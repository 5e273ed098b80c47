"""The page of the shipped mappings: every file is on it, and each command says what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml
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


@pytest.mark.parametrize("path", sorted((ROOT / "mappings").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_queue_that_devices_fill_is_defined_with_room(path: Path) -> None:
    """Without MAXDEPTH it takes 5,000 messages; a REPLACE took that of a queue that is there from the start."""
    text = path.read_text()
    defined = re.findall(r"^# +DEFINE QLOCAL\(([^)]+)\)(.*)$", text, re.MULTILINE)
    tests = yaml.safe_load(text)["tests"]
    filled = {one.get("queue") for test in tests if "publish" in test for one in test.get("expect", [])}
    short = [
        name
        for name, rest in defined
        if (name in filled or "REPLACE" in rest or "XMITQ" in rest) and "MAXDEPTH(" not in rest
    ]
    assert short == []

"""Commands in the documentation exist with their options, YAML in it is accepted, and the tutorial is executed."""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import gateway_template
import pytest
import yaml
from free_ports import free_port
from ops_machine import ROOT, program
from running_gateway import Running, publish, until_ready

from gateway.cli.main import main
from gateway.config.load import load_settings

pytestmark = [pytest.mark.ops, pytest.mark.xdist_group("docs")]

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PLACEHOLDER = re.compile(r"^[A-Z_]+(\.\.\.)?$|^\.\.\.$|^…$")
NOT_YET: set[str] = set()
"""Commands that are written of before they are there."""


def commands(page: Path) -> Iterator[list[str]]:
    """Every `mqgate ...` in code: inline, or a line of a shell block."""
    text = page.read_text()
    inline = re.findall(r"(?<!`)`((?:\.venv/bin/|/opt/mqgate/bin/)?mqgate [^`\n]+)`(?!`)", text)
    blocks = "\n".join(re.findall(r"```(?:sh|console|bash)\n(.*?)```", text, re.DOTALL))
    lines = re.findall(r"^(?:\$ )?((?:\S*/)?mqgate [^\n]*)$", blocks, re.MULTILINE)
    for line in (*inline, *lines):
        words = shlex.split(line.split(" # ")[0], comments=True)[1:]
        listed = [each for each in words if each.endswith(",")]
        if listed:  # `mqgate queue list, show, browse`: several commands in one breath
            first = words.index(listed[0])
            yield from ([*words[:first], each.rstrip(",")] for each in words[first:])
        else:
            yield words[: words.index("|")] if "|" in words else words


def complaint(words: list[str], *, typed: bool = False) -> str:
    """What is wrong with a command line, by the command line's own definition; if it is to be typed as it stands, also
    what it lacks."""
    command: click.Command = main
    context = click.Context(main)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        if words[0] in NOT_YET:
            return ""
        found = command.get_command(context, words[0])
        if found is None:
            return "" if PLACEHOLDER.match(words[0]) else f"there is no command {words[0]}"
        command, words = found, words[1:]
    options = {
        name for each in command.params if isinstance(each, click.Option) for name in (*each.opts, *each.secondary_opts)
    }
    options |= {"--help", "-h"}
    for word in words:
        if word.startswith("-") and word.split("=")[0] not in options:
            return f"{command.name} has no option {word}"
    return missing_arguments(command, words) if typed else ""


def missing_arguments(command: click.Command, words: list[str]) -> str:
    """What a command line lacks that is to be typed as it stands."""
    given = command.make_parser(click.Context(command)).parse_args(list(words))[0]
    wanted = [each for each in command.params if each.required]
    lacks = [each.human_readable_name for each in wanted if not isinstance(given.get(str(each.name)), str | tuple)]
    return f"{command.name} lacks {', '.join(lacks)}" if lacks else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_exist_with_their_options(page: Path) -> None:
    typed = page.parent.name == "runbooks"
    wrong = [(" ".join(words), text) for words in commands(page) if (text := complaint(words, typed=typed))]
    assert wrong == []


def test_settings_in_the_guides_are_accepted(tmp_path: Path) -> None:
    seen = 0
    for page in sorted((ROOT / "docs" / "howto").glob("*.md")):
        for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL):
            value = yaml.safe_load(block)
            if isinstance(value, dict) and value.keys() & {"admin", "security", "mqtt", "log"} | (
                {"listeners"} & value.keys()
            ):
                (tmp_path / "settings.yaml").write_text(block)
                load_settings(tmp_path / "settings.yaml", {})
                seen += 1
    assert seen


def test_the_tutorial_works_as_it_is_written(tmp_path: Path) -> None:
    """Its blocks in order, with ports of our own instead of the usual ones."""
    text = (ROOT / "docs" / "tutorial" / "first-steps.md").read_text()
    first, publication, browse, check, explain, define, second, again, look = _blocks(text)
    assert (first, second) == (".venv/bin/mqgate run", ".venv/bin/mqgate run -c mqgate.yaml")
    rules, settings = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[:2]
    with _run(first, tmp_path) as gateway:
        _publish(gateway, publication)
        assert "21.5" in _output(browse, tmp_path) or "plant/lima" in _output(browse, tmp_path)
        (tmp_path / "plant.yaml").write_text(rules)
        (tmp_path / "mqgate.yaml").write_text(settings)
        _output(check, tmp_path)
        assert "TELEMETRY.LIMA" in _output(explain, tmp_path)
        command, _, pipe = define.partition(" | ")
        _output(pipe, tmp_path, shlex.split(command)[1])
    with _run(second, tmp_path) as gateway:
        _publish(gateway, again)
        found = _output(look, tmp_path)
        assert "22.5" in found or "plant/lima" in found
        _publish(gateway, again.replace("lima", "cusco"))
        assert "TELEMETRY.CUSCO" in _output(".venv/bin/mqgate dlq list", tmp_path)


@contextmanager
def _run(line: str, folder: Path) -> Iterator[Running]:
    port, admin = free_port(), free_port()
    with (folder / "log").open("wb") as log:
        command = [
            sys.executable,
            "-m",
            "gateway",
            *shlex.split(line)[1:],
            "--port",
            str(port),
            "--admin-port",
            str(admin),
        ]
        process = gateway_template.launch(command, stdout=log, stderr=log, env=os.environ, cwd=folder)
    try:
        gateway = Running(port, admin, 0, folder, process)
        until_ready(gateway)
        yield gateway
    finally:
        process.terminate()
        process.wait(60)


def _publish(gateway: Running, line: str) -> None:
    said = shlex.split(line)
    assert said[:2] == ["mosquitto_pub", "-h"]
    publish(gateway, said[said.index("-t") + 1], said[said.index("-m") + 1])


def _blocks(text: str) -> list[str]:
    blocks = [each.strip() for each in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)]
    return [each for each in blocks if "pip install" not in each]


def _output(line: str, folder: Path, given: str = "") -> str:
    done = gateway_template.run(*shlex.split(line)[1:], text=given, cwd=folder)
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_queries_in_the_runbooks_are_promql(tmp_path: Path) -> None:
    """promtool reads each as a recording rule."""
    rules = []
    for page in sorted((ROOT / "docs" / "runbooks").glob("*.md")):
        for found in re.findall(r"`([^`\n]*mqgate_[^`\n]*\([^`\n]*|[^`\n]*\([^`\n]*mqgate_[^`\n]*)`", page.read_text()):
            rules.append({"record": f"query_{len(rules)}", "expr": found})
    assert len(rules) > 5
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "runbooks", "rules": rules}]}))
    command = [program("promtool"), "check", "rules", str(tmp_path / "rules.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


LOGGED = re.compile(r"(?:log event|line) `([a-z_.]+)`|`([a-zA-Z_. ]+)` in the log|log says `([a-z_. ]+)`")


@functools.cache
def source() -> str:
    """Of the whole program."""
    return "\n".join(file.read_text() for file in (ROOT / "gateway").rglob("*.py"))


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "runbooks").glob("*.md")), ids=lambda page: page.stem)
def test_what_a_runbook_looks_for_in_the_log_is_written_there(page: Path) -> None:
    """The name of an event, or a piece of a text."""
    wanted = ["".join(found) for found in LOGGED.findall(page.read_text())]
    assert [text for text in wanted if (text if " " in text else f'"{text}"') not in source()] == []


@pytest.mark.parametrize("first", ["old", "new"])
def test_columns_that_a_job_has_gained_are_read_as_the_guide_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """Names of batches say nothing of their age, so either file may be seen first."""
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[spark]'")
    import pyarrow.parquet as pq

    rows = {"old": pa.table({"a": pa.array([1], pa.int32())}), "new": pa.table({"a": [2], "b": [0.5]})}
    for name, one in rows.items():
        folder = tmp_path / f"lake/readings/batch={'0' if name == first else '1'}/status=ok"
        folder.mkdir(parents=True)
        pq.write_table(one, folder / "part.parquet")
    guide = (ROOT / "docs/howto/pipeline.md").read_text()
    (block,) = re.findall(r"```python\n(import pyarrow as pa\n.*?)```", guide, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(block, names)
    assert names["table"].select(["a", "b"]).sort_by("a").to_pydict() == {"a": [1, 2], "b": [None, 0.5]}

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.app.files.emptied_files import emptied_files
from gateway.app.mappings import read_table
from gateway.config.load import load_settings
from gateway.config.model import Settings
from gateway.routing.table import Table

RULES = "version: 1\nto_mq:\n  - {name: a, topic: a, queue: A}\n  - {name: b, topic: b, queue: B}\n"


@pytest.fixture
def in_force(tmp_path: Path) -> tuple[Settings, Table]:
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "more.yaml").write_text("")
    (tmp_path / "settings.yaml").write_text(
        "mappings: [rules.yaml, more.yaml]\nsecurity: {acl: [{anonymous: true, publish: [a]}]}\n"
    )
    settings = load_settings(tmp_path / "settings.yaml")
    return settings, read_table(settings)


def found(in_force: tuple[Settings, Table], file: Path) -> list[str]:
    settings = load_settings(file)
    return [str(one) for one in emptied_files(*in_force, settings, read_table(settings))]


@pytest.mark.parametrize("text", ["", "\n  \n", "# mqgate\n"])
def test_settings_that_are_empty_now_are_refused(in_force: tuple[Settings, Table], tmp_path: Path, text: str) -> None:
    file = tmp_path / "settings.yaml"
    assert found(in_force, file) == []
    file.write_text(text)
    (said,) = found(in_force, file)
    assert said.startswith(f"{file}: the file is empty, and what is in force has settings of it: restore it, or write ")
    assert said.endswith("`{}` if the defaults are meant")
    file.write_text("{}\n")
    assert found(in_force, file) == []


def test_settings_that_were_empty_before_may_be_empty(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("")
    settings = load_settings(file)
    assert emptied_files(settings, read_table(settings), load_settings(file), read_table(settings)) == []


def test_rules_that_are_empty_now_are_refused(in_force: tuple[Settings, Table], tmp_path: Path) -> None:
    """more.yaml never had a rule."""
    settings, rules = tmp_path / "settings.yaml", tmp_path / "rules.yaml"
    rules.write_text("")
    (said,) = found(in_force, settings)
    assert said.startswith(f"{rules}: the file is empty, and what is in force has 2 rules of it: restore it, or write ")
    assert said.endswith("`to_mq: []` if no rules are meant")
    rules.write_text("to_mq: []\n")
    assert found(in_force, settings) == []
    rules.write_text("")
    settings.write_text("mappings: [more.yaml]\n")
    assert found(in_force, settings) == [], "it is not among the files any more"


def test_what_counts_is_what_was_read(in_force: tuple[Settings, Table], tmp_path: Path) -> None:
    """A file may be empty for a moment only, while it is written."""
    file, rules = tmp_path / "settings.yaml", tmp_path / "rules.yaml"
    text = file.read_text()
    rules.write_text("")
    table = read_table(in_force[0])
    file.write_text("")
    settings = load_settings(file)
    file.write_text(text)
    rules.write_text(RULES)
    said = [one.file for one in emptied_files(*in_force, settings, table)]
    assert said == [str(file), str(rules)]
    assert found(in_force, file) == []

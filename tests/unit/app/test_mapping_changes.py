"""Mapping files that are changed from the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.app.mapping_changes import KEPT, ChangeHistory, check, take_back, write
from gateway.config.load import load_settings
from gateway.config.model import Settings
from gateway.errors import ConfigurationError

RULES = "version: 1\nto_mq:\n  - {name: one, topic: a/#, queue: A}\n"
OTHER = RULES.replace("queue: A", "queue: B")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "settings.yaml").write_text("mappings: [rules.yaml]\n")
    return load_settings(tmp_path / "settings.yaml")


def test_a_change_is_written_kept_and_taken_back(settings: Settings, tmp_path: Path) -> None:
    file, history = tmp_path / "rules.yaml", ChangeHistory(tmp_path)
    file.chmod(0o640)
    made = write(settings, history, str(file), OTHER, "anna", "to B")
    assert file.read_text() == OTHER
    (change,) = history.all()
    assert change == made
    assert (change.who, change.what, change.before, change.after) == ("anna", "to B", RULES, OTHER)
    take_back(history, change)
    assert file.read_text() == RULES
    assert file.stat().st_mode & 0o777 == 0o640
    assert history.all() == [], "it has never been in force"


def test_what_somebody_else_has_written_since_is_not_taken_back(settings: Settings, tmp_path: Path) -> None:
    file, history = tmp_path / "rules.yaml", ChangeHistory(tmp_path)
    change = write(settings, history, str(file), OTHER, "anna", "to B")
    file.write_text(OTHER.replace("one", "edited"))
    take_back(history, change)
    assert "edited" in file.read_text()
    assert history.all() == []


def test_what_does_not_pass_changes_nothing(settings: Settings, tmp_path: Path) -> None:
    file, history = tmp_path / "rules.yaml", ChangeHistory(tmp_path)
    failing = RULES + "tests:\n  - {publish: {topic: a/b}, expect: [{queue: ELSEWHERE}]}\n"
    for wrong in ("to_mq: {", RULES.replace("queue", "quue"), failing):
        assert check(settings, str(file), wrong)
        with pytest.raises(ConfigurationError):
            write(settings, history, str(file), wrong, "anna", "")
    assert check(settings, str(tmp_path / "settings.yaml"), RULES)[0].what == "is no mapping file of this gateway"
    assert file.read_text() == RULES
    assert history.all() == []


def test_a_change_that_cannot_be_kept_is_not_made(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "mapping-history").write_text("no directory")
    with pytest.raises(OSError, match="mapping-history"):
        write(settings, ChangeHistory(tmp_path), str(tmp_path / "rules.yaml"), OTHER, "anna", "")
    assert (tmp_path / "rules.yaml").read_text() == RULES


def test_the_last_twenty_changes_are_kept(settings: Settings, tmp_path: Path) -> None:
    file, history = str(tmp_path / "rules.yaml"), ChangeHistory(tmp_path)
    for number in range(KEPT + 5):
        write(settings, history, file, RULES if number % 2 else OTHER, "anna", str(number))
    found = history.all()
    assert [one.what for one in found] == [str(number) for number in range(KEPT + 4, 4, -1)]
    (tmp_path / "mapping-history" / "00000099.json").write_text("{")
    assert len(history.all()) == KEPT

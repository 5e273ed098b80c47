"""gateway.app.api.mapping: a change is put into force or taken back, one after the other."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.app.api.mapping import MappingViews, _problem
from gateway.app.files.reader import MOST_WAITING, Reader
from gateway.config.load import load_settings
from gateway.errors import ConfigurationError, Finding
from gateway.net.calls import Call, Later, Problem
from gateway.ports.people import ADMINISTRATOR, VIEWER

RULES = "version: 1\nto_mq:\n  - {name: one, topic: a/#, queue: A}\n"
OTHER = RULES.replace("queue: A", "queue: B")


class Rig:
    """The views on a file of rules; calls and reloads are made when the test says so."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "rules.yaml"
        self.file.write_text(RULES)
        (folder / "settings.yaml").write_text("mappings: [rules.yaml]\n")
        self.calls = Queue[Callable[[], None]]()
        self.reloads: list[Callable[[Exception | None], None]] = []
        self.answers: list[Any] = []
        self.reader = Reader(self.calls.put)
        parts: Any = SimpleNamespace(
            settings=load_settings(folder / "settings.yaml"), directory=folder, reader=self.reader,
            consumers=SimpleNamespace(when_open=lambda call: call()),
        )  # fmt: skip
        self.views = MappingViews(parts, self.reloads.append)

    def change(self, text: str) -> None:
        body = {"file": str(self.file), "text": text}
        _, later = self.views.change(Call({}, {}, body, ADMINISTRATOR))
        assert isinstance(later, Later)
        later.begin(self.answers.append)

    def told(self) -> None:
        self.calls.get(timeout=60)()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.reader.close()


def test_a_change_is_answered_when_it_is_in_force_and_no_other_is_taken_before(rig: Rig) -> None:
    rig.change(OTHER)
    with pytest.raises(Problem, match="another change"):
        rig.change(RULES)
    rig.told()
    assert rig.file.read_text() == OTHER
    assert rig.answers == []
    rig.reloads.pop()(None)
    (answer,) = rig.answers
    assert answer[0] == 200
    rig.change(RULES)
    rig.told()
    assert rig.file.read_text() == RULES


def test_what_cannot_be_put_into_force_is_taken_back(rig: Rig) -> None:
    rig.change(OTHER)
    rig.told()
    rig.reloads.pop()(ConfigurationError([Finding("settings.yaml", 3, 1, "is wrong", "write it")]))
    rig.told()
    assert rig.file.read_text() == RULES
    (problem,) = rig.answers
    assert problem.status == 422
    assert problem.body["findings"][0]["what"] == "is wrong"


def test_a_disk_that_names_no_file_is_told_of_without_one() -> None:
    told: Any = _problem(OSError(errno.ENOSPC, "No space left on device"))
    assert told.body["detail"].startswith("the file: No space left")


def test_a_reload_waits_for_few_who_only_look(rig: Rig) -> None:
    """Five hundred connections of a viewer kept it waiting for minutes."""
    look = Call({}, {}, {"file": str(rig.file), "text": OTHER}, VIEWER)
    for _ in range(MOST_WAITING):
        rig.views.check(look)[1].begin(rig.answers.append)  # type: ignore[attr-defined]
    for view in (rig.views.check, rig.views.show):
        with pytest.raises(Problem, match="try again"):
            view(look)
    rig.change(OTHER)
    for _ in range(MOST_WAITING + 1):
        rig.told()
    assert [one[0] for one in rig.answers] == [200] * MOST_WAITING
    assert len(rig.reloads) == 1
    rig.views.check(look)


def test_what_does_not_pass_is_not_reloaded(rig: Rig) -> None:
    rig.change("to_mq: {")
    rig.told()
    assert [one.status for one in rig.answers] == [422]
    assert rig.reloads == []
    assert rig.file.read_text() == RULES
    rig.change(OTHER)

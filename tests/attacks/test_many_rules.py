"""Rules by the thousand, which an operator reloads, edits and tries: devices are served meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stall_attacks import LONG, Attacked

MANY = 10_000 if LONG else 3000
SETTINGS = "mappings: [rules.yaml]\nlisteners: [{name: plain, port: 0}]\n"
RULES = "version: 1\nto_mq:\n" + "".join(
    f"  - {{name: r{n}, topic: 'site{n}/{{device}}', queue: Q{n}}}\n" for n in range(MANY)
)
OTHER = RULES.replace("site7/", "site-seven/")


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    directory = tmp_path_factory.mktemp("rules")
    (directory / "rules.yaml").write_text(RULES)
    with Attacked(directory, SETTINGS).serve() as one:
        yield one


def file_of(attacked: Attacked) -> Path:
    return attacked.running.directory / "rules.yaml"


def reloaded(attacked: Attacked) -> None:
    file_of(attacked).write_text(OTHER)
    assert attacked.running.api("POST", "/reload")["changed"] == ["r7"]
    file_of(attacked).write_text(RULES)
    assert attacked.running.api("POST", "/reload")["changed"] == ["r7"]


def edited(attacked: Attacked) -> None:
    file = str(file_of(attacked))
    assert attacked.running.api("POST", "/mapping/check", {"file": file, "text": OTHER}) == {"findings": []}
    change = attacked.running.api("PUT", "/mapping", {"file": file, "text": OTHER, "what": "seven"})
    assert attacked.running.api("GET", "/rules?search=seven")["total"] == 1
    attacked.running.api("POST", "/mapping/undo", {"number": change["number"]})
    assert attacked.running.api("GET", "/rules?search=seven")["total"] == 0
    assert len(attacked.running.api("GET", "/mapping")["history"]) == 2


def tried(attacked: Attacked) -> None:
    given = {"topic": "site-seven/x", "mapping": OTHER, "file": str(file_of(attacked))}
    assert [one["rule"] for one in attacked.running.api("POST", "/explain", given)["puts"]] == ["r7"]


@pytest.mark.parametrize("act", [reloaded, edited, tried])
def test_nobody_waits_while_they_are_read(attacked: Attacked, act: Callable[[Attacked], None]) -> None:
    with attacked.budget():
        act(attacked)

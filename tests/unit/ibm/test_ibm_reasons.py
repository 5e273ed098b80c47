"""The reason code table, and its page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.backends.ibm import reasons
from gateway.backends.ibm.reasons import Action, action_for, explain
from gateway.mq.constants import name_of_reason

ROOT = Path(__file__).parents[3]
TITLES = {
    Action.NORMAL: "Part of the flow",
    Action.RETRY: "Wait and repeat",
    Action.RECONNECT: "Reconnect",
    Action.DEAD_LETTER: "Dead-letter this message",
    Action.CONFIGURATION: "Hold the route, tell the operator",
    Action.BUG: "Stop the route, tell the operator",
}


def test_no_code_is_in_two_classes() -> None:
    listed = [code for codes in reasons._CODES.values() for code in codes]
    assert len(listed) == len(set(listed)) == len(reasons.TABLE)


@pytest.mark.parametrize("action", list(Action))
def test_the_page_says_what_the_code_does(action: Action) -> None:
    page = (ROOT / "docs" / "reference" / "reason-codes.md").read_text()
    section = page.split(f"## {TITLES[action]}\n")[1].split("\n## ")[0]
    rows = {int(code): name for code, name in re.findall(r"^\| (\d+) \| `(\w+)` \|", section, re.MULTILINE)}
    assert set(rows) == set(reasons._CODES[action])
    assert all(name == name_of_reason(code) for code, name in rows.items() if code)


def test_an_unknown_code_loses_nothing() -> None:
    assert action_for(9999) is Action.CONFIGURATION


def test_an_explanation_names_the_code_and_what_to_do() -> None:
    assert explain(2053, "putting to Q") == (
        "putting to Q: MQRC_Q_FULL (2053): the queue is at MAXDEPTH: consume from it or raise MAXDEPTH"
    )
    assert explain(2034) == "MQRC_NO_MSG_UNDER_CURSOR (2034)"


@pytest.mark.parametrize("code", [2009, 2059, 2161, 2203, 2537, 2538])
def test_broken_connections_are_made_again(code: int) -> None:
    assert action_for(code) is Action.RECONNECT

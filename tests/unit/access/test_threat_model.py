"""The page of threats names tests that exist, one for every threat."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
DOCS = TESTS.parent / "docs/explanation"
PAGE, ABOUT = (DOCS / "threats.md").read_text(), (DOCS / "security.md").read_text()


def test_every_test_that_is_named_is_there() -> None:
    named = set(re.findall(r"`((?:\w+/)*\w+\.py|\w+/)`", PAGE + ABOUT)) - {
        "deploy/install.py",
        "deploy/audit.py",
        "tests/",
        "attacks/",
        "fuzz/",
    }
    assert len(named) > 15
    for name in named:
        found = TESTS / name
        assert found.exists() or list(TESTS.glob(f"*/{name}")) or (TESTS / "e2e" / name).exists(), name


def test_every_threat_has_a_defence_and_a_test_and_says_what_is_left() -> None:
    threats: list[str] = []
    head = r"^\| Threat \| What stands against it \| Shown by \| Left to the operator \|\n\|.*\n((?:\|.*\n)+)"
    for table in re.findall(head, PAGE, re.MULTILINE):
        for row in table.splitlines():
            threat, defence, test, _left = (one.strip() for one in row.removeprefix("|").removesuffix("|").split("|"))
            assert threat
            assert defence
            assert re.search(r"`[\w/]+(?:\.py|/)`", test), threat
            threats.append(threat)
    assert len(threats) > 60
    assert len(set(threats)) == len(threats)

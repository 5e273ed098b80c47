"""The threat model names tests that are there, one for every threat."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
PAGE = (TESTS.parent / "docs/explanation/security.md").read_text()


def test_every_test_that_is_named_is_there() -> None:
    named = set(re.findall(r"`((?:\w+/)*\w+\.py|\w+/)`", PAGE)) - {
        "deploy/install.py",
        "deploy/audit.py",
        "tests/",
        "fuzz/",
    }
    assert len(named) > 15
    for name in named:
        found = TESTS / name
        assert found.exists() or list(TESTS.glob(f"*/{name}")) or (TESTS / "e2e" / name).exists(), name


def test_every_threat_has_a_defence_and_a_test() -> None:
    threats = 0
    for table in re.findall(r"^\| Threat \| Defence \| Attacked by \|\n\|.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE):
        for row in table.splitlines():
            threat, defence, test = row.strip("| ").split(" | ")
            assert threat
            assert defence
            assert re.search(r"`[\w/]+(?:\.py|/)`", test), threat
            threats += 1
    assert threats > 25

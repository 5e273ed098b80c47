#!/usr/bin/env python3
"""Writes docs/reference/mqtt-clauses.md: every normative statement of MQTT 3.1.1 and 5.0, where the source enforces it
and which test names it. The statements are those of docs/mqtt-statements.txt; the places come from `[MQTT-x.y.z-n]` in
comments of the source, names of conformance cases and tests. A number that means one thing in 3.1.1 and another in 5.0
is cited as MQTT3-... or MQTT5-....

    docs/mqtt_clauses.py            write the page
    docs/mqtt_clauses.py --check    fail if the page is not what would be written, or if there is a hole in it
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reference" / "mqtt-clauses.md"
STATEMENTS = ROOT / "docs" / "mqtt-statements.txt"
CITATION = re.compile(r"MQTT([35]?)[-_](\d+)[._-](\d+)[._](\d+)[-_](\d+)(?!\d|\.\d)", re.IGNORECASE)
VERSIONS = ("3.1.1", "5.0")
OWN_TEST = "test_mqtt_clauses.py"
"""The test of this program, which has wrong citations in it."""
QUALIFIED = {"3": "3.1.1", "5": "5.0"}


class Statement(NamedTuple):
    """What a statement is about and, if nothing here enforces it, why."""

    text: str
    why_not: str


Statements = dict[tuple[str, str], Statement]
"""By version and number."""
Places = dict[tuple[str, str], list[str]]


def statements() -> Statements:
    """Everything there is, as docs/mqtt-statements.txt has it."""
    found: Statements = {}
    versions: tuple[str, ...] = ()
    for line in STATEMENTS.read_text(encoding="utf-8").splitlines():
        if line.startswith("== "):
            versions = VERSIONS if line == "== both" else (line[3:],)
        elif line and not line.startswith("#"):
            number, _, text = line.partition(" ")
            about, _, why_not = text.partition(" ~ ")
            for version in versions:
                found[version, number] = Statement(about, why_not)
    return found


def ambiguous(known: Statements) -> set[str]:
    """Numbers that have a text of their own in each version."""
    mine = {number for version, number in known if version == "3.1.1"}
    return {
        number
        for number in mine
        if ("5.0", number) in known and known["5.0", number].text != known["3.1.1", number].text
    }


class Index:
    """Collects citations, and what is wrong with them."""

    def __init__(self) -> None:
        self.known = statements()
        self.unclear = ambiguous(self.known)
        self.source: Places = {}
        self.tests: Places = {}
        self.errors: list[str] = []

    def cite(self, places: Places, text: str, where: str, versions: tuple[str, ...] = VERSIONS) -> None:
        """Note every statement that a text cites; `versions` are those it can be about."""
        for qualifier, *parts in CITATION.findall(text):
            number = "{}.{}.{}-{}".format(*parts)
            meant = (QUALIFIED[qualifier],) if qualifier else versions
            if not qualifier and number in self.unclear and len(versions) > 1:
                self.errors.append(f"{where}: MQTT-{number} means two things: write MQTT3-{number} or MQTT5-{number}")
            cited = [(version, number) for version in meant if (version, number) in self.known]
            if not cited:
                self.errors.append(f"{where}: there is no statement MQTT{qualifier}-{number}")
            for key in cited:
                if f"`{where}`" not in places.setdefault(key, []):
                    places[key].append(f"`{where}`")

    def holes(self) -> Iterator[str]:
        """Statements that ought to be enforced and tested, and are not."""
        for (version, number), statement in self.known.items():
            if not statement.why_not:
                missing = [
                    what
                    for what, places in (("line of the source", self.source), ("test", self.tests))
                    if (version, number) not in places
                ]
                if missing:
                    yield f"{version}: no {' and no '.join(missing)} cites MQTT-{number} ({statement.text})"


def collect() -> Index:
    """The citations of the source, the conformance cases and the tests."""
    index = Index()
    for path in sorted((ROOT / "gateway").rglob("*.py")):
        index.cite(index.source, path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))
    for path in sorted((ROOT / "tests" / "conformance").glob("*.yaml")):
        for case in yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader):
            index.cite(index.tests, case["name"], path.stem, versions_of(case))
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if path.name == OWN_TEST:
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            if "def test_" in line or "MQTT" in line:
                index.cite(index.tests, line, str(path.relative_to(ROOT / "tests")))
    return index


def versions_of(case: dict[str, str]) -> tuple[str, ...]:
    """The versions of the specifications with numbered statements that a case runs in."""
    named = str(case.get("versions", "3.1.1 5.0")).split()
    return tuple(version for version in VERSIONS if version in named) or VERSIONS


def in_order(index: Index, version: str) -> Iterator[tuple[tuple[str, str], Statement]]:
    """The statements of a version, by section."""

    def place(number: str) -> list[int]:
        return [int(part) for part in re.split(r"\D", number)]

    for key in sorted((key for key in index.known if key[0] == version), key=lambda key: place(key[1])):
        yield key, index.known[key]


def table(index: Index, version: str) -> Iterator[str]:
    """The statements that something here enforces."""
    yield f"## MQTT {version}\n"
    yield "| Statement | About | Enforced in | Tested in |"
    yield "|---|---|---|---|"
    for key, statement in in_order(index, version):
        if not statement.why_not:
            enforced, tested = index.source.get(key, []), index.tests.get(key, [])
            cells = (f"MQTT-{key[1]}", statement.text, ", ".join(enforced[:3]) or "-", ", ".join(tested[:3]) or "-")
            yield f"| {' | '.join(cells)} |"
    yield ""


def not_applicable(index: Index, version: str) -> Iterator[str]:
    """The others, with the reason."""
    yield f"### Not applicable in {version}\n"
    yield "| Statement | About | Why |"
    yield "|---|---|---|"
    for key, statement in in_order(index, version):
        if statement.why_not:
            yield f"| MQTT-{key[1]} | {statement.text} | {statement.why_not} |"
    yield ""


def page(index: Index) -> str:
    """The whole page."""
    lines = [
        "# MQTT: every statement and where it is kept\n",
        "Generated by `docs/mqtt_clauses.py`, which fails when a statement that applies is not cited by a line of the",
        "source and by a test. Where 3.1.1 and 5.0 use one number for two things, comments and test names say `MQTT3-`",
        "or `MQTT5-`. MQIsdp 3 numbers no statements; its cases are those marked `seed` and `3.1` in",
        "`tests/conformance` and `tests/golden/mqtt`.\n",
    ]
    for version in VERSIONS:
        lines += table(index, version)
        lines += not_applicable(index, version)
    return "\n".join(lines).rstrip() + "\n"


def problems(index: Index) -> list[str]:
    """What is wrong: citations, holes, a page that is not what would be written."""
    fresh = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page(index)
    stale = [] if fresh else [f"{PAGE.relative_to(ROOT)} is out of date: run docs/mqtt_clauses.py"]
    return [*index.errors, *stale, *index.holes()]


def main() -> int:
    """Write the page, or compare it."""
    index = collect()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(index), encoding="utf-8")
    found = problems(index)
    sys.stderr.writelines(f"{problem}\n" for problem in found)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())

#!/usr/bin/env python3
"""Writes docs/reference/mqtt-clauses.md: every normative statement of MQTT 3.1.1 and 5.0, where the source enforces it
and which test names it. The places come from `[MQTT-x.y.z-n]` in comments, test names and conformance cases.

    docs/mqtt_clauses.py            write the page
    docs/mqtt_clauses.py --check    fail if the page is not what would be written
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reference" / "mqtt-clauses.md"
CLAUSE = re.compile(r"MQTT[-_](\d+)[._](\d+)[._](\d+)[-_](\d+)", re.IGNORECASE)

V311 = (
    "1.5.3:3 2.2.2:2 2.3.1:7 3.1.0:2 3.1.2:24 3.1.3:11 3.1.4:5 3.2.0:1 3.2.2:6 3.3.1:12 3.3.2:4 3.3.4:1 "
    "3.3.5:2 3.6.1:1 3.8.1:1 3.8.3:4 3.8.4:6 3.9.3:2 3.10.1:1 3.10.3:2 3.10.4:6 3.12.4:1 3.14.1:1 3.14.4:3 "
    "4.1.0:2 4.3.1:1 4.3.2:2 4.3.3:2 4.4.0:1 4.5.0:2 4.6.0:6 4.7.1:3 4.7.2:1 4.7.3:4 4.8.0:2 6.0.0:4"
)
V5 = (
    "1.5.4:3 1.5.5:1 1.5.7:1 2.1.3:1 2.2.1:6 2.2.2:1 3.1.0:2 3.1.2:30 3.1.3:12 3.1.4:6 3.2.0:2 3.2.2:22 "
    "3.3.1:13 3.3.2:20 3.3.4:10 3.4.2:3 3.5.2:3 3.6.1:1 3.6.2:3 3.7.2:3 3.8.1:1 3.8.3:5 3.8.4:8 3.9.2:2 "
    "3.9.3:2 3.10.1:1 3.10.3:2 3.10.4:6 3.11.2:2 3.11.3:2 3.12.4:1 3.14.0:1 3.14.1:1 3.14.2:4 3.14.4:3 "
    "3.15.1:1 3.15.2:3 4.1.0:2 4.2.0:1 4.3.1:1 4.3.2:5 4.3.3:13 4.4.0:2 4.5.0:2 4.6.0:1 4.7.0:1 4.7.1:2 "
    "4.7.2:1 4.7.3:4 4.8.2:6 4.9.0:3 4.12.0:7 4.12.1:2 4.13.1:1 4.13.2:1 6.0.0:4"
)
"""Sections and how many statements each numbers."""

CLIENTS = {
    "3.1.1": {
        "2.3.1-2", "2.3.1-3", "3.1.2-19", "3.1.2-20", "3.1.2-21", "3.1.2-23", "3.14.4-1", "3.14.4-2", "4.3.2-1",
        "4.3.3-1", "4.5.0-2",
    },
    "5.0": {
        "2.2.1-3", "3.1.2-16", "3.1.2-17", "3.1.2-18", "3.1.2-19", "3.1.2-20", "3.1.2-30", "3.2.2-4", "3.2.2-5",
        "3.2.2-11", "3.2.2-14", "3.2.2-15", "3.3.2-10", "3.3.4-6", "3.3.4-7", "3.14.4-1", "3.14.4-2", "4.2.0-1",
        "4.12.0-1", "4.12.0-4", "4.12.0-6", "4.12.0-7", "4.12.1-1",
    },
}  # fmt: skip
"""Duties of clients: for a server only the refusal of their violation matters, where it can be seen."""

NOT_SENT = {
    "3.1.1": set(),
    "5.0": {
        "3.2.2-17", "3.2.2-18", "3.2.2-19", "3.2.2-20", "3.4.2-2", "3.4.2-3", "3.5.2-2", "3.5.2-3", "3.6.2-2",
        "3.6.2-3", "3.7.2-2", "3.7.2-3", "3.9.2-1", "3.9.2-2", "3.11.2-1", "3.11.2-2", "3.14.2-4", "3.15.2-2",
        "3.15.2-3",
    },
}  # fmt: skip
"""About properties of acknowledgements (reason string, user property) that this server does not send."""

Places = dict[str, list[str]]


def statements(sections: str) -> Iterator[str]:
    """Section by section, the numbers of the statements."""
    for part in sections.split():
        section, _, count = part.partition(":")
        yield from (f"{section}-{number}" for number in range(1, int(count) + 1))


def found_in(text: str) -> set[str]:
    """The statements a text cites."""
    return {"{}.{}.{}-{}".format(*match) for match in CLAUSE.findall(text)}


def source_places() -> Places:
    """Modules that enforce a statement."""
    places: Places = {}
    for path in sorted((ROOT / "gateway").rglob("*.py")):
        for clause in found_in(path.read_text()):
            places.setdefault(clause, []).append(f"`{path.relative_to(ROOT)}`")
    return places


def test_places() -> Places:
    """Conformance cases by name, test functions, and golden cases."""
    places: Places = {}

    def note(text: str, where: str) -> None:
        for clause in found_in(text):
            if where not in places.setdefault(clause, []):
                places[clause].append(where)

    for path in sorted((ROOT / "tests" / "conformance").glob("*.yaml")):
        for case in yaml.safe_load(path.read_text()):
            note(case["name"], f"`{path.stem}`")
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for line in path.read_text().splitlines():
            if "MQTT-" in line or "mqtt_" in line:
                note(line, f"`{path.relative_to(ROOT / 'tests')}`")
    return places


def table(version: str, sections: str, source: Places, tests: Places) -> Iterator[str]:
    """The statements that are cited somewhere."""
    yield f"## MQTT {version}\n"
    yield "| Statement | Enforced in | Tested in |"
    yield "|---|---|---|"
    for clause in statements(sections):
        enforced, tested = source.get(clause, []), tests.get(clause, [])
        if enforced or tested:
            yield f"| MQTT-{clause} | {', '.join(enforced[:4]) or '-'} | {', '.join(tested[:4]) or '-'} |"
    yield ""


def rest(version: str, sections: str, known: set[str]) -> Iterator[str]:
    """What is not in the table: the duties of clients, and what no single line enforces."""
    others = [clause for clause in statements(sections) if clause not in known]
    clients = [clause for clause in others if clause in CLIENTS[version]]
    silent = [clause for clause in others if clause in NOT_SENT[version]]
    general = [clause for clause in others if clause not in CLIENTS[version] | NOT_SENT[version]]
    yield f"### {version}: not applicable to a server\n"
    yield ", ".join(f"MQTT-{clause}" for clause in clients) + "\n"
    if silent:
        yield f"### {version}: about properties of acknowledgements that are never sent here\n"
        yield ", ".join(f"MQTT-{clause}" for clause in silent) + "\n"
    yield f"### {version}: without a line of their own\n"
    yield "Kept by the shape of the code (what the codec cannot express, the order of a queue) or by the transport.\n"
    yield ", ".join(f"MQTT-{clause}" for clause in general) + "\n"


def page() -> str:
    """The whole page."""
    source, tests = source_places(), test_places()
    known = set(source) | set(tests)
    lines = [
        "# MQTT: every statement and where it is kept\n",
        "Generated by `docs/mqtt_clauses.py` from comments of the source and names of the tests. A number may mean",
        "one thing in 3.1.1 and another in 5.0: a line that cites it is listed in both tables. MQIsdp 3 numbers no",
        "statements; its cases are those marked `seed` and `3.1` in `tests/conformance` and `tests/golden/mqtt`.\n",
    ]
    for version, sections in (("3.1.1", V311), ("5.0", V5)):
        lines += table(version, sections, source, tests)
    lines.append("## Statements that are not in the tables\n")
    for version, sections in (("3.1.1", V311), ("5.0", V5)):
        lines += rest(version, sections, known)
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Write the page, or compare it."""
    text = page()
    if "--check" in sys.argv[1:]:
        if PAGE.exists() and PAGE.read_text() == text:
            return 0
        sys.stderr.write(f"{PAGE.relative_to(ROOT)} is out of date: run docs/mqtt_clauses.py\n")
        return 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

#!/usr/bin/env python3
"""Writes docs/reference/mqtt-requirements.md from docs/mqtt-requirements.yaml: what a complete server does beyond the
numbered statements, where the source does it and which tests would notice. Every place it names has to exist.

    docs/mqtt_requirements.py            write the page
    docs/mqtt_requirements.py --check    fail if the page is not what would be written, or if there is a hole in it
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reference" / "mqtt-requirements.md"
SOURCE = ROOT / "docs" / "mqtt-requirements.yaml"
NUMBERS = range(1, 26)
CLAUSES = re.compile(r"\[MQTT[^\]]*\] *:? *")
Requirement = dict[str, Any]


@cache
def names(path: Path) -> frozenset[str]:
    """What a module defines: functions, constants, classes and their methods."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        found |= _named(node)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for inner in node.body for name in _named(inner)}
    return frozenset(found)


def _named(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {one.id for one in targets if isinstance(one, ast.Name)}


@cache
def cases(file: str) -> tuple[str, ...]:
    """The names of the conformance cases of a file."""
    path = ROOT / "tests" / "conformance" / f"{file}.yaml"
    if not path.exists():
        return ()
    return tuple(case["name"] for case in yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader))


def wrong(folder: str, reference: str) -> str:
    """What is wrong with a reference; nothing is."""
    where, _, what = reference.partition(": ")
    if not where.endswith(".py"):
        count = sum(what in name for name in cases(where))
        return "" if count == 1 else f"{count} conformance cases have this in their name"
    path = ROOT / folder / where
    if not path.exists():
        return "there is no such file"
    return "" if what in names(path) else "it does not define that"


def holes(requirements: list[Requirement]) -> Iterator[str]:
    """Requirements that are not there, parts without a place, and places that do not exist."""
    numbers = [one["number"] for one in requirements]
    if numbers != list(NUMBERS):
        yield f"the requirements are numbered {numbers}"
    for one in requirements:
        for part in one["parts"]:
            for kind, folder in (("enforced", "gateway"), ("tested", "tests")):
                places = part.get(kind) or []
                if not places:
                    yield f"{one['number']}, {part['text']}: not {kind}"
                for place in places:
                    problem = wrong(folder, place)
                    if problem:
                        yield f"{one['number']}, {part['text']}: {place}: {problem}"


def cell(places: list[str], folder: str) -> str:
    """References as they stand in the table."""
    found = []
    for place in places:
        where, _, what = place.partition(": ")
        if where.endswith(".py"):
            found.append(f"`{folder}/{where}` `{what}`" if folder == "gateway" else f"`{where}` `{what}`")
        else:
            (name,) = (name for name in cases(where) if what in name)
            found.append(f"`{where}` {CLAUSES.sub('', name)}")
    return "<br>".join(found)


def page(requirements: list[Requirement]) -> str:
    """The whole page."""
    lines = [
        "# MQTT: what a complete server does beyond the statements\n",
        "Made by `docs/mqtt_requirements.py`, which fails when a part has no place in the source or no test, or names",
        "one that is not there. The specifications' numbered statements have [an index of their own](mqtt-clauses.md).",
        "Names such as `06-session` are files of cases in `tests/conformance`; the others are below `tests`.\n",
    ]
    for one in requirements:
        lines += [f"## {one['number']}. {one['about']}\n", "| What | Enforced in | Tested in |", "|---|---|---|"]
        lines += [
            f"| {part['text']} | {cell(part['enforced'], 'gateway')} | {cell(part['tested'], 'tests')} |"
            for part in one["parts"]
        ]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Write the page, or compare it."""
    requirements: list[Requirement] = yaml.load(SOURCE.read_text(encoding="utf-8"), yaml.CSafeLoader)
    problems = list(holes(requirements))
    if not problems:
        text = page(requirements)
        if "--check" not in sys.argv[1:]:
            PAGE.write_text(text, encoding="utf-8")
        elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
            problems.append(f"{PAGE.relative_to(ROOT)} is out of date: run docs/mqtt_requirements.py")
    sys.stderr.writelines(f"{problem}\n" for problem in problems)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())

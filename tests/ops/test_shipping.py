"""What a release says about itself: licence, links, one spelling of extras."""

from __future__ import annotations

import re
import tomllib

from ops_machine import ROOT

TREES = ("deploy", "docs", "gateway", "mappings", "tests")
FILES = sorted(
    str(path.relative_to(ROOT))
    for path in [*ROOT.glob("*.*"), *(path for tree in TREES for path in (ROOT / tree).rglob("*"))]
    if path.is_file() and not {"__pycache__", "node_modules"} & set(path.parts)
)


def test_the_licence_is_there_and_named() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"] == "Apache-2.0"


def test_no_address_is_made_up() -> None:
    """`example` names of examples are right; a project's own address that cannot exist is not."""
    made_up = "mqgate" + ".example"
    for name in FILES:
        if (ROOT / name).suffix in {".md", ".yaml", ".py", ".service", ".json", ".toml"} or "Dockerfile" in name:
            assert made_up not in (ROOT / name).read_text(), name


def test_extras_are_spelled_as_words_with_commas() -> None:
    known = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    for name in FILES:
        if not name.startswith(("deploy/", "docs/")) or (ROOT / name).suffix not in {".md", ".yaml", ""}:
            continue
        for given in re.findall(r"EXTRAS[:=] *([^\s}]*)", (ROOT / name).read_text()):
            assert set(given.strip('"`.').split(",")) <= known | {""}, f"{name}: {given}"

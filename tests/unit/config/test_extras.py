"""gateway.config.extras: the command that is named installs what is missing."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from gateway.config.extras import _needed, how_to_install

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("requirement", "word"),
    [
        ('pyspark>=4.2; extra == "spark"', "'pyspark>=4.2'"),
        ("cbor2 ; extra == 'spark'", "cbor2"),
        ('pandas<3; python_version > "3" and extra == "spark"', "'pandas<3'"),
        ('ibmmq>=2.1; extra == "ibm"', ""),
        ("click>=8.1", ""),
    ],
)
def test_a_requirement_is_a_word_of_the_shell(requirement: str, word: str) -> None:
    assert _needed(requirement, ("spark", "delta")) == word


def test_the_command_is_one_of_this_installation() -> None:
    command = how_to_install("otel")
    assert re.match(r"/\S+/bin/pip install .*opentelemetry-sdk|python deploy/install\.py otel", command), command


def test_what_is_asked_for_are_extras_of_the_project() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for path in (ROOT / "gateway").rglob("*.py"):
        for words in re.findall(r"how_to_install\(([^)*]*)\)", path.read_text()):
            assert set(re.findall(r"[\w-]+", words)) <= set(known), path.name


def test_nobody_is_sent_to_an_index_that_does_not_have_it() -> None:
    for tree in ("gateway", "docs/howto", "docs/tutorial", "deploy"):
        for path in (ROOT / tree).rglob("*"):
            if path.suffix in {".py", ".md", ".yaml", ".service"}:
                assert not re.search(r"pip install '?mqgate\[", path.read_text()), path

"""The index of requirements has no hole, and a hole is found where there is one."""

from __future__ import annotations

import sys

import pytest
import yaml
from ops_machine import doc_script


@pytest.fixture(scope="module")
def index():
    return doc_script("mqtt_requirements")


@pytest.fixture
def requirements(index):
    return yaml.load(index.SOURCE.read_text(), yaml.CSafeLoader)


def test_every_requirement_has_its_place_and_its_test(index, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["mqtt_requirements.py", "--check"])
    code = index.main()
    assert code == 0, capsys.readouterr().err


def test_they_are_all_there(requirements):
    assert [one["number"] for one in requirements] == list(range(1, 26))
    assert sum(len(one["parts"]) for one in requirements) >= 66


@pytest.mark.parametrize(
    ("kind", "place", "says"),
    [
        ("enforced", "broker/nowhere.py: nothing", "no such file"),
        ("enforced", "broker/limits.py: nothing", "does not define"),
        ("tested", "unit/broker/test_engine.py: test_that_was_renamed", "does not define"),
        ("tested", "01-connect: no case has this name", "0 conformance cases"),
        ("tested", "01-connect: client id", "conformance cases have this"),
        ("tested", "99-nothing: a", "0 conformance cases"),
    ],
)
def test_a_place_that_is_not_there_is_found(index, requirements, kind, place, says):
    requirements[3]["parts"][1][kind].append(place)
    (hole,) = index.holes(requirements)
    assert hole.startswith("4, ")
    assert says in hole


@pytest.mark.parametrize("kind", ["enforced", "tested"])
def test_a_part_without_a_place_is_found(index, requirements, kind):
    requirements[0]["parts"][0][kind] = []
    assert list(index.holes(requirements)) == [f"1, {requirements[0]['parts'][0]['text']}: not {kind}"]


def test_a_requirement_that_is_gone_is_found(index, requirements):
    del requirements[7]
    assert "numbered" in next(index.holes(requirements))

"""The index of MQTT statements has no hole, and a hole is found where there is one."""

from __future__ import annotations

import copy

import pytest
from ops_machine import doc_script


@pytest.fixture(scope="module")
def clauses():
    return doc_script("mqtt_clauses")


@pytest.fixture(scope="module")
def collected(clauses):
    return clauses.collect()


def test_every_statement_is_enforced_and_tested_or_not_applicable(clauses, collected):
    assert clauses.problems(collected) == []


def test_the_statements_are_all_there(clauses):
    known = clauses.statements()
    assert sum(version == "3.1.1" for version, _ in known) == 141
    assert sum(version == "5.0" for version, _ in known) == 251


def test_a_statement_nobody_cites_is_a_hole(collected):
    index = copy.deepcopy(collected)
    del index.tests["5.0", "3.3.2-7"]
    del index.source["3.1.1", "3.1.0-2"]
    holes = list(index.holes())
    assert [hole.partition(" cites ")[0] for hole in holes] == ["3.1.1: no line of the source", "5.0: no test"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[MQTT-3.1.2-24]", "means two things"),
        ("[MQTT-3.1.2-99]", "no statement"),
        ("[MQTT5-2.3.1-1]", "no statement"),
        ("[MQTT3-3.1.2-24] [MQTT-3.1.0-2] [MQTT-4.13.1-1]", ""),
    ],
)
def test_citations_that_say_nothing_are_found(clauses, text, says):
    index = clauses.Index()
    index.cite(index.source, text, "somewhere")
    assert [says in error for error in index.errors] == ([True] if says else [])


def test_a_case_of_one_version_cites_that_version(clauses):
    index = clauses.Index()
    index.cite(index.tests, "[MQTT-3.1.2-24]", "case", clauses.versions_of({"versions": "3.1 5.0"}))
    assert list(index.tests) == [("5.0", "3.1.2-24")]

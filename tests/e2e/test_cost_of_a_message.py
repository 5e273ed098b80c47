"""What a message costs, as a multiple of a loop measured at the same moment in processor time: a guard against a
regression of the hot path, with three times the room it needs. The benchmark proper is tests/bench/run.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

from inside import Inside, cost, publications, turn
from run import MAPPING, OBJECTS, SETTINGS

CLIENTS, WINDOW, ROUNDS = 10, 100, 12


@pytest.fixture(scope="module")
def inside(tmp_path_factory):
    inside = Inside(tmp_path_factory.mktemp("inside"), SETTINGS, MAPPING, OBJECTS)
    yield inside
    inside.close()


def turns_of_a_message(inside, topics_of):
    connections = [inside.connect(f"c{number}") for number in range(CLIENTS)]
    batches = [
        [
            (connection, publications(topics_of(number, round_), bytes(64)))
            for number, connection in enumerate(connections)
        ]
        for round_ in range(ROUNDS)
    ]
    for batch in batches:  # routes are computed once
        inside.feed(batch)
    return cost(inside, batches, CLIENTS * WINDOW * ROUNDS) / turn()


def test_a_window_of_publications(inside):
    """Measured 4 to 7 turns."""
    assert turns_of_a_message(inside, lambda number, _: [f"dev/{number}/temp"] * WINDOW) < 20


def test_many_topics_in_turn(inside):
    """Measured 11 to 14 turns."""
    assert turns_of_a_message(inside, lambda _, round_: [f"dev/{round_ * WINDOW + n}/t" for n in range(WINDOW)]) < 40

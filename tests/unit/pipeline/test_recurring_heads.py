"""Fleets are told from heads that never come back."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install '.[spark]'")

from gateway.pipeline.decode.row_decoder import few_distinct_heads

MOST_DECODED = 32_768


def told(chunks: list[set[int]]) -> list[bool]:
    """What is said of each chunk, given those before it."""
    seen: set[int] = set()
    found = []
    for chunk in chunks:
        found.append(few_distinct_heads(len(chunk), len(chunk & seen), len(seen), MOST_DECODED))
        seen |= chunk
    return found


def fleet(devices: int, chunks: int) -> list[set[int]]:
    chance = random.Random(devices)
    return [{chance.randrange(devices) for _ in range(1000)} for _ in range(chunks)]


@pytest.mark.parametrize("devices", [300, 1_000, 3_000, 10_000])
def test_a_fleet_is_known_by_its_third_chunk(devices: int) -> None:
    first, _second, *later = told(fleet(devices, 6))
    assert not first
    assert all(later)


def test_heads_that_all_differ_never_few_distinct_heads() -> None:
    assert not any(told([set(range(1000 * n, 1000 * n + 1000)) for n in range(200)]))


def test_a_fleet_too_large_to_be_remembered() -> None:
    assert not any(told(fleet(60_000, 100)))


def test_few_heads_seen_again_by_chance_say_nothing() -> None:
    assert told([set(range(256)), set(range(7))]) == [False, False]

"""Fleets are told from heads that never come back."""

from __future__ import annotations

import random

import pytest

from gateway.pipeline.recurring import SAMPLE, Recurrence


def samples(heads: int, chunks: int) -> list[list[bytes]]:
    chance = random.Random(heads)
    return [[b"%d" % chance.randrange(heads) for _ in range(SAMPLE)] for _ in range(chunks)]


@pytest.mark.parametrize("devices", [300, 1_000, 3_000])
def test_a_fleet_is_known_by_its_second_or_third_chunk(devices: int) -> None:
    recurrence = Recurrence(32_768)
    first, *later = [recurrence.comes_back(sample) for sample in samples(devices, 6)]
    assert not first
    assert all(later[2:])


def test_heads_that_all_differ_never_come_back() -> None:
    recurrence = Recurrence(32_768)
    assert not any(recurrence.comes_back([b"%d" % (SAMPLE * n + at) for at in range(SAMPLE)]) for n in range(200))


def test_a_fleet_too_large_to_be_remembered() -> None:
    recurrence = Recurrence(32_768)
    assert not any(recurrence.comes_back(sample) for sample in samples(60_000, 100))


def test_few_heads_seen_again_by_chance_say_nothing() -> None:
    recurrence = Recurrence(32_768)
    recurrence.comes_back([b"%d" % at for at in range(SAMPLE)])
    assert not recurrence.comes_back([b"%d" % at for at in range(7)])

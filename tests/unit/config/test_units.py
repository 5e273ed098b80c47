"""Durations and sizes."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.units import SIZE_PATTERN, Wrong, parse_duration, parse_size, show_duration, show_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10s", 10), ("5m", 300), ("7d", 604800), ("1h30m", 5400), ("250ms", 0.25), ("2w", 1209600), (3, 3), ("0s", 0)],
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "x", "10", "10x", "s", "-1s", -1, None, True, "1s x"])
def test_what_is_no_duration_says_how_to_write_one(text):
    with pytest.raises(Wrong) as caught:
        parse_duration(text)
    assert "10s" in caught.value.fix


@pytest.mark.parametrize(
    ("text", "size"),
    [("1MiB", 2**20), ("64 KiB", 65536), ("1.5GiB", 3 * 2**29), ("10kB", 10000), ("8gib", 2**33), ("7", 7), (0, 0)],
)
def test_sizes(text, size):
    assert parse_size(text) == size
    assert text == 0 or re.search(SIZE_PATTERN, text)  # of the schemas of settings and chart


@pytest.mark.parametrize("text", ["", "MiB", "1XB", -1, 1.5, None, True])
def test_what_is_no_size_says_how_to_write_one(text):
    with pytest.raises(Wrong) as caught:
        parse_size(text)
    assert "MiB" in caught.value.fix


@given(st.integers(0, 10**7))
def test_shown_values_read_back(number):
    assert parse_duration(show_duration(number)) == number
    assert parse_size(show_size(number)) == number


@pytest.mark.parametrize("number", [1e300, float("inf"), 2**40, "36601d", "9" * 5000 + "d"])
def test_a_duration_ends_after_a_hundred_years(number):
    with pytest.raises(Wrong, match="too long: write at most 36600d"):
        parse_duration(number)


@pytest.mark.parametrize("number", [10**18 + 1, "9000000TiB", "9" * 5000])
def test_what_64_bits_do_not_count_is_no_size(number):
    with pytest.raises(Wrong, match="too large: write at most 1000000000000000000"):
        parse_size(number)

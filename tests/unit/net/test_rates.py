"""Rates: bursts of one second pass, more is early by the time it is missing."""

from __future__ import annotations

import pytest

from gateway.net.rates import MAX_ADDRESSES, Bucket, ConnectRates


def test_a_bucket_lets_a_second_through_and_says_how_early_the_rest_is() -> None:
    bucket = Bucket(10, 0.0)
    assert [bucket.take(1, 0.0) for _ in range(10)] == [0.0] * 10
    assert bucket.take(5, 0.0) == pytest.approx(0.5)
    assert bucket.take(0, 0.5) == 0.0
    assert bucket.take(11, 100.0) == pytest.approx(0.1), "what was not used is kept for one second at most"


def test_addresses_have_their_own_rate_and_are_not_remembered_for_ever() -> None:
    now = [0.0]
    rates = ConnectRates(0, 1, lambda: now[0])
    assert rates.admit("a")
    assert not rates.admit("a")
    assert rates.admit("b")
    now[0] = 2.0
    assert rates.admit("a")
    for number in range(MAX_ADDRESSES + 10):
        rates.admit(str(number))
    assert len(rates._addresses) <= MAX_ADDRESSES


def test_the_process_has_a_rate_too() -> None:
    rates = ConnectRates(2, 0, lambda: 0.0)
    assert [rates.admit(str(number)) for number in range(3)] == [True, True, False]

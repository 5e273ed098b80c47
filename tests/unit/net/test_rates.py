"""Rates and shares: bursts of one second pass, more is early by the time it is missing, debts are not for ever."""

from __future__ import annotations

import pytest

from gateway.net.rates import MAX_ADDRESSES, MAX_DEBT, Bucket, ClientRates, ConnectRates, SendRates, Shares, take


def test_a_bucket_lets_a_second_through_and_says_how_early_the_rest_is() -> None:
    bucket = Bucket(10, 0.0)
    assert [bucket.take(1, 0.0) for _ in range(10)] == [0.0] * 10
    assert bucket.take(5, 0.0) == pytest.approx(0.5)
    assert bucket.take(0, 0.5) == 0.0
    assert bucket.take(11, 100.0) == pytest.approx(0.1), "what was not used is kept for one second at most"


def test_a_burst_is_not_waited_for_for_ever() -> None:
    bucket = Bucket(10, 0.0)
    assert bucket.take(1_000_000, 0.0) == MAX_DEBT
    assert bucket.take(0, MAX_DEBT) == 0.0


def test_addresses_have_their_own_rate_and_are_not_remembered_for_ever() -> None:
    now = [0.0]
    rates = ConnectRates(0, 1, lambda: now[0])
    assert rates.admit_from("a")
    assert not rates.admit_from("a")
    assert rates.admit_from("b")
    now[0] = 2.0
    assert rates.admit_from("a")
    for number in range(MAX_ADDRESSES + 10):
        rates.admit_from(str(number))
    assert len(rates._addresses) <= MAX_ADDRESSES


def test_all_together_have_a_rate_too() -> None:
    rates = ConnectRates(2, 0, lambda: 0.0)
    assert [rates.admit() for _ in range(3)] == [True, True, False]


def test_an_address_has_its_share_and_gives_it_back() -> None:
    shares = Shares(2)
    assert [shares.take("a") for _ in range(3)] == [True, True, False]
    assert shares.take("b")
    shares.give_back("a")
    assert shares.take("a")
    for address in ("a", "a", "b"):
        shares.give_back(address)
    assert not shares._open, "nobody is remembered who is gone"


def test_clients_listeners_and_the_process_each_have_a_bucket() -> None:
    rates = SendRates(
        {"a": ClientRates(0, 10, total_publishes=(15, 18)), "b": ClientRates(0, 0, total_publishes=(0, 18))},
        lambda: 0.0,
    )
    assert rates.of_client("c") == ()
    one, two, other = rates.of_client("a"), rates.of_client("a"), rates.of_client("b")
    assert take(one, 100, 10, 0.0) == 0.0
    assert take(one, 1, 1, 0.0) == pytest.approx(0.1), "the client's own"
    assert take(two, 1, 5, 0.0) == pytest.approx(1 / 15), "the listener's: 16 of 15"
    assert take(other, 1, 4, 0.0) == pytest.approx(2 / 18), "the process's: 20 of 18"


def test_bytes_and_publications_are_taken_from_their_own_buckets() -> None:
    buckets = SendRates({"a": ClientRates(100, 10)}, lambda: 0.0).of_client("a")
    assert take(buckets, 90, 1, 0.0) == 0.0
    assert take(buckets, 20, 1, 0.0) == pytest.approx(0.1), "110 of 100 bytes, 2 of 10 publications"
    assert take(buckets, 0, 10, 0.0) == pytest.approx(0.2), "12 of 10 publications"

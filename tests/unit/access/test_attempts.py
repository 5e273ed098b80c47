from __future__ import annotations

import pytest

from gateway.access.attempts import (
    DELAY_FROM,
    DELAY_MOST,
    FORGET_SECONDS,
    MAX_ADDRESSES,
    Attempts,
)
from gateway.ports.link import address_of


def test_each_failure_from_an_address_is_answered_later_than_the_one_before() -> None:
    attempts = Attempts()
    delays = [attempts.failed("10.0.0.1", 0.0) for _ in range(8)]
    assert delays[0] == DELAY_FROM
    assert delays == sorted(delays)
    assert delays[-1] == DELAY_MOST
    assert attempts.failed("10.0.0.2", 0.0) == DELAY_FROM, "others are not punished"


def test_failures_are_forgotten_after_a_while() -> None:
    attempts = Attempts()
    for _ in range(5):
        attempts.failed("a", 0.0)
    assert attempts.failed("a", FORGET_SECONDS + 1) == DELAY_FROM


def test_many_addresses_push_out_the_oldest_only() -> None:
    attempts = Attempts()
    attempts.failed("old", 0.0)
    for number in range(MAX_ADDRESSES - 1):
        attempts.failed(f"{number}", 0.0)
    attempts.failed("recent", 0.0)
    assert attempts.failed("recent", 0.0) == 2 * DELAY_FROM
    assert attempts.failed("old", 0.0) == DELAY_FROM


@pytest.mark.parametrize(("peer", "address"), [
    ("10.0.0.7:4711", "10.0.0.7"), ("[2001:db8:1:2:3:4:5:6]:1883", "2001:db8:1:2::/64"),
    ("2001:db8:1:2:ffff::1:1883", "2001:db8:1:2::/64"), ("[fe80::1%eth0]:1883", "fe80::/64"), ("unix", ""),
    ("[::ffff:10.0.0.7]:4711", "10.0.0.7"), ("::ffff:10.0.0.8:4711", "10.0.0.8"),
])  # fmt: skip
def test_an_ipv6_client_is_counted_by_its_network(peer: str, address: str) -> None:
    assert address_of(peer) == address

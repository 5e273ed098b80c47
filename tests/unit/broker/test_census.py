"""What the gateways on the same state queues know of each other."""

from __future__ import annotations

from typing import Any

from gateway.app.api.gateways import as_answer
from gateway.broker.gateways.census import INTERVAL, SILENT, Census

OURS, THEIRS = "aa" * 12, "bb" * 12


def told(received: int, **more: Any) -> dict[str, Any]:
    figures = {"publish/messages/received": received, "clients/connected": 3}
    return {"from": THEIRS, "name": "gate-2", "version": "0.1.0", "started": 50.0, "figures": figures} | more


def census(leases: dict[str, float] | None = None) -> Census:
    found = Census(OURS, lambda: {THEIRS}, lambda: leases or {}, 10.0)
    found.name, found.version, found.started, found.page = "gate-1", "0.1.0", 40.0, "https://gate-1:9160/admin/"
    return found


def test_rates_are_between_the_last_two_reports_and_each_tells_its_page() -> None:
    ours = census()
    written: list[dict[str, Any]] = []
    ours.write = lambda _to, message: written.append(message)
    for now, received in ((100.0, 0), (100.0 + INTERVAL, 500)):
        assert ours.report(now, now, lambda received=received: {"publish/messages/received": received})
        ours.heard(told(received * 2, page="https://gate-2:9160/admin/"), now, now)
    own, other = (as_answer(one, 10.0) for one in ours.gateways(115.0))
    assert (own["received_rate"], other["received_rate"]) == (50.0, 100.0)
    assert (own["page"], other["page"]) == ("https://gate-1:9160/admin/", "https://gate-2:9160/admin/")
    assert [message["page"] for message in written] == ["https://gate-1:9160/admin/"] * 2


def test_the_lease_of_another_is_as_old_as_it_was_seen_and_one_that_has_told_nothing_is_there_too() -> None:
    own, other = (as_answer(one, 10.0) for one in census({THEIRS: 4.5}).gateways(100.0))
    assert (own["lease_age"], own["lease_seconds"]) == (None, 10.0)
    assert (other["name"], other["lease_age"], other["heard"]) == (THEIRS, 4.5, None)


def test_a_restart_makes_no_rate_and_what_is_no_address_is_none() -> None:
    ours = census()
    ours.heard(told(1000, page="javascript:alert(1)"), 100.0, 100.0)
    ours.heard(told(2000, started=99.0), 110.0, 110.0)
    other = as_answer(ours.gateways(111.0)[1], 10.0)
    assert (other["received_rate"], other["page"]) == (None, None)


def test_one_that_has_just_come_is_told_at_once() -> None:
    peers: set[str] = set()
    ours = Census(OURS, lambda: peers)
    written: list[str] = []
    ours.write = lambda to, _message: written.append(to)
    assert ours.report(100.0, 100.0, dict)
    peers.add(THEIRS)
    assert [ours.report(now, now, dict) for now in (101.0, 102.0)] == [False, False]
    assert written == [THEIRS]


def test_one_that_is_silent_does_not_count_in_sums() -> None:
    ours = census()
    ours.heard(told(7), 100.0, 100.0)
    assert ours.others("clients/connected", 100.0 + SILENT) == 3
    assert ours.others("clients/connected", 101.0 + SILENT) == 0


def test_a_clock_that_is_set_back_or_forward_stops_no_report_and_silences_nobody() -> None:
    ours = census()
    written: list[str] = []
    ours.write = lambda to, _message: written.append(to)
    for seconds, now in ((0.0, 7200.0), (INTERVAL, 3600.0), (2 * INTERVAL, 10800.0)):
        assert ours.report(now, seconds, lambda seconds=seconds: {"publish/messages/received": int(seconds)})
        ours.heard(told(int(seconds) * 2), now, seconds)
        assert ours.others("clients/connected", seconds + 1) == 3
        own, other = (as_answer(one, 10.0) for one in ours.gateways(now))
        assert (own["heard"], other["heard"]) == (now, now)
    assert (own["received_rate"], other["received_rate"]) == (1.0, 2.0)
    assert written == [THEIRS] * 3

"""gateway.session.session: how the record of a session is written."""

from __future__ import annotations

import gc

import pytest

from gateway.mqtt.packets import Subscription
from gateway.session.record import decode_json
from gateway.session.session import Session
from gateway.session.subscribed import Subscribed


def session_of(filters: int) -> Session:
    session = Session("d", 5)
    for number in range(filters):
        options = Subscription(f"\u00e9/{number}", number % 3, number % 2 == 1, number % 5 == 0, number % 3)
        session.subscriptions[options.filter] = Subscribed(options, number)
    return session


@pytest.mark.parametrize("filters", [0, 1, 999, 1000])
def test_a_record_brings_back_all_subscriptions(filters: int) -> None:
    session = session_of(filters)
    record = decode_json(session.to_record(7.0, {"owner": "other", "epoch": 3}))
    assert (record["since"], record["owner"]) == (7.0, "other")
    back = Session.from_record(record)
    assert (back.client_id, back.epoch) == ("d", 3)
    assert list(back.subscriptions.items()) == list(session.subscriptions.items())


def test_the_garbage_collector_has_nothing_to_do_for_a_long_record() -> None:
    """Everybody has to wait for each run over thousands of lists that are gone in a moment."""
    session, runs, before = session_of(5000), list[str](), gc.get_threshold()
    gc.collect()
    gc.set_threshold(2000)
    gc.callbacks.append(lambda phase, _: runs.append(phase))
    try:
        session.to_record(0.0, {})
    finally:
        gc.callbacks.pop()
        gc.set_threshold(*before)
    assert not runs

"""The history of clients is bounded, and equal events in a row are one."""

from __future__ import annotations

from gateway.observe.client_history import MAX_SHOWN, ClientHistory


def test_events_of_a_client_are_kept_in_order() -> None:
    history = ClientHistory()
    history.add(1.0, "a", "connected", "connected", peer="p", user=None)
    history.add(2.0, "b", "connected", "connected")
    history.add(3.0, "a", "disconnected", "gone")
    assert [(one.event, one.fields, one.last) for one in history.of("a")] == [
        ("connected", {"peer": "p"}, 1.0), ("disconnected", {}, 3.0),
    ]  # fmt: skip
    assert history.of("c") == []


def test_equal_events_in_a_row_are_one_with_a_number() -> None:
    history = ClientHistory()
    for second in range(5):
        history.add(float(second), "a", "refused", "wrong password", peer="p")
        history.add(float(second), "b", "connected", "connected", port=second)
    [one] = history.of("a")
    assert (one.count, one.first, one.last) == (5, 0.0, 4.0)
    assert len(history.of("b")) == 5


def test_the_oldest_go_first_and_nothing_is_kept_of_them() -> None:
    history = ClientHistory(most=10)
    for number in range(100):
        history.add(float(number), f"c{number}", "connected", "connected")
    assert history.of("c0") == []
    assert len(history.of("c99")) == 1
    assert len(history._latest) == 10
    history.add(100.0, "c0", "connected", "connected")
    assert len(history.of("c0")) == 1


def test_a_client_shows_its_last_events() -> None:
    history = ClientHistory()
    for number in range(MAX_SHOWN + 50):
        history.add(float(number), "a", "connected", "connected", port=number)
    assert [one.last for one in history.of("a")][-1] == MAX_SHOWN + 49
    assert len(history.of("a")) == MAX_SHOWN


def test_what_clients_choose_to_be_long_is_kept_short() -> None:
    history = ClientHistory()
    long, other = "c" * 60_000 + "1", "c" * 60_000 + "2"
    history.add(1.0, long, "refused", "x" * 60_000, user="u" * 60_000, port=1)
    history.add(2.0, other, "connected", "connected")
    [one] = history.of(long)
    assert (one.event, one.fields["port"]) == ("refused", 1)
    assert len(one.client_id) + len(one.text) + len(str(one.fields["user"])) < 1000
    assert [one.event for one in history.of(other)] == ["connected"]

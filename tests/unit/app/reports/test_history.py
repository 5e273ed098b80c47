"""The history on the disk: what is written is read again, in two bounded files, and nothing there stops the gateway."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from gateway.app.reports.history import MAX_LINES, ByTurns, HistoryFile
from gateway.observe.history import GATEWAY, UNKNOWN, History

QUEUE = ("queue", "ORDERS")


def test_minutes_are_read_as_they_were_written(tmp_path: Path) -> None:
    HistoryFile(tmp_path).append(60.0, {QUEUE: (1.5, 0.0, 7.0), ("rule", "idle"): (0.0, 0.0)})
    HistoryFile(tmp_path).append(120.0, {("gateway", ""): (*[1.0] * 7, UNKNOWN)})
    first, second = HistoryFile(tmp_path).read()
    assert first == (60.0, {QUEUE: (1.5, 0.0, 7.0)})
    assert second[0] == 120.0
    assert repr(second[1]["gateway", ""][-1]) == "nan"


def test_there_are_two_files_of_half_a_day(tmp_path: Path) -> None:
    file = HistoryFile(tmp_path)
    for minute in range(3 * MAX_LINES):
        file.append(minute * 60.0, {QUEUE: (1.0, 1.0, 1.0)})
    times = [time for time, _ in HistoryFile(tmp_path).read()]
    assert len(times) == 2 * MAX_LINES
    assert times == sorted(times)
    assert times[-1] == (3 * MAX_LINES - 1) * 60.0


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[" * 100_000,
        "[]",
        "[1, [[1]]]",
        '[60, [["queue", "Q", [1]]]]',
        '[60, [["planet", "Q", [1, 2, 3]]]]',
        "null",
        "[60, 5]",
        f"[1{'0' * 400}, []]",
        f'[60, [["queue", "Q", [1{"0" * 400}, 2, 3]]]]',
        '[60, [["queue", "Q", [1e999, 2, 3]]]]',
        '[60, [["queue", "Q", [NaN, 2, 3]]]]',
    ],
)
def test_what_is_no_line_of_it_is_left_out(tmp_path: Path, line: str) -> None:
    (tmp_path / "history.jsonl").write_text(line + "\n")
    assert [rows for _, rows in HistoryFile(tmp_path).read() if rows] == []
    (tmp_path / "history.jsonl").write_bytes(b"\xff\xfe")
    assert list(HistoryFile(tmp_path).read()) == []


def test_a_byte_that_is_wrong_costs_its_line_only(tmp_path: Path) -> None:
    for minute in (60.0, 120.0, 180.0):
        HistoryFile(tmp_path).append(minute, {QUEUE: (1.0, 1.0, 1.0)})
    whole = (tmp_path / "history.jsonl").read_bytes()
    (tmp_path / "history.jsonl").write_bytes(whole.replace(b"[120", b"[\xff20"))
    assert [time for time, _ in HistoryFile(tmp_path).read()] == [60.0, 180.0]


@pytest.mark.parametrize("name", ["line\u2028separator", "next\x85line", "form\x0cfeed", "file\x1cseparator"])
def test_a_name_with_what_ends_a_line_elsewhere_costs_nothing(tmp_path: Path, name: str) -> None:
    """Client identifiers may have these characters."""
    minute = {("client", name): (1.0, 2.0), QUEUE: (1.0, 1.0, 1.0)}
    HistoryFile(tmp_path).append(60.0, minute)
    assert list(HistoryFile(tmp_path).read()) == [(60.0, minute)]


def test_a_directory_that_takes_nothing_costs_the_history_only(tmp_path: Path) -> None:
    HistoryFile(tmp_path / "missing").append(60.0, {QUEUE: (1.0, 1.0, 1.0)})
    assert list(HistoryFile(tmp_path / "missing").read()) == []


def test_the_rates_of_a_queue_are_those_of_the_last_sample() -> None:
    history = History()
    history.sample(100.0, {QUEUE: {"put": 0, "got": 0, "depth": 0}})
    assert history.queue_rates("ORDERS") is None
    history.sample(105.0, {QUEUE: {"put": 50, "got": 5, "depth": 45}})
    assert history.queue_rates("ORDERS") == (10.0, 1.0)
    history.sample(110.0, {("rule", "other"): {"matched": 1, "failed": 0}, GATEWAY: {}})
    history.sample(115.0, {("rule", "other"): {"matched": 1, "failed": 0}, GATEWAY: {}})
    assert history.queue_rates("ORDERS") is None, "it is gone"


def test_of_many_some_have_their_turn_in_each_sample_and_few_are_all_looked_at() -> None:
    turns, asked = ByTurns[int](400), []

    def every(many: int) -> range:
        asked.append(many)
        return range(many)

    some = [turns.some(lambda: every(1000)) for _ in range(5)]
    assert [len(one) for one in some] == [400] * 5
    assert sorted(chain(*some)) == sorted([*range(1000)] * 2)
    assert len(asked) == 2
    few = ByTurns[int](400)
    assert [few.some(lambda: every(300)) for _ in range(3)] == [[*range(300)]] * 3

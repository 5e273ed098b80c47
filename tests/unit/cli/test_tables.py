"""gateway.cli.tables: names are never cut, pipes get plain columns, and listings continue beyond one answer of the
API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click import unstyle
from click.testing import CliRunner

from gateway.cli.main import main
from gateway.cli.reach import Reach
from gateway.cli.tables import everything, pages, show_table

LONG = "PLANT.LIMA.LINE.0001.TEMPERATURE.READINGS.ALL"


def mqgate(*arguments: str, text: str | None = None) -> str:
    """Returns the output of a command that succeeds."""
    result = CliRunner().invoke(main, arguments, input=text)
    assert result.exit_code == 0, result.output
    return result.output


def store(tmp_path: Path, mqsc: str) -> str:
    directory = str(tmp_path / "data")
    mqgate("mqsc", "--data", directory, text=mqsc)
    return directory


def test_a_pipe_gets_tabs_and_whole_names(tmp_path: Path) -> None:
    data = store(tmp_path, f"DEFINE QLOCAL({LONG}) MAXDEPTH(5000)")
    header, *rows = mqgate("queue", "list", "--data", data).splitlines()
    assert header.split("\t") == ["queue", "type", "depth", "limit", "oldest", "in/s", "out/s", "put", "get"]
    assert [LONG, "local", "0", "5000", "", "", "", "yes", "yes"] in [row.split("\t") for row in rows]


def on_a_terminal(monkeypatch: Any, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)


def test_a_terminal_shows_whole_names(monkeypatch: Any, capsys: Any) -> None:
    on_a_terminal(monkeypatch, 40)
    show_table(("client", "user", "peer"), [(LONG, "a-user-with-a-long-name", "192.168.100.200:53229 (tls)")])
    said = capsys.readouterr()
    assert unstyle(said.out) == f"client\n{LONG}\n"
    assert unstyle(said.err) == "not shown in 40 columns: user, peer\n"


def test_what_is_least_important_goes_first_and_numbers_stand_under_each_other(monkeypatch: Any, capsys: Any) -> None:
    on_a_terminal(monkeypatch, 22)
    show_table(
        ("queue", "type", "depth", "put"), [("A.B", "local", "5", "yes"), ("C", "local", "1200", "yes")], ("type",)
    )
    said = capsys.readouterr()
    assert unstyle(said.out) == "queue  depth  put\nA.B        5  yes\nC       1200  yes\n"
    assert unstyle(said.err) == "not shown in 22 columns: type\n"


def test_a_text_that_may_be_cut_makes_room_and_wide_letters_count_twice(monkeypatch: Any, capsys: Any) -> None:
    on_a_terminal(monkeypatch, 30)
    show_table(("user", "with", "result"), [("\u65e5\u672c", "a long text of arguments", "done")], cut="with")
    assert unstyle(capsys.readouterr().out).splitlines() == [
        "user  with              result",
        "\u65e5\u672c  a long text of \u2026  done",
    ]


def test_an_identifier_cannot_imitate_a_row(capsys: Any) -> None:
    show_table(("client", "user"), [("a\tb\nc", "")])
    assert capsys.readouterr().out == "client\tuser\na\\tb\\nc\t\n"


def listing(count: int) -> Reach:
    """A listing of numbers, as the API answers it."""

    def ask(_method: str, _path: str, query: dict[str, str], _body: dict[str, Any]) -> Any:
        first, limit = int(query.get("after", 0)), int(query["limit"])
        assert limit <= 500, "the API refuses more"
        last = min(first + limit, count)
        items = [{"n": number} for number in range(first, last)]
        return {"items": items, "total": count, "next": str(last) if last < count else None}

    return Reach(ask, running=True)


def test_a_listing_goes_on_beyond_one_answer() -> None:
    assert [one["n"] for one in everything(listing(1203), "/queues")] == list(range(1203))
    assert everything(listing(0), "/queues") == []


def test_no_more_is_asked_for_than_is_wanted() -> None:
    found = [len(answer["items"]) for answer in pages(listing(5000), "/queues/Q/messages", 700)]
    assert found == [500, 200]


def test_all_queues_are_listed_and_all_messages_browsed_and_taken(tmp_path: Path) -> None:
    names = [f"Q.{number:04}" for number in range(505)]
    data = store(tmp_path, "\n".join(f"DEFINE QLOCAL({name})" for name in names))
    listed = json.loads(mqgate("queue", "list", "Q.", "--data", data, "--json"))
    assert [one["name"] for one in listed] == names
    put(data, "Q.0000", 503)
    shown = mqgate("queue", "browse", "Q.0000", "-n", "5000", "--short", "--data", data)
    assert len(shown.splitlines()) == 503
    taken = json.loads(mqgate("queue", "get", "Q.0000", "-n", "502", "--data", data, "--json"))
    assert len(taken) == 502
    assert "1 of 1 message" in mqgate("queue", "browse", "Q.0000", "--data", data)


def put(data: str, queue: str, count: int) -> None:
    """Put messages in one unit of work."""
    from gateway.cli.reach import LocalClock
    from gateway.mq import mqmd
    from gateway.ports.batch import Puts, Unit
    from gateway.queue_manager.embedded import EmbeddedQueueManager
    from gateway.queue_manager.inspection import Inspection

    manager = EmbeddedQueueManager.open(Path(data), "MQGATE", LocalClock())
    puts = Puts(queue, priority=0, persistent=True, heads=[mqmd.build(persistence=1)] * count, bodies=[b"x"] * count)
    assert not Inspection(manager).commit(Unit([puts])).failures
    manager.close()


def test_a_list_says_of_queues_what_is_said_of_each(tmp_path: Path) -> None:
    """The list is made without reading most of the attributes."""
    data = store(tmp_path, """DEFINE QLOCAL(X) USAGE(XMITQ) GET(DISABLED) DESCR('to X')
        DEFINE QALIAS(A) TARGET(X) PUT(DISABLED)
        DEFINE QREMOTE(R) RNAME(THERE) RQMNAME(X) DESCR(away)""")  # fmt: skip
    listed = json.loads(mqgate("queue", "list", "--data", data, "--json"))
    mine = [one for one in listed if one["name"] in {"X", "A", "R"}]
    assert len(mine) == 3
    for one in mine:
        shown = json.loads(mqgate("queue", "show", one["name"], "--data", data, "--json"))
        del shown["attributes"]
        assert one == shown

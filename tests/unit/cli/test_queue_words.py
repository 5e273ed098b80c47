"""gateway.cli.queue, reach and main: messages leave a queue whole and once they have been written, numbers are ones
that can be used, and what a system refuses is said in one line."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner
from gateways import TREE

from gateway.cli.main import main
from gateway.cli.queue import _taken
from gateway.cli.reach import Reach, Refused

LONG = "x" * 200_000


@pytest.fixture
def data(tmp_path: Path) -> str:
    """A store with a long and a short message on Q."""
    directory = str(tmp_path / "data")
    mqgate("mqsc", "--data", directory, text="DEFINE QLOCAL(Q)")
    mqgate("queue", "put", "Q", "--file", "-", "--data", directory, text=LONG)
    mqgate("queue", "put", "Q", "short", "--data", directory)
    return directory


def mqgate(*arguments: str, text: str | None = None) -> str:
    result = CliRunner().invoke(main, list(arguments), input=text)
    assert result.exit_code == 0, result.output[:1000]
    return result.output


def refused(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(arguments))
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    return result.exit_code, result.output.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("que", "'queue'"), ("mqcs", "'mqsc'"), ("qlist", ""), ("dlq lits", "'list'"), ("dql", "'dlq'")],
)
def test_the_nearest_name_of_a_mistyped_command_is_said(typed: str, meant: str) -> None:
    code, said = refused(*typed.split())
    assert code == 2
    assert f"No such command {typed.rsplit(maxsplit=1)[-1]!r}." in said
    assert said.endswith(f"Did you mean {meant}?") == bool(meant), said


def test_requests_and_their_answers_are_put_by_hand(data: str) -> None:
    mqgate("queue", "put", "Q", "now?", "--reply-to", "REPLIES", "--data", data)
    mqgate("queue", "put", "Q", "noon", "--correl-id", "4D51", "--data", data)
    shown = mqgate("queue", "browse", "Q", "-n", "9", "--data", data)
    [asked] = [line for line in shown.splitlines() if "MsgType=MQMT_REQUEST (1)" in line]
    assert "ReplyToQ=REPLIES" in asked
    assert f"CorrelId={'4d51':0<48}" in shown
    code, said = refused("queue", "put", "Q", "noon", "--correl-id", "xyz", "--data", data)
    assert (code, "correl_id" in said) == (1, True), said


@pytest.mark.parametrize("number", [1, 2, 600, 100_000])
def test_what_is_browsed_is_json_whatever_the_number(data: str, number: int) -> None:
    """The list is written as it is read: a queue may hold a million messages."""
    for short in ([], ["--short"]):
        found = json.loads(mqgate("queue", "browse", "Q", "-n", str(number), "--json", *short, "--data", data))
        assert [one["length"] if short else one["body"]["length"] for one in found] == [200_000, 5][:number]
    mqgate("queue", "get", "Q", "-n", "2", "--data", data)
    assert mqgate("queue", "browse", "Q", "--json", "--data", data) == "[]\n"
    assert mqgate("queue", "browse", "Q", "--data", data) == "0 of 0 messages\n"
    assert refused("queue", "browse", "Q", "-n", "0", "--data", data)[0] == 2


def test_a_queue_is_listed_by_a_generic_name(data: str) -> None:
    mqgate("mqsc", "--data", data, text="DEFINE QLOCAL(TELEMETRY.LIMA)\nDEFINE QLOCAL(OLD.TELEMETRY)")
    for pattern, names in (
        ("telemetry.*", ["TELEMETRY.LIMA"]), ("*try", ["OLD.TELEMETRY"]), ("*.LI*", ["TELEMETRY.LIMA"]),
        ("TELE", ["OLD.TELEMETRY", "TELEMETRY.LIMA"]), ("NO*", []),
    ):  # fmt: skip
        found = json.loads(mqgate("queue", "list", pattern, "--json", "--data", data))
        assert [one["name"] for one in found] == names


def test_a_message_is_taken_whole(data: str) -> None:
    assert mqgate("queue", "get", "Q", "--raw", "-n", "2", "--data", data) == LONG + "short"


def test_what_messages_hold_moves_no_cursor(data: str) -> None:
    """C1 controls and direction marks are escaped, also behind the part of a body that decides whether it is text."""
    put = ("queue", "put", "Q", "--data", data, "--property", "a=x\u009b2J\u202ey")
    mqgate(*put, "--file", "-", text="é\tb\nc" + "x" * 2000 + "\x1b[2J\rend")
    for words in (("--short",), ()):
        shown = mqgate("queue", "browse", "Q", "--data", data, *words)
        assert all(one.isprintable() or one in "\n\t" for one in shown)
    assert "usr.a = x\\x9b2J\\u202ey" in shown
    assert "é" in shown


def test_what_is_taken_is_json_for_programs(data: str) -> None:
    taken = json.loads(mqgate("queue", "get", "Q", "--json", "-n", "9", "--data", data))
    assert [one["body"]["text"] for one in taken] == [LONG, "short"]


def holding(queue: dict[str, dict[str, object]]) -> Reach:
    """Returns a gateway with one queue, whose messages are given by their tokens."""

    def ask(method: str, path: str, query: dict[str, str], body: dict[str, list[str]]) -> object:
        if method == "POST":
            assert path == "/queues/Q/remove"
            return {"removed": sum(queue.pop(token, None) is not None for token in body["tokens"])}
        behind = [{"token": one} | fields for one, fields in queue.items() if one > query.get("after", "")]
        page = behind[: int(query["limit"])]
        return {"items": page, "next": page[-1]["token"] if len(page) < len(behind) else None}

    return Reach(ask, running=True)


FREE = {"expiry_seconds": None, "locked": False}


def test_what_others_have_or_has_expired_is_not_taken() -> None:
    queue = {"1": FREE | {"locked": True}, "2": FREE | {"expiry_seconds": -0.1}, "3": FREE | {"expiry_seconds": 9.0}}
    queue |= {str(number): FREE for number in (4, 5, 6)}
    there = holding(queue)
    assert [one["token"] for one in _taken(there, "Q", 1)] == ["3"]
    assert [one["token"] for one in _taken(there, "Q", 2)] == ["4", "5"]
    assert [one["token"] for one in _taken(there, "Q", 2)] == ["6"]
    assert set(queue) == {"1", "2"}


def test_what_was_written_before_an_interruption_is_removed() -> None:
    queue: dict[str, dict[str, object]] = {str(number): FREE for number in range(5)}
    with closing(_taken(holding(queue), "Q", 5)) as messages:
        assert [next(messages)["token"], next(messages)["token"]] == ["0", "1"]
    assert list(queue) == ["1", "2", "3", "4"]


def test_what_somebody_else_has_got_meanwhile_is_said() -> None:
    queue: dict[str, dict[str, object]] = {str(number): FREE for number in range(3)}
    messages = _taken(holding(queue), "Q", 3)
    next(messages)
    del queue["1"]
    with pytest.raises(Refused, match="has taken 1 message of the last 3"):
        list(messages)
    assert queue == {}


def test_a_message_that_cannot_be_written_stays_on_its_queue(data: str) -> None:
    program = f"import sys; sys.path.insert(0, {TREE!r}); from gateway.cli.main import main; main()"
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-c", program, "queue", "get", "Q", "--raw", "-n", "2", "--data", data]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (3, "Error: the output cannot be written: No space left on device\n")
    assert mqgate("queue", "get", "Q", "--raw", "-n", "2", "--data", data) == LONG + "short"


def test_no_message_is_no_number_of_messages(data: str) -> None:
    for number in ("0", "-1"):
        assert refused("queue", "get", "Q", "-n", number, "--data", data)[0] == 2


@pytest.mark.parametrize("number", ["nan", "inf", "-1"])
def test_numbers_that_count_nothing_are_refused(data: str, number: str) -> None:
    assert refused("queue", "put", "Q", "x", "--expiry", number, "--data", data)[0] == 2
    assert refused("dlq", "replay", "--rate", number, "--data", data)[0] == 2
    for command in (["pub", "t", "x"], ["sub", "t"], ["probe"]):
        assert refused(*command, "--timeout", number)[0] == 2


@pytest.mark.parametrize(("arguments", "code", "said"), [
    (["queue", "put", "Q", "x", "--expiry", "1e300"], 1, "no message can be made of this: expiry_seconds must be"),
    (["queue", "put", "Q", "x", "--format", "TOOLONGFORMAT"], 1, "'TOOLONGFORMAT' is longer than 8 bytes"),
    (["queue", "put", "Q", "x", "--property", "a=\udcff"], 1, "is half of a surrogate pair"),
    (["queue", "put", "Q", "x", "--file", "-"], 2, "TEXT and --file exclude each other: give one of them"),
    (["journal", "dump", "-n", "-1"], 2, "-1 is not in the range x>=0"),
    (["queue", "show", "\udcff"], 2, "'\\udcff' is not text: write it in UTF-8"),
    (["journal", "salvage", "missing/file"], 3, "missing/file.partial: No such file or directory"),
])  # fmt: skip
def test_what_cannot_be_is_said_in_one_line(data: str, arguments: list[str], code: int, said: str) -> None:
    found, text = refused(*arguments, "--data", data)
    assert found == code, text
    assert said in text


@pytest.mark.parametrize(("arguments", "code", "said"), [
    (["pub", "t", "x", "--host", "\udcff"], 3, "is not reached"),
    (["pub", "t", "x", "--host", "a" * 300], 3, "is not reached"),
    (["pub", "t", "x", "--ca-file", "empty"], 2, "--ca-file: empty has no certificates in PEM form"),
    (["probe", "--port", "1", "--password-file", "empty"], 3, "127.0.0.1:1 is not reached"),
])  # fmt: skip
def test_what_no_gateway_can_be_reached_with_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").write_text("")
    found, text = refused(*arguments)
    assert found == code, text
    assert said in text


@pytest.mark.parametrize("name", ["MQGATE_LISTENERS__\u00b2__PORT", f"MQGATE_LISTENERS__{'9' * 5000}__PORT"])
def test_what_is_no_place_in_a_list_is_a_finding(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1")
    code, text = refused("check", "-c", "/dev/null")
    assert code == 1
    assert "count the entries of a list from 0" in text


def test_a_closed_standard_input_is_no_empty_message(data: str) -> None:
    program = f"import sys; sys.path.insert(0, {TREE!r}); from gateway.cli.main import main; main()"
    command = 'exec "$0" -c "$1" queue put Q --file - --data "$2" <&-'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, program, data], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (3, "Error: the standard input is closed\n")


@pytest.fixture
def stranger() -> Iterator[tuple[int, list[bytes]]]:
    """A program that is not a gateway, on a port that a gateway had: yields the port, and what it answers next."""
    answers: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    peer, _ = server.accept()
                    with peer:
                        peer.recv(4096)
                        peer.sendall(answers[-1])

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1], answers
        server.shutdown(socket.SHUT_RDWR)


def test_another_program_on_the_port_of_a_gateway_that_was_killed(data: str, stranger: tuple[int, list[bytes]]) -> None:
    port, answers = stranger
    (Path(data) / "admin.token").write_text("token")
    (Path(data) / "gateway.json").write_text(json.dumps({"admin": f"http://127.0.0.1:{port}"}))
    for answer in (
        b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\n[]", b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n\"\xff\"",
    ):  # fmt: skip
        answers.append(answer)
        assert "Q" in mqgate("queue", "list", "--data", data), "the store is opened"
    answers.append(b"SSH-2.0-OpenSSH\r\n")
    code, text = refused("status", "--data", data)
    assert code == 3
    assert f"what answers at http://127.0.0.1:{port} is not a gateway" in text


@pytest.mark.parametrize("written", [
    '{"admin": 5}', '{"admin": "x"}', '{"admin": "http://[::1"}', '{"admin": "http://127.0.0.1:1\\n"}',
    '{"token_file": 5}', '{"admin": "https://127.0.0.1:1", "certificate": "none"}',
    '{"admin": "http://x", "certificate": 5}', "5", "[" * 100_000, "\x00",
])  # fmt: skip
def test_a_damaged_gateway_json_is_no_gateway(data: str, written: str) -> None:
    (Path(data) / "admin.token").write_text("token")
    (Path(data) / "gateway.json").write_text(written)
    assert "Q" in mqgate("queue", "list", "--data", data)
    assert refused("status", "--data", data)[0] == 3

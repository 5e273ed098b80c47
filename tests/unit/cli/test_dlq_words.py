"""gateway.cli.dlq: what cannot be put back is tried once, and does not keep the others from being put back."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner
from embedded_rig import MqiRig, md
from small_disks import tmpfs

from gateway.cli import dlq
from gateway.cli.dlq import _behind
from gateway.cli.main import main
from gateway.cli.reach import Reach
from gateway.mq.headers import dlh

FULL, COUNT = 230, 120
"""Dead letters for a queue without room, and for one that takes them: more of each than are put back at once."""


@pytest.fixture
def data(tmp_path: Path) -> str:
    """A store with the dead letters of both queues, one queue after the other."""
    rig = MqiRig(tmp_path / "data", "DEFINE QLOCAL(FULL) MAXDEPTH(0)\nDEFINE QLOCAL(OPEN)")
    handle = rig.open("SYSTEM.DEAD.LETTER.QUEUE")
    for queue, number in (("FULL", FULL), ("OPEN", COUNT)):
        header = dlh.build(2053, queue, "", md(format=b"MQSTR"))
        for each in range(number):
            rig.put(handle, header + b"%d" % each, 2, md(format=b"MQDEAD", persistence=1))
        rig.connection.commit()
    rig.queue_manager.close()
    return str(tmp_path / "data")


def replayed(data: str, *words: str) -> tuple[int, dict[str, object], int]:
    """Returns exit code, answer, and how many dead letters are left."""
    done = CliRunner().invoke(main, ["dlq", "replay", "--json", "--data", data, *words])
    assert isinstance(done.exception, SystemExit | None), repr(done.exception)
    left = CliRunner().invoke(main, ["dlq", "list", "--json", "--data", data])
    return done.exit_code, json.loads(done.stdout), json.loads(left.stdout)["total"]


def test_what_cannot_be_put_back_keeps_nothing_from_it(data: str) -> None:
    code, answer, left = replayed(data)
    assert (code, answer["matched"], answer["done"], left) == (1, FULL + COUNT, COUNT, FULL)
    failed = answer["failed"]
    assert isinstance(failed, list)
    assert len({one["token"] for one in failed}) == len(failed) == FULL


def test_any_number_of_tokens_is_put_back(data: str) -> None:
    """Only the first hundred were put back, and that was reported as success."""
    listing = CliRunner().invoke(main, ["dlq", "list", "--json", "-n", "500", "--data", data])
    tokens = [one["token"] for one in json.loads(listing.stdout)["items"]]
    code, answer, left = replayed(data, *(word for token in tokens for word in ("--token", token)))
    assert (code, answer["matched"], answer["done"], left) == (1, FULL + COUNT, COUNT, FULL)
    code, answer, left = replayed(data, "--to", "OPEN", *(word for one in tokens[:110] for word in ("--token", one)))
    assert (code, answer["done"], left) == (0, 110, FULL - 110)


def test_what_is_listed_goes_on_beyond_one_answer(data: str) -> None:
    assert CliRunner().invoke(main, ["dlq", "replay", "--to", "OPEN", "--data", data]).output == "350 of 350 replayed\n"
    rig = MqiRig(Path(data))
    handle = rig.open("SYSTEM.DEAD.LETTER.QUEUE")
    for each in range(502):
        rig.put(handle, b"%d" % each, 2, md(persistence=1))
    rig.connection.commit()
    rig.queue_manager.close()
    for number, shown in (("502", 502), ("501", 501), ("900", 502)):
        listing = CliRunner().invoke(main, ["dlq", "list", "--json", "-n", number, "--data", data])
        found = json.loads(listing.stdout)
        assert len({one["token"] for one in found["items"]}) == len(found["items"]) == shown
        assert (found["total"], found["next"] is None) == (502, shown == 502)
    assert CliRunner().invoke(main, ["dlq", "list", "-n", "0", "--data", data]).exit_code == 2


def test_what_would_be_replayed_is_json_for_programs(data: str) -> None:
    code, answer, left = replayed(data, "--dry-run", "--destination", "OP*")
    assert (code, answer, left) == (0, {"matched": COUNT, "done": 0, "failed": []}, FULL + COUNT)


def test_a_token_that_is_none_is_no_success(data: str) -> None:
    done = CliRunner().invoke(main, ["dlq", "replay", "--token", "12345", "--data", data])
    assert (done.exit_code, done.output) == (1, "Error: no dead letter has this token\n")


def test_what_was_tried_is_not_tried_again() -> None:
    assert _behind({"reason": 2053}, []) == {"reason": 2053}
    assert _behind({"reason": 2053}, [{"token": 7}, {"token": 9}]) == {"reason": 2053, "after": "9"}
    assert _behind({"tokens": ["7", "8", "9"]}, [{"token": "7"}]) == {"tokens": ["8", "9"]}


def test_an_export_that_does_not_fit_on_the_disk_leaves_what_was_there(data: str, tmp_path: Path) -> None:
    """A file with the first part of the letters was left under the name for all of them."""
    export = ["dlq", "export", "--data", data]
    with tmpfs(tmp_path / "disk", "128k") as disk:
        for earlier in (None, "those of yesterday\n"):
            if earlier is not None:
                (disk / "letters").write_text(earlier)
            done = CliRunner().invoke(main, [*export, str(disk / "letters")])
            assert (done.exit_code, "No space left on device" in done.output) == (3, True)
            assert "letters written" not in done.output
            assert [one.read_text() for one in disk.iterdir()] == ([] if earlier is None else [earlier])


def test_an_export_has_the_rights_of_the_one_it_replaces(data: str, tmp_path: Path) -> None:
    """Not everybody may read dead letters: a file that was made private stays private."""
    letters, link = tmp_path / "letters", tmp_path / "link"
    letters.touch(0o600)
    link.symlink_to(letters)
    assert CliRunner().invoke(main, ["dlq", "export", "--data", data, str(link)]).exit_code == 0
    assert link.is_symlink()
    assert (letters.stat().st_mode & 0o777, letters.read_text().count("\n")) == (0o600, FULL + COUNT)


@pytest.mark.parametrize("file", ["-", "letters"])
def test_all_dead_letters_are_exported(data: str, tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["dlq", "export", "--data", data, file])
    text = done.stdout if file == "-" else Path(file).read_text()
    assert (done.exit_code, text.count("\n")) == (0, FULL + COUNT)
    assert f"{FULL + COUNT} dead letters written" in done.stderr


def test_all_of_them_are_no_selection(data: str) -> None:
    given = ["dlq", "replay", "--all", "--token", "12345", "--data", data]
    done = CliRunner().invoke(main, given)
    assert done.exit_code == 2
    assert "give one of them" in done.output


@pytest.mark.parametrize("running", [True, False])
def test_an_interrupted_purge_says_that_the_gateway_goes_on(monkeypatch: pytest.MonkeyPatch, running: bool) -> None:
    """A purge is one request, which a gateway carries out to its end."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(dlq, "reach", lambda *_: nullcontext(Reach(interrupted, running=running)))
    done = CliRunner().invoke(main, ["dlq", "purge", "--all", "--yes"])
    assert done.exit_code == 1
    assert ("the gateway is still removing" in done.output) == running


def test_what_headers_hold_moves_no_cursor(tmp_path: Path) -> None:
    """Their names of queues and formats are bytes of whoever put the message."""
    rig = MqiRig(tmp_path / "data")
    handle = rig.open("SYSTEM.DEAD.LETTER.QUEUE")
    hostile = b"A\x1b]0;title\x07\x1b[2J\r\nB"
    whole = dlh.build(2085, "QUEUE", "MANAGER", md(format=b"MQSTR"), put_appl_name="NAME")
    names = [whole.replace(name.ljust(len(hostile)), hostile) for name in (b"QUEUE", b"MANAGER", b"NAME", b"MQSTR")]
    for data in (*names, b"DLH \x1b[2J", hostile, dlh.build(2085, "Q", "", md(format=b"MQHRF2")) + b"RFH \x1b[2J"):
        rig.put(handle, data, 2, md(format=b"MQDEAD", persistence=1))
    rig.connection.commit()
    rig.queue_manager.close()
    where = ("--data", str(tmp_path / "data"))
    listing = CliRunner().invoke(main, ["dlq", "list", "--json", *where])
    tokens = [one["token"] for one in json.loads(listing.stdout)["items"]]
    assert any("\x1b" in one["destination"] for one in json.loads(listing.stdout)["items"])
    for words in (
        ["list"], ["list", "--destination", "A\x1b*"], *(["show", token] for token in tokens), ["replay", "--all"],
    ):  # fmt: skip
        done = CliRunner().invoke(main, ["dlq", *words, *where])
        assert isinstance(done.exception, SystemExit | None), repr(done.exception)
        assert all(one.isprintable() or one in "\n\t" for one in done.output), (words, done.output)

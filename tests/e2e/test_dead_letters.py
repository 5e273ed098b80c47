"""`mqgate dlq` from end to end, on the embedded queue manager and on `ibm` with both bindings."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gateway_template
import pytest
from bridge_estate import Estate, estate, wait
from click.testing import CliRunner
from long_form import in_long_form

from gateway.cli import main
from gateway.mq import mqmd
from gateway.ports.batch import Stored

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(240)]
DEAD, COUNT = "D.DEAD", 12
MAPPING = """
version: 1
to_mq:
  - {name: shut, topic: "shut/#", queue: SHUT.Q, on_failure: {retry: {times: 0}}}
  - {name: gone, topic: "gone/{kind}", queue: "NO.{kind}"}
"""
OBJECTS = f"""
DEFINE QLOCAL({DEAD}) MAXDEPTH(99999) REPLACE
ALTER QMGR DEADQ({DEAD})
DEFINE QLOCAL(SHUT.Q) REPLACE
DEFINE QLOCAL(ELSEWHERE.Q) REPLACE
"""


@pytest.fixture(scope="module", params=["embedded", "ibm", *in_long_form("pymqi")])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Estate]:
    with estate(tmp_path_factory.mktemp(request.param), request.param, MAPPING, OBJECTS) as made:
        yield made


def dlq(site: Estate, *words: str, code: int = 0, environ: dict[str, str] | None = None) -> Any:
    """The command; what it answers, as JSON where it is asked for it."""
    done = run(site, *words, environ=environ)
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return json.loads(done.stdout) if "--json" in words else done.stdout


def run(site: Estate, *words: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A process of its own where no gateway runs, and with a binding that this process has not loaded; else the command
    is called: a start of Python costs more than the answer."""
    gateway = site.gateway
    place = ["--data", str(gateway.directory / "data")] if gateway is site.manager else []
    line = ["dlq", *words, "-c", str(gateway.directory / "settings.yaml"), *place]
    if site.backend != "pymqi" and gateway.process is not None and gateway.process.poll() is None:
        called = CliRunner().invoke(main, line, env={**gateway.environ, **(environ or {})})
        return subprocess.CompletedProcess(line, called.exit_code, called.stdout, called.stderr)
    environ = {**os.environ, **gateway.environ, **(environ or {})}
    return gateway_template.run(*line, cwd=gateway.directory, env=environ)


def fill(site: Estate) -> list[Stored]:
    """Dead letters: so many for SHUT.Q (put inhibited), three for a queue that is not there."""
    site.application.clear(DEAD, "SHUT.Q", "ELSEWHERE.Q")
    site.mqsc("ALTER QLOCAL(SHUT.Q) PUT(DISABLED)")
    with site.device("dlq-device") as device:
        for number in range(COUNT):
            device.publish(f"shut/{number}", b"body %d" % number, 1 + number % 2)
        for number in range(3):
            device.publish("gone/such", b"lost %d" % number)
    site.mqsc("ALTER QLOCAL(SHUT.Q) PUT(ENABLED)")
    return wait(lambda: len(found := site.application.look(DEAD)) == COUNT + 3 and found)


def bodies(site: Estate, queue: str) -> list[bytes]:
    return [one.body.raw for one in site.application.messages(queue, 0)] if site.application.look(queue) else []


def test_everything_that_is_done_with_dead_letters(site: Estate, tmp_path: Path) -> None:
    letters = fill(site)
    listing = dlq(site, "list", "--json")
    summary = {(row["reason"], row["destination"]): row["count"] for row in listing["summary"]}
    assert summary == {(2051, "SHUT.Q"): COUNT, (2085, "NO.SUCH"): 3}
    assert [one["rule"] for one in listing["items"]] == ["shut"] * COUNT + ["gone"] * 3
    shown = dlq(site, "show", listing["items"][0]["token"], "--json")
    assert [one["structure"] for one in shown["headers"]] == ["MQDLH", "MQRFH2"]
    assert shown["body"]["text"] == "body 0"

    # dry run, then some, then the rest: whoever is interrupted goes on where he was
    assert "12 would be replayed" in dlq(site, "replay", "--destination", "SHUT.Q", "--dry-run")
    names = (("SHUT.*", COUNT), ("*.SUCH", 3), ("S*", COUNT), ("SHUT", 0), ("*", COUNT + 3))
    for generic, number in names[:1] if site.backend == "pymqi" else names:  # the binding has no part in names
        assert f"{number} would be replayed" in dlq(site, "replay", "--destination", generic, "--dry-run"), generic
        assert dlq(site, "list", "--destination", generic, "--json")["total"] == number
    assert len(site.application.look(DEAD)) == COUNT + 3
    assert dlq(site, "replay", "--destination", "SHUT.Q", "--limit", "5", "--json")["done"] == 5
    assert bodies(site, "SHUT.Q") == [b"body %d" % number for number in range(5)]
    begun = time.monotonic()
    assert dlq(site, "replay", "--reason", "2051", "--rate", "3", "--json")["done"] == COUNT - 5
    assert time.monotonic() - begun > 2 * (3 / 3)  # seven in three goes: two pauses of a second
    replayed = site.application.look("SHUT.Q")
    assert bodies(site, "SHUT.Q") == [b"body %d" % number for number in range(COUNT)]

    # the original descriptor, header and context: all but what says where it lies
    kept = ("msg_id", "correl_id", "user_identifier", "accounting_token", "appl_identity_data", "put_appl_type",
            "put_appl_name", "put_date", "put_time", "appl_origin_data", "persistence", "priority", "expiry", "report",
            "reply_to_q")  # fmt: skip
    for before, after in zip(letters, replayed, strict=False):
        was, now = mqmd.unpack(before.md), mqmd.unpack(after.md)
        assert [getattr(was, name) for name in kept] == [getattr(now, name) for name in kept]
        assert now.format == "MQHRF2"

    # elsewhere, and what cannot be replayed stays and is said
    [token, *_] = [one["token"] for one in dlq(site, "list", "--json")["items"]]
    assert dlq(site, "replay", "--token", token, "--to", "ELSEWHERE.Q", "--json")["done"] == 1
    assert bodies(site, "ELSEWHERE.Q") == [b"lost 0"]
    failed = dlq(site, "replay", "--all", "--json", code=1)
    assert (failed["done"], {one["reason"] for one in failed["failed"]}) == (0, {2085})
    failed = dlq(site, "replay", "--to", DEAD, "--json", code=1)
    assert (failed["done"], {one["reason"] for one in failed["failed"]}) == (0, {2141}), "it would lose its header"
    assert len(site.application.look(DEAD)) == 2

    # export removes nothing; purge removes what was chosen
    full = run(site, "export", "/dev/full")
    assert (full.returncode, "dead letters written" in full.stderr) == (3, False)
    file = tmp_path / "letters.jsonl"
    dlq(site, "export", str(file))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["body"]["text"] for line in lines] == ["lost 1", "lost 2"]
    assert [line["topic"] for line in lines] == ["gone/such"] * 2
    assert "2 would be removed" in dlq(site, "purge", "--reason", "2085", "--dry-run")
    assert "1 removed" in dlq(site, "purge", "--token", lines[0]["token"], "--yes")
    assert "1 removed" in dlq(site, "purge", "--all", "--yes")
    assert dlq(site, "list").strip() == "no dead letters"


def test_what_is_in_somebodys_unit_of_work_is_left_alone(site: Estate) -> None:
    if site.backend == "pymqi":
        pytest.skip("as with ibmmq")
    first = fill(site)[0]
    connection = site.application.connection
    assert connection.get(connection.input(DEAD), first.token, DEAD) is not None  # type: ignore[arg-type]
    try:
        done = dlq(site, "replay", "--destination", "SHUT.Q", "--json", code=1 if site.manager is site.gateway else 0)
        assert done["done"] == COUNT - 1
    finally:
        connection.session.back()
    assert dlq(site, "replay", "--destination", "SHUT.Q", "--json")["done"] == 1
    assert sorted(bodies(site, "SHUT.Q")) == sorted(b"body %d" % number for number in range(COUNT))


def test_without_a_running_gateway(site: Estate) -> None:
    """The store of the embedded queue manager is opened, IBM MQ connected to."""
    if site.backend == "pymqi":
        pytest.skip("as with ibmmq")
    fill(site)
    site.application.close()
    site.gateway.kill()
    try:
        listing = dlq(site, "list", "--json")
        assert listing["total"] == COUNT + 3
        assert dlq(site, "replay", "--destination", "SHUT.Q", "--json")["done"] == COUNT
        assert dlq(site, "purge", "--all", "--yes").strip().endswith("3 removed")
    finally:
        site.gateway.start()
        site.application = type(site.application)(site.where)
    assert bodies(site, "SHUT.Q") == [b"body %d" % number for number in range(COUNT)]

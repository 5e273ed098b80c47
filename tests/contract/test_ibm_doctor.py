"""`mqgate doctor` and start-up against a queue manager that lacks something: each thing named, with what to do."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import gateway_template
import mqi_clients
import pytest
from ibm_rig import STATE, served

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(240)]
ROOT = Path(__file__).parents[2]
QUEUES = "DEFINE QLOCAL(TELEMETRY) MAXMSGL(2000000)\nDEFINE QLOCAL(COMMANDS)\n"
MAPPING = """
version: 1
to_mq:
  - {name: up, topic: "up/#", queue: TELEMETRY}
to_mqtt:
  - {name: down, queue: COMMANDS, topic: "down/{usr.site}"}
"""
SETTINGS = """
listeners: [{name: plain, port: 0}]
admin: {port: 0}
queue_manager:
  ibm: {name: QM1, connection: "localhost(1414)", channel: C, user: app, password_file: pw, driver: %s,
        reconnect_from: 100ms, reconnect_to: 100ms}
mappings: [map.yaml]
"""


class Said(NamedTuple):
    """What a command answered."""

    code: int
    lines: dict[str, tuple[str, str]]
    """Subject to (state, text)."""
    output: str


Ask = Callable[..., Said]


@pytest.fixture
def doctor(tmp_path: Path) -> Ask:
    def asked(objects: str, *, driver: str = "ibmmq", password: str = "pw", mapping: str = MAPPING) -> Said:
        _write(tmp_path, driver, password)
        (tmp_path / "map.yaml").write_text(mapping)
        with served(None, tmp_path / "s", objects):
            done = _run(tmp_path, "doctor", "-c", "mqgate.yaml", "--json")
        found = {one["what"]: (one["state"], one["text"]) for one in json.loads(done.stdout)}
        return Said(done.returncode, found, done.stdout)

    return asked


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Ask]:
    def started(objects: str) -> Said:
        _write(tmp_path, "ibmmq", "pw")
        with served(None, tmp_path / "s", objects):
            done = _run(tmp_path, "run", "-c", "mqgate.yaml")
        return Said(done.returncode, {}, done.stdout + done.stderr)

    return started


def _write(folder: Path, driver: str, password: str) -> None:
    (folder / "mqgate.yaml").write_text(SETTINGS % driver)
    (folder / "map.yaml").write_text(MAPPING)
    (folder / "pw").write_text(f"{password}\n")
    (folder / "pw").chmod(0o600)


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = mqi_clients.program_environment(str(folder / "s"), *mqi_clients.BINDINGS)
    environment["PYTHONPATH"] += os.pathsep + str(ROOT)
    return gateway_template.run(*arguments, cwd=folder, env=environment)


@pytest.mark.parametrize("driver", ["ibmmq", "pymqi"])
def test_a_queue_manager_as_deploy_makes_it_is_well(driver: str, doctor: Ask) -> None:
    said = doctor(STATE + QUEUES, driver=driver)
    assert said.code == 0, said.output
    assert said.lines["queue manager QM1"][0] == "ok"


def test_without_the_queue_for_what_is_set_aside_it_is_advice(doctor: Ask) -> None:
    """Who comes from a release without it has to define it, and the gateway starts meanwhile."""
    said = doctor(STATE.replace("MQGATE.SET.ASIDE)", "OTHER)") + QUEUES)
    assert said.code == 0, said.output
    assert "MQGATE.SET.ASIDE" in said.output


LACKING = f"""{STATE.replace("MQGATE.STAGED)", "OTHER)")}{QUEUES}
DEFINE QLOCAL(T.SHORT) MAXMSGL(1000)
DEFINE QLOCAL(T.TIGHT) MAXMSGL(1048600)
DEFINE QLOCAL(T.CLOSED) PUT(DISABLED)
DEFINE QLOCAL(T.FORBIDDEN)
DEFINE QLOCAL(C.CLOSED) GET(DISABLED)
DEFINE QLOCAL(C.BACKOUT) BOTHRESH(3)
DEFINE QLOCAL(C.LOST) BOTHRESH(3) BOQNAME(C.NOWHERE)
DEFINE TOPIC(BARRED) TOPICSTR('barred')
DEFINE TOPIC(SECRET) TOPICSTR('secret')
ALTER QLOCAL(MQGATE.OUT) NOSHARE
ALTER QLOCAL(MQGATE.WILLS) MAXDEPTH(10)
ALTER QMGR MAXMSGL(100000) DEADQ(NO.LETTERS)
SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('app') AUTHADD(CONNECT,INQ)
SET AUTHREC PROFILE('**') OBJTYPE(QUEUE) PRINCIPAL('app') AUTHADD(PUT,GET,BROWSE,INQ)
SET AUTHREC PROFILE(T.FORBIDDEN) OBJTYPE(QUEUE) PRINCIPAL('app') AUTHADD(INQ)
"""
LACKS = {
    "MQGATE.STAGED": ("wrong", r"2085.*deploy/mq"),
    "MQGATE.OUT": ("wrong", r"NOSHARE.*SHARE"),
    "MQGATE.WILLS": ("missing", r"MAXDEPTH\(10\).*state\.mqsc"),
    "T.MISSING": ("wrong", r"map\.yaml:\d+: rule 'T.MISSING': .*2085.*correct the mapping"),
    "T.SHORT": ("wrong", "MAXMSGL to 1052672"),
    "T.TIGHT": ("missing", "MAXMSGL to 1052672"),
    "T.CLOSED": ("missing", r"PUT\(ENABLED\)"),
    "T.FORBIDDEN": ("wrong", r"2035.*authorities\.sh"),
    "C.MISSING": ("wrong", r"map\.yaml:\d+: rule 'C.MISSING': .*2085"),
    "C.CLOSED": ("missing", r"GET\(ENABLED\)"),
    "C.BACKOUT": ("missing", "no BOQNAME"),
    "C.NOWHERE": ("missing", "BOQNAME of C.LOST.*2085"),
    "topic://barred/line": ("wrong", r"2035.*authorities\.sh"),
    "subscription to secret/+": (
        "wrong",
        r"map\.yaml:\d+: rule 'listens': .*2035.*setmqaut -m QM1 .* -t topic .*\+sub",
    ),
    "NO.LETTERS": ("missing", "dead letters.*2085"),
    "queue manager": ("wrong", "ALTER QMGR MAXMSGL"),
}
RULES = "\n".join(
    ["version: 1", "to_mq:"]
    + [f"  - {{name: {name}, topic: {name}, queue: {name}}}" for name in LACKS if name.startswith("T.")]
    + ["  - {name: topics, topic: topics, mq_topic: barred/line}"]
    + ["to_mqtt:"]
    + [
        f"  - {{name: {name}, queue: {name}, topic: {name}}}"
        for name in ("C.MISSING", "C.CLOSED", "C.BACKOUT", "C.LOST")
    ]
    + ["  - {name: listens, mq_topic: secret/+}"]
)


def test_everything_that_is_lacking_is_named_at_once(doctor: Ask) -> None:
    said = doctor(LACKING, mapping=RULES)
    assert said.code == 1
    for subject, (state, text) in LACKS.items():
        assert said.lines[subject][0] == state, said.lines[subject]
        assert re.search(text, said.lines[subject][1], re.DOTALL), said.lines[subject]


def test_a_topic_that_may_not_be_subscribed_to_keeps_it_from_starting(tmp_path: Path) -> None:
    _write(tmp_path, "ibmmq", "pw")
    (tmp_path / "map.yaml").write_text('version: 1\nto_mqtt:\n  - {name: listens, mq_topic: "secret/+"}\n')
    allowed = "SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('app') AUTHADD(CONNECT,INQ)\n"
    allowed += "SET AUTHREC PROFILE('**') OBJTYPE(QUEUE) PRINCIPAL('app') AUTHADD(PUT,GET,BROWSE,INQ)\n"
    with served(None, tmp_path / "s", f"{STATE}\n{allowed}") as manager:
        done = _run(tmp_path, "run", "-c", "mqgate.yaml")
        assert not [one for one in manager.mqsc("DISPLAY SUB(*)").lines if "mqgate.look" in one]
    assert done.returncode == 1
    assert re.search(r"map\.yaml:3:1: rule 'listens': .*2035.*AUTHADD\(SUB,RESUME\)", done.stdout + done.stderr)


def test_a_wrong_password_says_so(doctor: Ask) -> None:
    said = doctor(STATE + QUEUES, password="guess")
    assert "2035" in said.lines["queue manager QM1"][1]
    assert said.code == 1


def test_a_queue_manager_that_is_not_there(tmp_path: Path) -> None:
    _write(tmp_path, "ibmmq", "pw")
    done = _run(tmp_path, "doctor", "-c", "mqgate.yaml")
    assert done.returncode == 1
    assert re.search(r"WRONG +queue manager QM1: .*2059.*not running or not reachable", done.stdout)


@pytest.mark.parametrize(
    ("objects", "text"),
    [
        (LACKING, r"T\.FORBIDDEN.*2035|MQGATE\.STAGED.*2085"),
        (STATE + QUEUES.replace("2000000", "1000"), "TELEMETRY takes 1000 bytes"),
    ],
    ids=["many", "MAXMSGL"],
)
def test_the_gateway_does_not_start_on_it(objects: str, text: str, start: Ask) -> None:
    said = start(objects)
    assert said.code in {1, 3}
    assert re.search(text, said.output, re.DOTALL), said.output

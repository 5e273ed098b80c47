"""deploy/mq/authorities.sh gives the gateway's user enough for everything it does, and nothing besides."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import mqi_clients
import pytest
from ibm_rig import HEAD, STATE, Rig, served

from gateway.ports.batch import Moves, Puts, Replace, Takes, Unit

pytestmark = pytest.mark.mqi
SCRIPT = Path(__file__).parents[2] / "deploy" / "mq" / "authorities.sh"
OBJECTS = f"{STATE}\n" + "\n".join(f"DEFINE QLOCAL({name})" for name in ("UP", "DOWN", "DOWN.BACKOUT", "FOREIGN"))
TOPICS = "\n".join(f"DEFINE TOPIC({name.upper()}) TOPICSTR('{name}')" for name in ("plant", "orders", "barred"))
GIVEN = ["UP", "topic:PLANT", "--", "DOWN", "DOWN.BACKOUT", "topic:ORDERS"]


def _records(*given: str) -> str:
    """The commands of the script as those of our own queue manager."""
    command = ["sh", str(SCRIPT), "QM1", "app", *given]
    environment = {"DRY_RUN": "1", "PATH": "/bin:/usr/bin"}
    printed = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    lines = []
    for line in printed.splitlines():
        found = re.fullmatch(r"setmqaut -m QM1 (?:-n (\S+) )?-t (\w+) -p app (.+)", line)
        assert found, line
        rights = ",".join(right.lstrip("+").upper() for right in found[3].split())
        profile = f"PROFILE('{found[1]}') " if found[1] else ""
        lines.append(f"SET AUTHREC {profile}OBJTYPE({found[2].upper()}) PRINCIPAL('app') AUTHADD({rights})")
    return "\n".join(lines)


@pytest.fixture(params=["ibmmq", "pymqi"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    mqi_clients.load_bindings()
    with served(None, tmp_path / "s", f"{OBJECTS}\n{TOPICS}\n{_records(*GIVEN)}"):
        made = Rig(request.param, str(tmp_path / "s"))
        yield made
        made.close()


def _puts(queue: str, key: bytes = b"") -> Puts:
    return Puts(queue, key=key, heads=[HEAD], bodies=[b"x"])


def test_everything_a_gateway_does_is_allowed(rig: Rig) -> None:
    manager = rig.queue_manager
    assert not [one for one in manager.examine(["UP"], ["DOWN", "topic://orders/#"], 1 << 20) if one.serious]
    staged, stored = _puts("MQGATE.STAGED", b"k"), _puts("MQGATE.OUT", b"k")
    for unit in (
        Unit(puts=[_puts("UP"), staged, stored, _puts("MQGATE.DEAD.LETTER"), _puts("topic://plant/line/1")]),
        Unit(replaces=[Replace("MQGATE.SESSIONS", b"k", b"state")]),
        Unit(puts=[_puts("DOWN.BACKOUT"), _puts("DOWN")]),
    ):
        assert not rig.commit(unit).failures
    moved = Unit(
        moves=[Moves("MQGATE.STAGED", b"k", list(staged.tokens), "UP")],
        takes=[Takes("MQGATE.OUT", b"k", list(stored.tokens))],
    )
    assert not rig.commit(moved).failures
    assert manager.depth("UP") == 2
    page = manager.fetch("DOWN", b"", 10)
    assert not rig.commit(Unit(takes=[Takes("DOWN", b"", [one.token for one in page])])).failures
    assert list(manager.load("MQGATE.SESSIONS"))
    assert manager.subscribe("authorities", "orders/new").queue == "MQGATE.SUBSCRIPTIONS"


@pytest.mark.parametrize(
    "unit",
    [
        Unit(puts=[_puts("FOREIGN")]),
        Unit(takes=[Takes("UP", b"", [b"m" * 24])]),
        Unit(puts=[_puts("topic://barred/x")]),
    ],
    ids=["putting elsewhere", "taking what it puts", "publishing elsewhere"],
)
def test_nothing_else_is(rig: Rig, unit: Unit) -> None:
    assert [failure.reason for failure in rig.commit(unit).failures] == [2035]

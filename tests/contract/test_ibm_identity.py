"""Whose message it is: the device's identity context where the gateway's user may set it, its own where it may not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import mqi_clients
import pytest
from ibm_rig import OBJECTS, BatchRig, EmbeddedRig, Rig, served

from gateway.mq import mqmd
from gateway.ports.batch import Puts, Unit

pytestmark = pytest.mark.mqi
EVERYTHING_BUT_SETID = "AUTHADD(CONNECT,INQ)", "AUTHADD(PUT,GET,BROWSE,INQ)"
OWN_ONLY = f"""{OBJECTS}
SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('app') {EVERYTHING_BUT_SETID[0]}
SET AUTHREC PROFILE('**') OBJTYPE(QUEUE) PRINCIPAL('app') {EVERYTHING_BUT_SETID[1]}
"""


def _head(**fields: str) -> bytes:
    return mqmd.build(persistence=1, **fields)


def _identities(rig: BatchRig) -> list[tuple[str, str]]:
    page = rig.queue_manager.fetch("APP.Q", b"", 10)
    return [
        (mqmd.text(one.md, mqmd.USER_IDENTIFIER), mqmd.text(one.md, mqmd.APPL_IDENTITY_DATA))
        for one in sorted(page, key=lambda one: one.data)
    ]


def _put(rig: BatchRig, *heads: bytes) -> None:
    puts = Puts("APP.Q", heads=list(heads), bodies=[b"%d" % number for number in range(len(heads))])
    assert not rig.commit(Unit(puts=[puts])).failures


@pytest.fixture(params=["embedded", "ibmmq", "pymqi"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BatchRig]:
    if request.param == "embedded":
        alone = EmbeddedRig(None)
        yield alone
        alone.close()
        return
    mqi_clients.load_bindings()
    with served(None, tmp_path / "mqi.sock"):
        made = Rig(request.param, str(tmp_path / "mqi.sock"))
        yield made
        made.close()


def test_each_message_of_a_batch_carries_its_own_device(rig: BatchRig) -> None:
    one, two = _head(user_identifier="alice", appl_identity_data="line 7"), _head(user_identifier="bob")
    _put(rig, one, one, two)
    assert _identities(rig) == [("alice", "line 7"), ("alice", "line 7"), ("bob", "")]


def test_application_data_alone_is_an_identity_too(rig: BatchRig) -> None:
    _put(rig, _head(appl_identity_data="batch 12"))
    assert [data for _, data in _identities(rig)] == ["batch 12"]


@pytest.mark.parametrize("driver", ["ibmmq", "pymqi"])
def test_a_message_that_names_nobody_is_the_gateways(driver: str, tmp_path: Path) -> None:
    mqi_clients.load_bindings()
    with served(None, tmp_path / "mqi.sock"):
        rig = Rig(driver, str(tmp_path / "mqi.sock"))
        _put(rig, _head(user_identifier="alice"), _head())
        assert _identities(rig) == [("alice", ""), ("app", "")]
        rig.close()


@pytest.mark.parametrize("driver", ["ibmmq", "pymqi"])
def test_without_the_authority_everything_arrives_as_the_gateways(driver: str, tmp_path: Path) -> None:
    """2035 for MQOO_SET_IDENTITY_CONTEXT: opened again without it; the device stands in the properties still."""
    mqi_clients.load_bindings()
    with served(None, tmp_path / "mqi.sock", OWN_ONLY):
        rig = Rig(driver, str(tmp_path / "mqi.sock"))
        _put(rig, _head(user_identifier="alice", appl_identity_data="line 7"), _head(user_identifier="bob"))
        assert _identities(rig) == [("app", ""), ("app", "")]
        rig.close()


@pytest.mark.parametrize("driver", ["ibmmq", "pymqi"])
def test_an_authority_that_is_granted_counts_from_the_next_opening_on(driver: str, tmp_path: Path) -> None:
    mqi_clients.load_bindings()
    with served(None, tmp_path / "mqi.sock", OWN_ONLY) as queue_manager:
        rig = Rig(driver, str(tmp_path / "mqi.sock"))
        _put(rig, _head(user_identifier="alice"))
        assert queue_manager.mqsc("SET AUTHREC PROFILE('**') OBJTYPE(QUEUE) PRINCIPAL('app') AUTHADD(SETID)").ok
        for worker in rig.queue_manager._workers:
            assert worker._connection is not None
            worker._connection.forget_objects()  # what a queue that was made anew brings about
        _put(rig, _head(user_identifier="alice"))
        assert sorted(_identities(rig)) == [("alice", ""), ("app", "")]
        rig.close()

"""gateway.queue_manager.inspection: what is reported about a queue that does not exist."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from embedded_rig import MqiRig, md, refused

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.ports.batch import Outcome, Replace, Takes, Unit
from gateway.ports.inspection import PAGE_BYTES
from gateway.queue_manager.descriptor import Descriptor
from gateway.queue_manager.inspection import Inspection
from gateway.queue_manager.journal import finder
from gateway.queue_manager.store.unit import Message


@pytest.mark.parametrize(
    ("name", "said"),
    [("plant.in", "there is no queue 'plant.in'; 'PLANT.IN' is one"), ("PLANT.OUT", "there is no queue 'PLANT.OUT'")],
)
def test_who_writes_a_name_in_small_letters_is_told_the_queue_that_is_meant(name: str, said: str) -> None:
    rig = MqiRig(None, "DEFINE QLOCAL(PLANT.IN)")
    with pytest.raises(MQError) as raised:
        Inspection(rig.queue_manager).queue(name)
    assert raised.value.reason == 2085
    assert said in str(raised.value)
    assert (" is one" in str(raised.value)) == (" is one" in said)
    rig.queue_manager.close()


def fetched(store: Any, monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """Returns what is fetched from a store from now on; nothing is loaded completely."""
    found: list[Message] = []
    whole = store.fetch

    def counted(*given: Any, **named: Any) -> list[Message]:
        messages: list[Message] = whole(*given, **named)
        found.extend(messages)
        return messages

    monkeypatch.setattr(store, "fetch", counted)
    monkeypatch.setattr(store, "load", lambda queue: pytest.fail(f"all of {queue} is loaded"))
    return found


@pytest.mark.parametrize("journal", [True, False])
def test_a_page_of_a_queue_with_many_keys_reads_a_page(
    journal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = MqiRig(tmp_path if journal else None, "DEFINE QLOCAL(STATE)")
    inspection = Inspection(rig.queue_manager)
    keys = [number.to_bytes(24, "big") for number in range(500)]
    inspection.commit(Unit(replaces=[Replace("STATE", key, b"of %d" % at) for at, key in enumerate(keys)]))
    found = fetched(rig.queue_manager.core.store, monkeypatch)
    page = inspection.browse("STATE", 10)
    assert [seen.data for seen in page] == [b"of %d" % number for number in range(10)]
    assert len(found) <= 10
    long = [Replace("STATE", key, bytes(PAGE_BYTES // 4)) for key in keys[:20]]
    inspection.commit(Unit(replaces=long))
    assert len(inspection.browse("STATE", 20)) <= 5, "no more bytes than a page has"
    rig.queue_manager.close()


@pytest.mark.parametrize("journal", [False, True])
def test_the_depth_of_a_queue_counts_messages_under_whatever_keys(journal: bool, tmp_path: Path) -> None:
    rig = MqiRig(tmp_path if journal else None, "DEFINE QLOCAL(STATE)")
    inspection = Inspection(rig.queue_manager)
    keys = [number.to_bytes(24, "big") for number in range(3)]
    inspection.commit(Unit(replaces=[Replace("STATE", key, b"x") for key in keys]))
    row = inspection.queue("STATE")
    assert (row.depth, row.attributes["CURDEPTH"]) == (3, "3")
    inspection.commit(Unit(replaces=[Replace("STATE", keys[0], None), Replace("STATE", keys[1], b"anew")]))
    assert inspection.queue("STATE").depth == len(inspection.browse("STATE", 10)) == 2
    rig.queue_manager.close()


def test_the_age_of_a_queue_with_many_keys_is_that_of_its_oldest_message(tmp_path: Path) -> None:
    rig = MqiRig(tmp_path, "DEFINE QLOCAL(STATE)")
    inspection, store = Inspection(rig.queue_manager), rig.queue_manager.core.store
    begun = rig.queue_manager.core.now()
    for number in range(5):
        inspection.commit(Unit(replaces=[Replace("STATE", bytes(23) + bytes((number,)), b"x")]))
        rig.scheduler.advance(10)
    assert store.oldest("STATE") == pytest.approx(begun * 1e6)
    inspection.commit(Unit(replaces=[Replace("STATE", bytes(24), b"anew")]))
    assert store.oldest("STATE") == pytest.approx((begun + 10) * 1e6)
    rig.queue_manager.close()


def test_what_messages_are_found_by_is_made_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search for a message from the page looks at every queue, and a deep one would keep everybody waiting."""
    monkeypatch.setattr(finder, "PART", 3)
    rig = MqiRig(tmp_path, "DEFINE QLOCAL(A)")
    for number in range(10):
        rig.put("A", b"%d" % number, descriptor=md(msg_id=b"%024d" % number))
    inspection, steps = Inspection(rig.queue_manager), 1
    while not inspection.prepare_find("A"):
        steps += 1
    assert steps == 4
    assert [seen.data for seen in inspection.find("A", msg_id=b"%024d" % 7)] == [b"7"]
    rig.queue_manager.close()


def test_a_message_that_an_operator_gets_is_confirmed_as_delivered_and_one_he_clears_is_not(tmp_path: Path) -> None:
    """`mqgate queue get` reads a message and then removes it: a sender who asked for a COD did not get one."""
    rig = MqiRig(tmp_path, "DEFINE QLOCAL(A)\nDEFINE QLOCAL(REPORTS)")
    inspection = Inspection(rig.queue_manager)
    asks = md(report=mq.MQRO_COD | mq.MQRO_PASS_CORREL_ID, reply_to_q=b"REPORTS", correl_id=b"c" * 24)
    for _ in range(3):
        rig.put("A", b"text", descriptor=asks)
    rig.put("A", b"asks for nothing")
    first, second, third, quiet = (seen.token for seen in inspection.browse("A"))
    rig.get(rig.open("A"), options=mq.MQGMO_SYNCPOINT)
    assert inspection.remove("A", [first, second, quiet]) == 2, "a program has the first"
    (report,) = inspection.browse("REPORTS")
    assert (Descriptor(report.md).feedback, Descriptor(report.md).correl_id) == (mq.MQFB_COD, b"c" * 24)
    assert inspection.remove("A", [second]) == 0
    assert sum(inspection.clear("A")) == 1
    assert (rig.depth("A"), rig.depth("REPORTS")) == (1, 1), third
    rig.queue_manager.close()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("AL", "'AL' is an alias, and has no messages of its own: those put there are on 'A'"),
        ("FAR", "'FAR' is a remote queue, and has no messages of its own"),
    ],
)
def test_who_looks_for_messages_under_another_name_is_told_where_they_are(name: str, said: str) -> None:
    """It reported that there is no such local queue, although `mqgate queue list` shows it and `put` puts to it."""
    rig = MqiRig(None, "DEFINE QLOCAL(A)\nDEFINE QALIAS(AL) TARGET(A)\nDEFINE QREMOTE(FAR) RNAME(Q) RQMNAME(QM2)")
    with pytest.raises(MQError) as raised:
        Inspection(rig.queue_manager).browse(name)
    assert raised.value.reason == mq.MQRC_OPTION_NOT_VALID_FOR_TYPE
    assert said in str(raised.value)
    rig.queue_manager.close()


@pytest.mark.parametrize(
    "act",
    [
        lambda view, token: view.browse("A"),
        lambda view, token: view.message("A", token),
        lambda view, token: view.find("A", msg_id=b"m" * 24),
        lambda view, token: view.remove("A", [token]),
        lambda view, token: raised_by(view.commit(Unit(takes=[Takes("A", b"", [token])]))),
    ],
)
def test_nothing_is_got_from_a_queue_with_get_disabled(act: Callable[[Inspection, int], object]) -> None:
    """As in IBM MQ, where browsing counts as getting (2016); clearing does not."""
    rig = MqiRig(None, "DEFINE QLOCAL(A)")
    rig.put("A", b"x")
    view = Inspection(rig.queue_manager)
    [seen] = view.browse("A")
    rig.mqsc("ALTER QLOCAL(A) GET(DISABLED)")
    with refused(2016):
        act(view, seen.token)
    assert rig.depth("A") == 1
    assert view.queue("A").depth == 1
    assert sum(view.clear("A")) == 1
    rig.queue_manager.close()


def raised_by(outcome: Outcome) -> None:
    for failure in outcome.failures:
        raise MQError(failure.reason, failure.text)

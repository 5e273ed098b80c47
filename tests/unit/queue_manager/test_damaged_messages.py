"""A frame that is damaged while the queue manager runs: its message is named, the others are shown, and nobody hears of
a full disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from embedded_rig import SMALL, md
from schedulers import ManualScheduler

from gateway.app.api.dead_letters import DeadLetterViews
from gateway.app.api.queues import QueueViews
from gateway.app.api.set_aside import OFFLINE
from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.mq import pcf
from gateway.net.calls import OPERATOR, Call
from gateway.ports.batch import Moves, Puts, Takes, Unit
from gateway.ports.mqi import GetOptions, ObjectDescriptor
from gateway.ports.state_queues import COMMANDS
from gateway.queue_manager.batch import damage as damage_of_batches
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.inspection import Inspection
from gateway.queue_manager.journal import reader

BODIES = [number * 100 for number in (b"1", b"2", b"3")]
TOLD = "docs/runbooks/damaged-frame.md"


@pytest.fixture
def queue_manager(tmp_path: Path) -> Iterator[EmbeddedQueueManager]:
    """Messages `1`, `2` and `3`, each in a frame of its own, of which `2` is damaged; nothing is kept in memory."""
    opened = EmbeddedQueueManager.open(
        tmp_path, "QM1", ManualScheduler(), "DEFINE QLOCAL(Q)\nDEFINE QLOCAL(TO)",
        store_options=replace(SMALL, cache_bytes=0),
    )  # fmt: skip
    for body in BODIES:
        done = Inspection(opened).commit(Unit([Puts("Q", persistent=True, heads=[md()], bodies=[body])]))
        assert not done.failures
    damage(tmp_path, BODIES[1])
    yield opened
    opened.close()


def damage(directory: Path, what: bytes) -> None:
    for path in directory.glob("*"):
        at = path.read_bytes().find(what) if path.is_file() else -1
        if at >= 0:
            with path.open("r+b") as file:
                file.seek(at)
                file.write(b"x")


def test_the_others_are_shown_and_it_is_named(queue_manager: EmbeddedQueueManager) -> None:
    inspection = Inspection(queue_manager)
    first, second, third = inspection.browse("Q")
    assert (first.data, second.data, third.data) == (BODIES[0], b"", BODIES[2])
    assert not first.damaged
    assert "damaged at byte" in second.damaged
    assert TOLD in second.damaged
    assert [one.token for one in inspection.browse("Q", 1, first.token)] == [second.token]
    with pytest.raises(MQError, match=TOLD) as raised:
        inspection.message("Q", second.token)
    assert raised.value.reason == mq.MQRC_OBJECT_DAMAGED


def test_what_the_api_says(queue_manager: EmbeddedQueueManager) -> None:
    views = QueueViews(Inspection(queue_manager))
    listed = views.browse(Call({"queue": "Q"}, {"decoded": "true"}, {}, OPERATOR))[1]["items"]
    assert [one["body"]["length"] for one in listed] == [100, 0, 100]
    assert [one["locked"] for one in listed] == [False, True, False]
    assert TOLD in listed[1]["error"]
    assert TOLD in listed[1]["preview"]
    moved = views.move(Call({"queue": "Q"}, {}, {"to": "TO"}, OPERATOR))[1]
    assert (moved["done"], [one["reason"] for one in moved["failed"]]) == (2, [mq.MQRC_OBJECT_DAMAGED])
    depths = {row["name"]: row["depth"] for row in views.listing(Call({}, {}, {}, OPERATOR))[1]["items"]}
    assert (depths["Q"], depths["TO"]) == (1, 2)


def test_it_can_be_removed(queue_manager: EmbeddedQueueManager) -> None:
    inspection = Inspection(queue_manager)
    tokens = [one.token for one in inspection.browse("Q")]
    assert inspection.remove("Q", tokens[:1]) == 1
    assert inspection.oldest("Q") is None
    assert not queue_manager.mqsc("DISPLAY QSTATUS(Q) MSGAGE").failed
    assert inspection.remove("Q", tokens[1:2]) == 1
    assert [one.data for one in inspection.browse("Q")] == BODIES[2:]


def test_a_get_is_told_that_it_is_damaged(queue_manager: EmbeddedQueueManager) -> None:
    connection = queue_manager.connect(application="tests", user="ana")
    handle = connection.open(ObjectDescriptor("Q"), mq.MQOO_INPUT_SHARED).handle
    assert connection.get(handle, md(), GetOptions(mq.MQGMO_NO_SYNCPOINT), 1000).data == BODIES[0]
    answers: list[object] = []
    connection.wait(handle, md(), GetOptions(mq.MQGMO_NO_SYNCPOINT), 1000, None, answers.append)
    (answer,) = answers
    assert isinstance(answer, MQError)
    assert answer.reason == mq.MQRC_OBJECT_DAMAGED


def test_who_reads_for_devices_gets_the_others_and_it_is_told_of_once(queue_manager: EmbeddedQueueManager) -> None:
    for limit in (1, 2, 100):
        assert queue_manager.fetch_page("Q", b"", 100) is None
        found = queue_manager.fetch("Q", b"", limit)
        assert [one.data for one in found] == [BODIES[0], BODIES[2]][:limit]
    assert queue_manager.fetch("Q", b"", 100, found[-1].token) == []
    ((queue, why), tokens), *others = queue_manager.damaged().items()
    assert (queue, len(tokens), others) == ("Q", 1, [])
    assert "damaged at byte" in why
    queue_manager.fetch("Q", b"", 100)
    assert not queue_manager.damaged()
    queue_manager.release("Q")
    taken = Inspection(queue_manager).commit(Unit(takes=[Takes("Q", b"", [one.token for one in found])]))
    assert not taken.failures
    assert queue_manager.depth("Q") == 1


def test_what_is_damaged_is_passed_at_once_when_it_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand took a tenth of a second, again for each who asked."""
    opened = EmbeddedQueueManager.open(
        tmp_path, "QM1", ManualScheduler(), "DEFINE QLOCAL(Q)", store_options=replace(SMALL, cache_bytes=0)
    )
    elapsed = [0.0]
    monkeypatch.setattr(damage_of_batches, "monotonic", lambda: elapsed[0])
    with closing(opened):
        put(opened, md(), b"first")
        for _ in range(10):
            put(opened, md(), b"damaged")
        for _ in range(10):
            damage(tmp_path, b"damaged")
        put(opened, md(), b"whole")
        asked = list[int | None]()
        fetch = opened.core.store.fetch_around_damage

        def counted(queue: str, key: bytes, limit: int, after: int | None, seconds: float) -> object:
            asked.append(after)
            return fetch(queue, key, limit, after, seconds)

        monkeypatch.setattr(opened.core.store, "fetch_around_damage", counted)

        def found(limit: int, after: int | None = None) -> list[bytes]:
            asked.clear()
            return [one.body for one in opened.core.damage.fetch("Q", b"", limit, after)]

        (first,) = opened.core.damage.fetch("Q", b"", 1)
        assert found(2, first.token) == [b"whole"]
        assert len(asked) == 6
        assert (found(2, first.token), found(2)) == ([b"whole"], [b"first"])
        Inspection(opened).remove("Q", [first.token])
        assert (found(2), len(asked)) == ([b"whole"], 1)
        above = Puts("Q", "", priority=9, persistent=True, heads=[md(priority=9)], bodies=[b"before"])
        assert not Inspection(opened).commit(Unit([above])).failures
        assert found(2) == [b"before"]
        put(opened, md(), b"behind")
        Inspection(opened).remove("Q", [one.token for one in opened.core.damage.fetch("Q", b"", 1)])
        assert (found(3), len(asked)) == ([b"whole", b"behind"], 1)
        elapsed[0] += 60.0
        assert found(2) == [b"whole", b"behind"]
        assert len(asked) == 6


def test_what_was_damaged_and_is_gone_is_forgotten(queue_manager: EmbeddedQueueManager) -> None:
    damaged, inspection = queue_manager.core.damage, Inspection(queue_manager)
    queue_manager.fetch("Q", b"", 100)
    assert queue_manager.damaged()
    assert damaged._known
    queue_manager.release("Q")
    inspection.remove("Q", [one.token for one in inspection.browse("Q")])
    assert not queue_manager.damaged()
    assert not damaged._known


def test_of_many_keys_some_are_looked_at_each_time(
    queue_manager: EmbeddedQueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty thousand sessions in a file that is damaged kept everybody waiting for a second, each second."""
    damaged, inspection = queue_manager.core.damage, Inspection(queue_manager)
    monkeypatch.setattr(damage_of_batches, "LOOKED_AT", 2)
    keys = [b"0", b"1", b"2", b"3"]
    puts = [Puts("Q", key=key, heads=[md()], bodies=[b"lost"]) for key in keys]
    assert not inspection.commit(Unit(puts)).failures
    damage(queue_manager.core.store.path, b"lost")
    assert not [one for key in keys for one in queue_manager.fetch("Q", key, 1)]
    assert len(queue_manager.damaged()) == 1
    assert not inspection.commit(Unit(takes=[Takes("Q", b"3", list(puts[3].tokens))])).failures
    assert not queue_manager.damaged()
    assert {key for _, key in damaged._known} == {b"0", b"1", b"2"}


def test_what_may_leave_in_its_order_alone_is_got_up_to_it(queue_manager: EmbeddedQueueManager) -> None:
    queue_manager.core.damage.in_order.add("Q")
    (first,) = queue_manager.fetch("Q", b"", 100)
    assert first.data == BODIES[0]
    assert "damaged at byte" in queue_manager.core.damage.stops("Q", b"")
    assert queue_manager.core.damage.stops("Q", b"") == ""
    assert queue_manager.fetch("Q", b"", 100, first.token) == []
    assert "damaged at byte" in queue_manager.core.damage.stops("Q", b"")


def test_a_group_of_which_a_part_is_damaged_is_not_whole_and_holds_up_nothing(tmp_path: Path) -> None:
    with closing(
        EmbeddedQueueManager.open(
            tmp_path, "QM1", ManualScheduler(), "DEFINE QLOCAL(Q)", store_options=replace(SMALL, cache_bytes=0)
        )
    ) as queue_manager:
        queue_manager.gather("Q", groups=True)
        for at, body in enumerate(BODIES, 1):
            flags = mq.MQMF_LAST_MSG_IN_GROUP if at == len(BODIES) else mq.MQMF_MSG_IN_GROUP
            head = md(group_id=b"G" * 24, sequence=at, flags=flags, version=2)
            put(queue_manager, head, body)
        put(queue_manager, md(), b"alone")
        damage(tmp_path, BODIES[1])
        for _ in range(2):
            assert [one.data for one in queue_manager.fetch("Q", b"", 100)] == [b"alone"]
        assert queue_manager.incomplete("Q").number == 1
        assert len(queue_manager.damaged()) == 1


def test_the_others_expire(tmp_path: Path) -> None:
    scheduler = ManualScheduler()
    with closing(
        EmbeddedQueueManager.open(
            tmp_path, "QM1", scheduler, "DEFINE QLOCAL(Q)", store_options=replace(SMALL, cache_bytes=0)
        )
    ) as queue_manager:
        for body in BODIES:
            put(queue_manager, md(expiry=10), body)
        damage(tmp_path, BODIES[1])
        for _ in range(10):
            scheduler.advance(60)
        assert queue_manager.depth("Q") == 1


def test_the_others_are_got_by_their_identifiers(queue_manager: EmbeddedQueueManager) -> None:
    put(queue_manager, md(correl_id=b"C" * 24), b"reply")
    connection = queue_manager.connect(application="tests", user="ana")
    handle = connection.open(ObjectDescriptor("Q"), mq.MQOO_INPUT_SHARED).handle
    options = GetOptions(mq.MQGMO_NO_SYNCPOINT, match=mq.MQMO_MATCH_CORREL_ID)
    assert connection.get(handle, md(correl_id=b"C" * 24), options, 1000).data == b"reply"


def test_a_queue_with_one_is_deleted(queue_manager: EmbeddedQueueManager) -> None:
    queue_manager.mqsc("DEFINE QMODEL(M) DEFTYPE(TEMPDYN)")
    connection = queue_manager.connect(application="tests", user="ana")
    model = ObjectDescriptor("M", dynamic_name="D")
    opened = connection.open(model, mq.MQOO_INPUT_SHARED)
    inspection = Inspection(queue_manager)
    local = queue_manager.core.queues[model.name]
    tokens = [one.token for one in inspection.browse("Q")]
    moved = inspection.commit(Unit(moves=[Moves("Q", b"", tokens, local.name)]))
    assert not moved.failures
    connection.close(opened.handle, mq.MQCO_DELETE_PURGE)
    assert local.name not in queue_manager.core.queues


def test_what_has_to_be_written_again_elsewhere_is_refused_if_it_cannot_be_read(
    queue_manager: EmbeddedQueueManager,
) -> None:
    queue_manager.mqsc("ALTER QLOCAL(TO) STREAMQ(COPY)\nDEFINE QLOCAL(COPY)")
    inspection = Inspection(queue_manager)
    tokens = [one.token for one in inspection.browse("Q")]
    (failure,) = inspection.commit(Unit(moves=[Moves("Q", b"", tokens, "TO")])).failures
    assert failure.reason == mq.MQRC_OBJECT_DAMAGED
    assert not inspection.commit(Unit(moves=[Moves("Q", b"", tokens[::2], "TO")])).failures
    assert (queue_manager.depth("Q"), queue_manager.depth("TO"), queue_manager.depth("COPY")) == (1, 2, 2)


def test_a_damaged_message_is_moved_beside_searches_and_can_be_taken(queue_manager: EmbeddedQueueManager) -> None:
    inspection = Inspection(queue_manager)
    assert inspection.find("TO", correl_id=b"C" * 24) == []  # from now on identifiers of what comes there are noted
    tokens = [one.token for one in inspection.browse("Q")]
    assert not inspection.commit(Unit(moves=[Moves("Q", b"", tokens, "TO")])).failures
    assert queue_manager.depth("TO") == 3
    tokens = [one.token for one in inspection.browse("TO")]
    assert not inspection.commit(Unit(takes=[Takes("TO", b"", tokens)])).failures
    assert queue_manager.depth("TO") == 0


def test_a_damaged_dead_letter_is_purged_by_its_token_and_not_replayed(queue_manager: EmbeddedQueueManager) -> None:
    views = DeadLetterViews(Inspection(queue_manager), lambda: "Q", lambda *_: None, lambda *_: None, OFFLINE)
    token = str(Inspection(queue_manager).browse("Q")[1].token)
    replayed = views.replay(Call({}, {}, {"tokens": [token], "to": "TO"}, OPERATOR))[1]
    assert (replayed["done"], [one["reason"] for one in replayed["failed"]]) == (0, [mq.MQRC_OBJECT_DAMAGED])
    assert views.purge(Call({}, {}, {"tokens": [token]}, OPERATOR))[1]["done"] == 1
    assert queue_manager.depth("Q") == 2


def test_the_command_server_goes_on_behind_a_damaged_command(
    queue_manager: EmbeddedQueueManager, tmp_path: Path
) -> None:
    queue_manager.mqsc(f"ALTER QLOCAL({COMMANDS}) GET(DISABLED)")
    commands = [ping(bytes([65 + at]) * 24) for at in range(3)]
    for head, data in commands:
        put(queue_manager, head, data, queue=COMMANDS)
    damage(tmp_path, commands[0][1])
    queue_manager.mqsc(f"ALTER QLOCAL({COMMANDS}) GET(ENABLED)")
    put(queue_manager, *ping(b"D" * 24), queue=COMMANDS)
    assert queue_manager.depth("TO") == 3
    assert queue_manager.depth(COMMANDS) == 1
    ((queue, _),) = queue_manager.damaged()
    assert queue == COMMANDS


def ping(correl_id: bytes) -> tuple[bytes, bytes]:
    """A command that is answered on TO."""
    head = md(type=mq.MQMT_REQUEST, format=mq.MQFMT_ADMIN, reply_to_q=b"TO", correl_id=correl_id)
    return head, pcf.build(pcf.Message(mq.MQCFT_COMMAND, mq.MQCMD_PING_Q_MGR, []))


def test_records_that_can_be_read_are_loaded(queue_manager: EmbeddedQueueManager, tmp_path: Path) -> None:
    for number in (b"4", b"5", b"6"):
        record = Puts("Q", "", number, persistent=True, heads=[md()], bodies=[number * 100])
        assert not Inspection(queue_manager).commit(Unit([record])).failures
    damage(tmp_path, b"5" * 100)
    assert [(key, one.data) for key, one in queue_manager.load("Q")] == [
        (b"", BODIES[0]), (b"", BODIES[2]), (b"4", b"4" * 100), (b"6", b"6" * 100)
    ]  # fmt: skip
    assert sum(map(len, queue_manager.damaged().values())) == 2


def put(queue_manager: EmbeddedQueueManager, head: bytes, body: bytes, queue: str = "Q") -> None:
    assert (
        not Inspection(queue_manager).commit(Unit([Puts(queue, persistent=True, heads=[head], bodies=[body])])).failures
    )


def test_much_damage_is_passed_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing disk takes a second for each read: all of them were tried in one turn, and again a minute later."""
    opened = EmbeddedQueueManager.open(
        tmp_path, "QM1", ManualScheduler(), "DEFINE QLOCAL(Q)", store_options=replace(SMALL, cache_bytes=0)
    )
    for body in (*[b"damaged"] * 40, b"whole"):
        Inspection(opened).commit(Unit([Puts("Q", persistent=True, heads=[md()], bodies=[body])]))
    for _ in range(40):
        damage(tmp_path, b"damaged")
    elapsed, pread, preadv = [0.0], os.pread, os.preadv

    def slow(read: Callable[..., object]) -> Callable[..., object]:
        def read_slowly(*about: object) -> object:
            elapsed[0] += 1.0
            return read(*about)

        return read_slowly

    monkeypatch.setattr(os, "pread", slow(pread))
    monkeypatch.setattr(os, "preadv", slow(preadv))
    for module in (damage_of_batches, reader):
        monkeypatch.setattr(module, "monotonic", lambda: elapsed[0])
    turns, found = list[float](), list[bytes]()

    def arrived() -> None:
        began = elapsed[0]
        with suppress(MQError):
            found.extend(one.data for one in opened.fetch("Q", b"", 100))
        turns.append(elapsed[0] - began)

    with closing(opened):
        opened.consume("Q", arrived)
        opened.core.scheduler.advance(10)
        assert (found, sum(map(len, opened.damaged().values()))) == ([b"whole"], 40)
    assert max(turns) <= 4

"""The batch port of the embedded queue manager, over memory and over the journal."""

from __future__ import annotations

import mq_builders
import pytest
from embedded_rig import SMALL, md, refused
from schedulers import ManualScheduler

from gateway.mq import constants as mq
from gateway.mq import situations
from gateway.ports.batch import Listing, Moves, Moving, Outcome, Puts, Replace, Takes, Token, Unit
from gateway.ports.mqi import GetOptions, ObjectDescriptor
from gateway.queue_manager.batch import translation
from gateway.queue_manager.batch.commit import Submission
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.objects import name_resolution


class Rig:
    def __init__(self, path, objects=""):
        self.path = path
        self.scheduler = ManualScheduler()
        self.queue_manager = EmbeddedQueueManager.open(path, "QM1", self.scheduler, objects, store_options=SMALL)

    def commit(self, unit):
        outcomes = []
        self.queue_manager.submit(unit, lambda _unit, outcome: outcomes.append(outcome))
        self.scheduler.run_until(lambda: bool(outcomes))
        assert len(outcomes) == 1
        self.scheduler.run()
        return outcomes[0]

    def restart(self):
        self.queue_manager.close()
        self.queue_manager = EmbeddedQueueManager.open(self.path, "QM1", self.scheduler, store_options=SMALL)


@pytest.fixture(params=["memory", "journal"])
def rig(request, tmp_path):
    made = Rig(
        None if request.param == "memory" else tmp_path / "data", "DEFINE QLOCAL(A)\nDEFINE QLOCAL(B) MAXDEPTH(3)"
    )
    yield made
    made.queue_manager.close()


def puts(queue, *texts, **others):
    return Puts(queue, heads=[md()] * len(texts), bodies=[text.encode() for text in texts], **others)


def test_put_is_fetched_in_order_and_leaves_by_take(rig):
    assert rig.commit(Unit(puts=[puts("A", "1", "2", "3")])) == Outcome()
    found = rig.queue_manager.fetch("A", b"", 10)
    assert [one.data for one in found] == [b"1", b"2", b"3"]
    assert found[0].md[48:64] == b"AMQ QM1         "
    assert len({one.md[48:72] for one in found}) == 3
    assert rig.queue_manager.depth("A") == 3
    assert rig.commit(Unit(takes=[Takes("A", b"", [one.token for one in found[:2]])])) == Outcome()
    assert [one.data for one in rig.queue_manager.fetch("A", b"", 10)] == [b"3"]


def test_what_is_there_is_known_without_being_read(rig):
    assert isinstance(rig.queue_manager, Listing)
    state = "MQGATE.OUT"
    rows = [puts(state, "1", "2", key=b"k"), puts(state, "3", key=b"k", priority=9), puts(state, "4", key=b"other")]
    assert rig.commit(Unit(puts=rows)) == Outcome()
    tokens = [one.token for one in rig.queue_manager.fetch(state, b"k", 10)]
    assert list(rig.queue_manager.tokens(state, b"k")) == tokens
    assert len(tokens) == 3
    assert rig.commit(Unit(takes=[Takes(state, b"k", tokens[:1])])) == Outcome()
    assert list(rig.queue_manager.tokens(state, b"k")) == tokens[1:]
    assert not rig.queue_manager.tokens(state, b"nobody")


def test_a_refused_put_refuses_its_unit_alone(rig):
    outcome = rig.commit(Unit(puts=[puts("A", "1"), puts("B", "1", "2", "3", "4"), puts("NONE", "x")]))
    assert [(one.puts, one.reason) for one in outcome.failures] == [(1, 2053), (2, 2085)]
    assert rig.queue_manager.depth("A") == 0
    assert rig.commit(Unit(puts=[puts("B", "1", "2", "3")])) == Outcome()


def test_a_unit_that_is_refused_leaves_nothing_in_the_frame_of_others(rig):
    staged = "MQGATE.STAGED"
    rig.commit(Unit([puts(staged, "1", "2", key=b"k")], replaces=[Replace("MQGATE.SESSIONS", b"k", b"before")]))
    one, two = (found.token for found in rig.queue_manager.fetch(staged, b"k", 5))
    refused_unit = Unit(
        puts=[puts("A", "x"), puts("topic://news", "x", retain=True), puts("B", "1", "2", "3", "4")],
        moves=[Moves(staged, b"k", [two], "A")],
        takes=[Takes(staged, b"k", [one])],
        replaces=[Replace("MQGATE.SESSIONS", b"k", b"x")],
    )
    units = [Unit(puts=[puts("A", "first")]), refused_unit, Unit([puts("A", "last")], [Takes(staged, b"k", [one])])]
    outcomes = []
    committer = rig.queue_manager.core.committer
    frames = committer.frames
    with rig.queue_manager.core.entered():
        for unit in units[:2]:  # as if they had come while a frame was written
            committer._submissions.append(Submission(unit, lambda _unit, outcome: outcomes.append(outcome)))
        committer.submit(units[2], lambda _unit, outcome: outcomes.append(outcome))
    rig.scheduler.run_until(lambda: len(outcomes) == 3)
    assert committer.frames == frames + 1
    assert [[(one.puts, one.reason) for one in outcome.failures] for outcome in outcomes] == [[], [(2, 2053)], []]
    assert [found.data for found in rig.queue_manager.fetch("A", b"", 5)] == [b"first", b"last"]
    assert [found.data for found in rig.queue_manager.fetch(staged, b"k", 5)] == [b"2"]
    assert not [name for name in rig.queue_manager.core.store.state() if b"news" in name]
    assert [found.data for _, found in rig.queue_manager.load("MQGATE.SESSIONS")] == [b"before"]
    assert rig.commit(Unit(puts=[puts("B", "1", "2", "3")])) == Outcome()


def test_a_unit_that_is_refused_leaves_nothing_among_the_messages_of_others_on_a_transmission_queue(rig):
    rig.queue_manager.mqsc(
        "DEFINE QLOCAL(X) USAGE(XMITQ)\nDEFINE QREMOTE(FAR) RNAME(Q) RQMNAME(QM2) XMITQ(X)\n"
        "DEFINE QLOCAL(COPIES)\nDEFINE QLOCAL(SOURCE) STREAMQ(COPIES)"
    )
    outcomes = []
    committer = rig.queue_manager.core.committer
    full = puts("B", "1", "2", "3", "4")
    units = [
        Unit([puts("FAR", "first")]),
        Unit([puts("FAR", "refused"), full]),
        Unit([puts("FAR", "out of syncpoint", syncpoint=False), puts("SOURCE", "refused"), full]),
        Unit([puts("FAR", "last"), puts("SOURCE", "1", "2")]),
    ]
    with rig.queue_manager.core.entered():
        for unit in units[:-1]:  # as if they had come while a frame was written
            committer._submissions.append(Submission(unit, lambda _unit, outcome: outcomes.append(outcome)))
        committer.submit(units[-1], lambda _unit, outcome: outcomes.append(outcome))
    rig.scheduler.run_until(lambda: len(outcomes) == len(units))
    sent = [situations.from_transmission(one.md, one.data).data for one in rig.queue_manager.fetch("X", b"", 9)]
    assert sent == [b"first", b"out of syncpoint", b"last"]
    for queue in ("SOURCE", "COPIES"):
        assert [one.data for one in rig.queue_manager.fetch(queue, b"", 9)] == [b"1", b"2"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [("PUT(DISABLED)", 2051), ("MAXMSGL(2)", 2030), ("MAXDEPTH(3)", 2053), ("MAXDEPTH(4)", 0), ("DEFPRTY(7)", 0)],
)
def test_a_change_holds_for_what_is_put_again_and_again(rig, change, reason):
    for _ in range(3):
        assert rig.commit(Unit(puts=[puts("A", "123")])) == Outcome()
    rig.queue_manager.mqsc(f"ALTER QLOCAL(A) {change}")
    outcome = rig.commit(Unit(puts=[puts("A", "123")]))
    assert [one.reason for one in outcome.failures] == [reason] * bool(reason)
    assert rig.queue_manager.depth("A") == (3 if reason else 4)


def test_of_several_alike_the_longest_counts(rig):
    rig.queue_manager.mqsc("ALTER QLOCAL(A) MAXMSGL(3)")
    for texts, reasons in (("12",), []), (("123", "1"), []), (("1", "1234"), [2030]), (("1234",), [2030]):
        outcome = rig.commit(Unit(puts=[puts("A", *texts)]))
        assert [one.reason for one in outcome.failures] == reasons
    assert rig.queue_manager.depth("A") == 3
    outcome = rig.commit(Unit(puts=[puts("B", "1", "2"), puts("B", "3", "4")]))
    assert [(one.puts, one.reason) for one in outcome.failures] == [(1, 2053)]


def test_inhibited_and_too_big(rig):
    rig.queue_manager.mqsc("ALTER QLOCAL(A) PUT(DISABLED)\nALTER QLOCAL(B) MAXMSGL(4)")
    outcome = rig.commit(Unit(puts=[puts("A", "1"), puts("B", "12345")]))
    assert [(one.puts, one.reason) for one in outcome.failures] == [(0, 2051), (1, 2030)]


def test_priorities_come_first(rig):
    rig.commit(
        Unit(puts=[puts("A", "low", priority=1), puts("A", "high", priority=8), puts("A", "low too", priority=1)])
    )
    assert [one.data for one in rig.queue_manager.fetch("A", b"", 10)] == [b"high", b"low", b"low too"]


def test_staged_messages_move(rig):
    rig.commit(Unit(puts=[puts("MQGATE.STAGED", "1", "2", key=b"client")]))
    staged = rig.queue_manager.fetch("MQGATE.STAGED", b"client", 5)
    assert rig.queue_manager.depth("A") == 0
    moves = Moves("MQGATE.STAGED", b"client", [staged[1].token], "A", heads=[md(correl_id=b"c" * 24) + b"new "])
    assert rig.commit(Unit(moves=[moves])) == Outcome()
    moved = rig.queue_manager.fetch("A", b"", 5)
    assert [(one.data, one.md[72:96]) for one in moved] == [(b"new 2", b"c" * 24)]
    assert rig.queue_manager.depth("MQGATE.STAGED", b"client") == 1


def test_moves_in_runs_keep_order_and_say_how_long_their_messages_are(rig):
    numbers = [f"{n:02}" for n in range(20)]
    staged = puts("MQGATE.STAGED", *numbers, key=b"client")
    rig.commit(Unit(puts=[staged]))
    later, first = staged.tokens[10:20], staged.tokens[:10]
    runs = [Moves("MQGATE.STAGED", b"client", part, "A", to_priority=5, longest=2) for part in (later, first)]
    assert rig.commit(Unit(moves=runs)) == Outcome()
    moved = rig.queue_manager.fetch("A", b"", 30)
    assert [one.data.decode()[-2:] for one in moved] == numbers[10:] + numbers[:10]
    assert rig.queue_manager.depth("MQGATE.STAGED", b"client") == 0
    rig.commit(Unit(puts=[staged]))
    rig.queue_manager.mqsc("ALTER QLOCAL(A) MAXMSGL(9)")
    move = Moves("MQGATE.STAGED", b"client", staged.tokens, "A", longest=10)
    assert rig.commit(Unit(moves=[move])).failures[0].reason == 2030
    assert rig.queue_manager.depth("MQGATE.STAGED", b"client") == 20


def test_what_can_be_moved_to(rig):
    rig.queue_manager.mqsc(ELSEWHERE)
    manager = rig.queue_manager
    assert isinstance(manager, Moving)
    rig.queue_manager.mqsc("DEFINE QLOCAL(COPIED) STREAMQ(A)")
    queues = ("A", "MQGATE.STAGED", "REMOTE", "TO.NEWS", "NOWHERE", "COPIED")
    assert [name for name in queues if manager.movable(name, "")] == ["A", "MQGATE.STAGED"]
    assert not manager.movable("A", "NOWHERE")
    staged = puts("MQGATE.STAGED", "1", key=b"k")
    rig.commit(Unit(puts=[staged]))
    for queue in ("REMOTE", "TO.NEWS"):
        move = Moves("MQGATE.STAGED", b"k", staged.tokens, queue, to_priority=0)
        assert [failure.reason for failure in rig.commit(Unit(moves=[move])).failures] == [2057]
    assert manager.depth("MQGATE.STAGED", b"k") == 1


def test_state_is_replaced_within_and_across_frames(rig):
    state = "MQGATE.STATE"
    rig.commit(Unit(replaces=[Replace(state, b"k", b"1"), Replace(state, b"k", b"2"), Replace(state, b"j", b"1")]))
    assert [(key, one.data) for key, one in rig.queue_manager.load(state)] == [(b"k", b"2"), (b"j", b"1")]
    rig.commit(Unit(replaces=[Replace(state, b"k", b"3"), Replace(state, b"j", None)]))
    assert [(key, one.data) for key, one in rig.queue_manager.load(state)] == [(b"k", b"3")]


def test_consumers_are_told_once_a_batch(rig):
    told = []
    rig.queue_manager.consume("A", lambda: told.append(1))
    rig.scheduler.run()
    assert not told
    rig.commit(Unit(puts=[puts("A", "1", "2"), puts("A", "3")]))
    assert told == [1]


def test_expired_messages_are_not_delivered(rig):
    rig.commit(Unit(puts=[Puts("A", heads=[md(expiry=10), md()], bodies=[b"old", b"new"])]))
    rig.scheduler.advance(1.1)
    assert [one.data for one in rig.queue_manager.fetch("A", b"", 5)] == [b"new"]
    assert rig.queue_manager.depth("A") == 1


def test_restart_keeps_objects_and_persistent_messages(tmp_path):
    rig = Rig(tmp_path / "data", "DEFINE QLOCAL(A) MAXDEPTH(77)")
    rig.commit(Unit(puts=[puts("A", "kept"), puts("A", "lost", persistent=False)]))
    assert rig.queue_manager.depth("A") == 2
    rig.restart()
    assert [one.data for one in rig.queue_manager.fetch("A", b"", 5)] == [b"kept"]
    assert "MAXDEPTH(77)" in " ".join(rig.queue_manager.mqsc("DISPLAY QLOCAL(A) MAXDEPTH").lines)
    rig.queue_manager.close()


ELSEWHERE = """
DEFINE QALIAS(ALIAS) TARGET(A) DEFPRTY(6)
DEFINE QLOCAL(QM2) USAGE(XMITQ)
DEFINE QREMOTE(REMOTE) RNAME(THERE) RQMNAME(QM2)
DEFINE TOPIC(NEWS) TOPICSTR('news')
DEFINE QALIAS(TO.NEWS) TARGTYPE(TOPIC) TARGET(NEWS)
DEFINE SUB(READER) TOPICSTR('news/#') DEST(A)
DEFINE QMODEL(TEMPORARY) DEFTYPE(TEMPDYN)
"""


def test_aliases_remote_queues_and_topics(rig):
    rig.queue_manager.mqsc(ELSEWHERE)
    assert (
        rig.commit(Unit(puts=[puts("ALIAS", "1", priority=-1), puts("REMOTE", "2"), puts("TO.NEWS", "3")])) == Outcome()
    )
    found = rig.queue_manager.fetch("A", b"", 5)
    assert [one.data[-1:] for one in found] == [b"1", b"3"]
    sent = rig.queue_manager.fetch("QM2", b"", 5)[0]
    header, md_inside, begin = mq_builders.unwrap_xqh(sent.data)
    assert (header.remote_q_name, header.remote_q_mgr_name, sent.data[begin:]) == ("THERE", "QM2", b"2")
    assert md_inside[48:52] == b"AMQ "
    assert rig.commit(Unit(puts=[Puts("X", "NOWHERE", heads=[md()], bodies=[b""])])).failures[0].reason == 2087


def test_moves_to_remote_queues_and_topics(rig):
    rig.queue_manager.mqsc(ELSEWHERE)
    rig.commit(Unit(puts=[puts("MQGATE.STAGED", "1", "2", key=b"k")]))
    one, two = rig.queue_manager.fetch("MQGATE.STAGED", b"k", 5)
    unit = Unit(
        moves=[
            Moves("MQGATE.STAGED", b"k", [one.token], "REMOTE"),
            Moves("MQGATE.STAGED", b"k", [two.token], "TO.NEWS"),
        ]
    )
    assert rig.commit(unit) == Outcome()
    assert rig.queue_manager.fetch("QM2", b"", 5)[0].data.endswith(b"1")
    assert rig.queue_manager.fetch("A", b"", 5)[0].data.endswith(b"2")
    assert rig.queue_manager.depth("MQGATE.STAGED", b"k") == 0


def test_reports_asked_for_by_a_batch(rig):
    head = md(report=256, reply_to_q=b"B", reply_to_qmgr=b"QM1")
    assert rig.commit(Unit(puts=[Puts("A", heads=[head, head], bodies=[b"1", b"2"])])) == Outcome()
    assert rig.queue_manager.depth("A") == 2
    assert [one.md[12:16] for one in rig.queue_manager.fetch("B", b"", 5)] == [b"\4\0\0\0"] * 2


def test_fetched_messages_are_hidden_from_programs_until_released(rig):
    rig.commit(Unit(puts=[puts("A", "1", "2")]))
    assert len(rig.queue_manager.fetch("A", b"", 1)) == 1
    connection = rig.queue_manager.connect()
    handle = connection.open(ObjectDescriptor("A"), 2).handle
    assert connection.get(handle, md(), GetOptions(4), 100).data == b"2"
    with refused(2033):
        connection.get(handle, md(), GetOptions(4), 100)
    assert [one.data for one in rig.queue_manager.fetch("A", b"", 5)] == [b"1"]
    assert rig.queue_manager.release("A") == 1
    assert connection.get(handle, md(), GetOptions(4), 100).data == b"1"


def test_refusals_come_in_the_order_of_submission(rig):
    order = []
    for name, queue in (("one", "A"), ("two", "NONE"), ("three", "A")):
        rig.queue_manager.submit(
            Unit(puts=[puts(queue, name)]), lambda _u, outcome, name=name: order.append((name, len(outcome.failures)))
        )
    rig.scheduler.run_until(lambda: len(order) == 3)
    assert order == [("one", 0), ("two", 1), ("three", 0)]


def test_settings_of_the_queue_manager(rig):
    rig.queue_manager.apply_settings("required", 77)
    assert "MAXUMSGS(77)" in " ".join(rig.queue_manager.mqsc("DISPLAY QMGR MAXUMSGS").lines)
    with refused(2035):
        rig.queue_manager.connect(user="anyone")
    assert rig.queue_manager.dead_letter_queue == "SYSTEM.DEAD.LETTER.QUEUE"
    rig.queue_manager.quiesce()
    with refused(2161):
        rig.queue_manager.connect()


def test_counting_many_queues_does_not_displace_what_is_known_of_those_that_are_put_to(rig, monkeypatch):
    monkeypatch.setattr(translation, "TARGETS_REMEMBERED", 10)
    manager = rig.queue_manager
    manager.mqsc("".join(f"DEFINE QLOCAL(MANY.{number})\n" for number in range(50)))
    rig.commit(Unit(puts=[puts("A", "1"), puts("MANY.7", "1", "2")]))
    known = dict(manager._translator._names)
    assert known
    assert sum(manager.depth(f"MANY.{number}") for number in range(50)) == 2
    unknown, more = manager.unknown([f"MANY.{number}" for number in range(51)], 10)
    assert (list(unknown), more) == (["MANY.50"], 0)
    assert manager._translator._names == known


def test_of_many_queues_that_are_not_there_some_are_worded_and_the_others_counted(rig, monkeypatch):
    manager, worded = rig.queue_manager, []
    manager.mqsc("DEFINE QALIAS(Z.LEADS.NOWHERE) TARGET(NONE)\nDEFINE QALIAS(Z.LEADS.ON) TARGET(A)")
    resolve = name_resolution.resolve
    monkeypatch.setattr(name_resolution, "resolve", lambda core, name: worded.append(name) or resolve(core, name))
    names = {f"MANY.{number:04}" for number in range(1000)} | {"A", "MQGATE.FORWARD", "Z.LEADS.NOWHERE", "Z.LEADS.ON"}
    unknown, more = manager.unknown(names, 3)
    assert list(unknown) == ["MANY.0000", "MANY.0001", "MANY.0002"]
    assert "DEFINE QLOCAL('MANY.0000')" in unknown["MANY.0000"]
    assert more == 997 + 1
    assert worded == [*unknown, "Z.LEADS.NOWHERE", "Z.LEADS.ON"]


def test_deliveries_are_confirmed_however_many_messages_are_under_way(rig, monkeypatch):
    """What was remembered of messages that ask for a COD was forgotten all at once when it had become much: those that
    were still to be taken were then delivered without one."""
    monkeypatch.setattr(translation, "CONFIRMATIONS_REMEMBERED", 1000)
    rig.queue_manager.mqsc("DEFINE QLOCAL(REPORTS)")
    asks = md(report=mq.MQRO_COD, reply_to_q=b"REPORTS")
    translator = rig.queue_manager._translator
    for part in range(1, 11):
        assert rig.commit(Unit(puts=[Puts("A", heads=[asks] * 3, bodies=[b"x"] * 3)])) == Outcome()
        found: list[Token] = []
        while more := rig.queue_manager.fetch("A", b"", 1, found[-1] if found else None):
            found.append(more[0].token)
        assert rig.commit(Unit(takes=[Takes("A", b"", found)])) == Outcome()
        assert rig.queue_manager.depth("REPORTS") == 3 * part
    assert len(translator._confirmations) <= 6, "those that were taken are forgotten"


def test_long_messages_that_ask_for_a_confirmation_are_not_held_after_they_are_taken(rig):
    rig.queue_manager.mqsc("DEFINE QLOCAL(REPORTS)")
    asks = md(report=mq.MQRO_COD, reply_to_q=b"REPORTS")
    for _ in range(50):
        rig.commit(Unit(puts=[Puts("A", heads=[asks], bodies=[b"x" * (1 << 20)])]))
        rig.commit(Unit(takes=[Takes("A", b"", [one.token for one in rig.queue_manager.fetch("A", b"", 1)])]))
    assert rig.queue_manager.depth("REPORTS") == 50
    assert len(rig.queue_manager._translator._confirmations) < 20


def test_queues_that_are_defined_are_told_with_the_aliases_that_lead_there(rig):
    told = []
    rig.queue_manager.tell_defined(told.append)
    rig.queue_manager.mqsc("DEFINE QALIAS(X) TARGET(NEW)\nDEFINE QALIAS(Y) TARGET(A)")
    rig.scheduler.run()
    assert told == [{"X", "Y"}]
    rig.queue_manager.mqsc("DEFINE QLOCAL(NEW)\nDEFINE TOPIC(T) TOPICSTR(t)")
    rig.scheduler.run()
    assert told[1:] == [{"NEW", "X"}]


def test_a_rule_that_consumes_by_an_alias_is_told_when_that_allows_it_again(rig):
    told = []
    rig.queue_manager.mqsc("DEFINE QALIAS(X) TARGET(A) GET(DISABLED)")
    rig.queue_manager.consume("X", lambda: told.append(1))
    rig.scheduler.run()
    rig.queue_manager.mqsc("ALTER QALIAS(X) GET(ENABLED)")
    rig.scheduler.run()
    assert told


def test_the_limits_of_a_queue_are_those_of_the_queue_that_its_name_leads_to(rig):
    rig.queue_manager.mqsc("DEFINE QALIAS(X) TARGET(B)\nDEFINE QLOCAL(C) MAXDEPTH(1000) QDEPTHHI(95)")
    limits = rig.queue_manager.depth_limits
    assert (limits("B"), limits("X"), limits("C")) == ((3, 2), (3, 2), (1000, 950))
    assert (limits("NOWHERE"), limits("MQGATE.SESSIONS")) == (None, None)
    assert rig.queue_manager.core.queues.get("MQGATE.SESSIONS") is None, "it is not made for it"

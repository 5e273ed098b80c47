"""A message for which a get outside syncpoint waits goes to it with the commit that puts it, and is never stored."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from round_rig import Rig, programs

from gateway.errors import StoreError
from gateway.mq import constants as mq
from gateway.ports.mqi import ObjectDescriptor


@pytest.fixture(params=["memory", "journal"])
def rig(request, tmp_path):
    made = Rig(None if request.param == "memory" else tmp_path / "data")
    yield made
    made.manager.close()


def refusing(rig, monkeypatch, puts_to=None):
    """Have frames refused: all of them, or those with puts to a queue."""
    write = rig.manager.core.store.write

    def refuse(frame):
        unit = getattr(frame, "unit", frame)  # of the store in memory they are the same
        if puts_to is None or list(unit.puts_to(puts_to)):
            raise StoreError("no room")
        return write(frame)

    monkeypatch.setattr(rig.manager.core.store, "write", refuse)


def slowly(rig):
    """Have frames written by the journal's thread."""
    rig.manager.core.committer.seconds, rig.manager.core.committer._trial_in = 10.0, 1 << 30


def work(rig, server, correl="c"):
    """Make a unit of work that has to be written: a message is got, and one is put."""
    rig.round((server, b"put Q 4"))
    rig.round((server, b"get Q 2"))
    rig.round((server, b"put R 2 %s" % correl.encode()))
    server.outcomes.clear()


def test_it_is_got_as_if_it_had_been_on_the_queue(rig):
    one, other = programs(rig, 2)
    queue = rig.manager.core.queues["R"]
    rig.round((one, b"wait R 4 c"))
    assert rig.round((other, b"put R 4 c")) == 0
    assert (one.outcomes, other.outcomes) == ([b"data"], ["put"])
    assert (queue.puts, queue.gets, queue.high_depth, queue.uncommitted_puts) == (1, 1, 1, 0)
    assert queue.last_put == queue.last_get == rig.scheduler.now()
    assert (rig.manager.depth("R"), queue.waiters.count) == (0, 0)


def test_its_descriptor_is_that_of_a_message_from_the_queue(rig):
    one, other = programs(rig, 2)
    found = []
    for options in (2, 4):
        rig.round((one, b"wait R %d c" % options))
        arrived, waiting = [], next(iter(one.connection.state.waiting))
        waiting._arrived = arrived.append
        rig.round((other, b"put R 4 c priority=3 expiry=-1"))
        found.append(arrived[0])
    stored, handed = found
    assert handed.md[:48] + handed.md[72:] == stored.md[:48] + stored.md[72:]
    assert handed.md[48:72] != stored.md[48:72]
    assert (handed.data, handed.length, handed.resolved_name) == (stored.data, stored.length, stored.resolved_name)
    assert len({bytes(16), handed.token, stored.token}) == 3
    assert handed.group_status == stored.group_status


def test_a_reply_costs_no_frame_of_its_own_and_nobody_is_told_before_the_commit(rig, monkeypatch):
    one, server = programs(rig, 2)
    work(rig, server)
    rig.round((one, b"wait R 4 c"))
    store = rig.manager.core.store
    seen, write = [], store.write
    monkeypatch.setattr(store, "write", lambda frame: (seen.append(one.outcomes + server.outcomes), write(frame))[1])
    assert rig.round((server, b"commit")) == 1
    assert seen == [[]]
    assert (one.outcomes, server.outcomes) == ([b"data"], ["commit"])
    assert rig.manager.depth("Q") == rig.manager.depth("R") == 0


def test_if_the_commit_fails_the_get_waits_on(rig, monkeypatch):
    one, server = programs(rig, 2)
    work(rig, server)
    rig.round((one, b"wait R 4 c"))
    refusing(rig, monkeypatch)
    rig.round((server, b"commit"))
    monkeypatch.undo()
    assert server.outcomes[0].reason == 2003
    assert one.outcomes == []
    assert (rig.manager.depth("Q"), rig.manager.depth("R")) == (1, 0)
    rig.round((server, b"put R 4 c"))
    assert one.outcomes == [b"data"]


def test_calls_that_are_refused_together_are_tried_alone(rig, monkeypatch):
    one, other, server, bystander = programs(rig, 4)
    work(rig, server, "c")
    rig.round((one, b"wait R 4 c"))
    rig.round((other, b"wait R 4 d"))
    refusing(rig, monkeypatch, puts_to="Q")
    rig.round((server, b"commit"), (bystander, b"put Q"))
    assert (one.outcomes, server.outcomes) == ([b"data"], ["commit"])
    assert bystander.outcomes[0].reason == 2192
    assert other.outcomes == []
    assert rig.manager.core.queues["R"].uncommitted_puts == 0


def test_a_get_that_waits_on_ends_in_its_time(rig, monkeypatch):
    one, server = programs(rig, 2)
    work(rig, server)
    rig.round((one, b"wait R 4 c 100 7"))
    rig.scheduler.advance(5)
    refusing(rig, monkeypatch)
    rig.round((server, b"commit"))
    monkeypatch.undo()
    rig.scheduler.advance(1)
    rig.run()
    assert one.outcomes == []
    rig.scheduler.advance(2)
    rig.run()
    assert one.outcomes[0].reason == 2033


def test_a_get_that_was_given_up_meanwhile_does_not_wait_on(rig, monkeypatch):
    one, server = programs(rig, 2)
    work(rig, server)
    rig.round((one, b"wait R 4 c"))
    slowly(rig)
    refusing(rig, monkeypatch)
    rig.rounds.receive(server, b"commit")
    rig.rounds.run()
    one.cancel()
    rig.run()
    assert server.outcomes[0].reason == 2003
    assert (one.outcomes, rig.manager.core.queues["R"].waiters.count) == ([], 0)


def test_what_comes_while_a_frame_is_on_its_way_is_for_others(rig):
    one, other, server = programs(rig, 3)
    work(rig, server)
    rig.round((one, b"wait R 4 c"))
    slowly(rig)
    rig.rounds.receive(server, b"commit")
    rig.rounds.run()
    rig.round((other, b"put R 4 c second"))
    assert (one.outcomes, other.outcomes, server.outcomes) == ([b"data"], ["put"], ["commit"])
    assert rig.manager.depth("R") == 1


def test_a_call_that_nobody_gathers_hands_over_as_well(rig):
    """On a slow disk the call waits for its frame without the lock; here there is nothing to write."""
    one, other = programs(rig, 2)
    rig.round((one, b"wait R 4 c"))
    rig.manager.serve_through(None)
    slowly(rig)
    frames = rig.frames
    other.put("R", "4", "c")
    rig.run()
    assert (one.outcomes, other.outcomes, rig.frames) == ([b"data"], ["put"], frames)


@pytest.mark.parametrize(
    ("wait", "put"),
    [
        (b"wait R 2 c", b"put R 4 c"),  # it may be backed out
        (b"wait R 4 c", b"put R 4 c data expiry=500"),
        (b"wait R 4 c", b"put R 4 c data flags=8"),
        (b"wait R 4 c 3", b"put R 4 c"),  # longer than the buffer
        (b"wait R 64", b"put R 4 c"),  # truncated is accepted
    ],
)
def test_whatever_asks_for_more_goes_over_the_queue(rig, wait, put):
    one, other = programs(rig, 2)
    rig.round((one, wait))
    assert rig.round((other, put)) >= 1
    assert len(one.outcomes) == 1
    assert other.outcomes == ["put"]


def test_a_report_on_delivery_is_made(rig):
    one, other = programs(rig, 2)
    rig.round((one, b"wait R 4 c"))
    other.put("R", "4", "c", report=mq.MQRO_COD, reply_to_q=b"Q")
    rig.run()
    assert (one.outcomes, rig.manager.depth("Q")) == ([b"data"], 1)


def test_a_queue_with_a_trigger_sees_what_arrives(rig):
    rig.manager.mqsc("DEFINE QLOCAL(I)\nDEFINE PROCESS(P)")
    rig.manager.mqsc("ALTER QLOCAL(R) TRIGGER TRIGTYPE(EVERY) INITQ(I) PROCESS(P)")
    one, other, monitor = programs(rig, 3)
    monitor.connection.open(ObjectDescriptor("I"), mq.MQOO_INPUT_SHARED)
    rig.round((one, b"wait R 4 c"))
    rig.round((other, b"put R 4 c"))
    assert one.outcomes == [b"data"]
    assert rig.manager.depth("I") == 1


def test_who_has_waited_longer_gets_it(rig):
    first, second, other = programs(rig, 3)
    rig.round((first, b"wait R 4"))
    rig.round((second, b"wait R 4 c"))
    rig.round((other, b"put R 4 c"))
    assert (first.outcomes, second.outcomes) == ([b"data"], [])
    rig.round((first, b"wait R 4"))
    rig.round((other, b"put R 4 c"))
    assert (first.outcomes, second.outcomes) == ([b"data"], [b"data"])


def test_messages_of_a_unit_of_work_are_got_by_priority(rig):
    one, other = programs(rig, 2)
    rig.round((one, b"wait R 4 c"))
    for priority in (1, 5, 3):
        rig.round((other, b"put R 2 c p%d priority=%d" % (priority, priority)))
    rig.round((other, b"commit"))
    for _ in range(2):
        rig.round((one, b"wait R 4 c"))
    assert one.outcomes == [b"p5", b"p3", b"p1"]


words = st.sampled_from([
    b"put R 4 c", b"put R 4 d", b"put R 2 c", b"put R 2 d", b"put Q 4 c", b"commit", b"back",
    b"wait R 4 c", b"wait R 4 d", b"wait R 4", b"wait R 2 c", b"wait R 2", b"wait Q 2",
])  # fmt: skip


class Account:
    """What one program has put and got, and what of that may still be backed out."""

    def __init__(self, program):
        self.program = program
        self.open_puts, self.open_gets = [], []
        self.waits_with = b""
        self.seen = 0

    def says(self, word, data):
        """Returns the chunk of a call, or nothing while the call before it waits."""
        if self.waits_with:
            return None
        verb, *rest = word.split()
        if verb == b"wait":
            self.waits_with = rest[1]
        return (self.program, b" ".join([word, data, b"persistence=%d" % (len(data) % 2)]) if verb == b"put" else word)

    def news(self):
        """Returns the messages that it has got now, in an open unit of work or for good."""
        news = [one for one in self.program.outcomes[self.seen :] if isinstance(one, bytes)]
        self.seen = len(self.program.outcomes)
        under_syncpoint = self.waits_with == b"2"
        if news:
            self.waits_with = b""
        return (news, []) if under_syncpoint else ([], news)


@given(rounds=st.lists(st.dictionaries(st.integers(0, 5), words, min_size=1), max_size=14), slow=st.booleans())
@settings(max_examples=50, deadline=None)
def test_no_message_is_lost_or_got_twice(rounds, slow) -> None:
    """Whatever programs send at the same time, what is put and committed is got once, or is on its queue."""
    rig = Rig(None)
    if slow:
        slowly(rig)
    accounts = [Account(program) for program in programs(rig, 6)]
    put, got, serial = [], [], 0
    for said in [*rounds, dict.fromkeys(range(6), b"commit")]:
        chunks = []
        for number, word in said.items():
            account, serial = accounts[number], serial + 1
            data = b"%d" % serial
            chunk = account.says(word, data)
            if chunk is None:
                continue
            chunks.append(chunk)
            if word.startswith(b"put"):
                (put if word.split()[2] == b"4" else account.open_puts).append(data)
            elif word == b"commit":
                put += account.open_puts
                got += account.open_gets
            if word in {b"commit", b"back"}:
                account.open_puts, account.open_gets = [], []
        rig.round(*chunks)
        for account in accounts:
            held, gone = account.news()
            account.open_gets += held
            got += gone
    for account in accounts:
        account.program.cancel()
        account.program.connection.disconnect(commit=False)
    rig.run()
    last = programs(rig, 1)[0]
    for queue in ("Q", "R"):
        assert rig.manager.core.queues[queue].uncommitted_puts == 0
        while rig.manager.depth(queue):
            rig.round((last, b"get %s 4" % queue.encode()))
    assert sorted(got + last.outcomes) == sorted(put)
    rig.manager.close()

"""Messages found by their identifiers: ids made here and ids given, while messages come, move and go."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gateway.queue_manager.descriptor import message_id
from gateway.queue_manager.journal import Store, StoreOptions, finder
from gateway.queue_manager.store.lanes import Lane
from gateway.queue_manager.store.place import NUMBER_MASK
from gateway.queue_manager.store.unit import LaneMoves, LanePuts, LaneTakes, Message, StoreUnit

BLANK = bytes(364)
OPTIONS = StoreOptions("QM1", segment_bytes=256 * 1024, direct=False, background=False, cache_bytes=4_000)


def opened(path: Path) -> Store:
    return Store.open(path, clock=lambda: 1.0, options=OPTIONS)


def commit(store: Store, unit: StoreUnit) -> None:
    prepared = store.prepare(unit, 1.0)
    store.write(prepared)
    store.apply(prepared)


def matching(store: Store, queue: str, **identifiers: bytes) -> list[int]:
    """The tokens of what is found."""
    return [message.token for message in store.find(queue, **identifiers)]


def head(msg_id: bytes = bytes(24), correl_id: bytes = bytes(24), group_id: bytes = bytes(24)) -> bytes:
    return BLANK[:48] + msg_id + correl_id + BLANK[96:324] + group_id + BLANK[348:]


def test_an_id_made_here_names_its_message(tmp_path: Path) -> None:
    store = opened(tmp_path)
    puts = LanePuts("Q", priority=3, heads=[BLANK] * 3, bodies=[b"a", b"b", b"c"])
    commit(store, StoreUnit(puts=[puts]))
    token = puts.tokens[1]
    identifier = message_id("QM1", token & NUMBER_MASK)
    assert matching(store, "Q", msg_id=identifier) == [token]
    assert matching(store, "Q", msg_id=message_id("OTHER", token & NUMBER_MASK)) == []
    assert matching(store, "Q", msg_id=b"x" * 24) == []
    assert matching(store, "NOWHERE", msg_id=identifier) == []
    store.lock("Q", b"", [token])
    assert matching(store, "Q", msg_id=identifier) == [token]
    commit(store, StoreUnit(takes=[LaneTakes("Q", tokens=[token])]))
    assert matching(store, "Q", msg_id=identifier) == []
    store.close()


def test_given_ids_are_found_in_order_of_delivery_whenever_they_came(tmp_path: Path) -> None:
    store = opened(tmp_path)
    correlation = b"c" * 24
    before = LanePuts("Q", heads=[head(correl_id=correlation), head()], bodies=[b"1", b"2"])
    commit(store, StoreUnit(puts=[before]))
    assert matching(store, "Q", correl_id=correlation) == [before.tokens[0]]
    high = LanePuts("Q", priority=9, heads=[BLANK] * 2, bodies=[b"3", b"4"], correl_ids=[bytes(24), correlation])
    staged = LanePuts("S", heads=[head(correl_id=correlation, group_id=b"g" * 24)], bodies=[b"5"])
    loose = LanePuts("Q", persistent=False, heads=[head(msg_id=b"m" * 24, correl_id=correlation)], bodies=[b"6"])
    commit(store, StoreUnit(puts=[high, staged, loose]))
    move = LaneMoves("S", b"", staged.tokens, "Q")
    commit(store, StoreUnit(moves=[move]))
    expected = [high.tokens[1], before.tokens[0], loose.tokens[0], move.new_tokens[0]]
    assert matching(store, "Q", correl_id=correlation) == expected
    assert matching(store, "Q", correl_id=correlation, group_id=b"g" * 24) == [move.new_tokens[0]]
    assert matching(store, "Q", group_id=b"g" * 24) == [move.new_tokens[0]]
    assert matching(store, "Q", msg_id=b"m" * 24, correl_id=correlation) == [loose.tokens[0]]
    assert matching(store, "Q", msg_id=b"m" * 24, correl_id=b"d" * 24) == []
    store.close()
    store = opened(tmp_path)
    assert matching(store, "Q", correl_id=correlation) == [token for token in expected if token != loose.tokens[0]]
    store.close()


def test_a_busy_request_and_reply_queue_does_not_grow(tmp_path: Path) -> None:
    store = opened(tmp_path)
    matching(store, "REPLY", correl_id=b"?" * 24)
    dice = random.Random(1)
    for _ in range(60):
        ids = [dice.randbytes(24) for _ in range(100)]
        puts = LanePuts("REPLY", heads=[BLANK] * 100, bodies=[identifier[:4] for identifier in ids], correl_ids=ids)
        commit(store, StoreUnit(puts=[puts]))
        for identifier in ids[::20]:
            (token,) = matching(store, "REPLY", correl_id=identifier)
            found = store.read("REPLY", b"", token)
            assert found is not None
            assert found.body == identifier[:4]
        commit(store, StoreUnit(takes=[LaneTakes("REPLY", tokens=puts.tokens)]))
    index = store.finder.searched["REPLY", b""].fields["correl_id"]
    assert index.entries < 2_000
    store.close()


def test_what_is_found_is_read_one_by_one(tmp_path: Path) -> None:
    store = opened(tmp_path)
    puts = LanePuts("Q", heads=[head(correl_id=b"c" * 24)] * 5, bodies=[b"1", b"2", b"3", b"4", b"5"])
    commit(store, StoreUnit(puts=[puts]))
    read: list[int] = []
    message = store.reader.message
    store.reader.message = lambda lane, number: read.append(number) or message(lane, number)  # type: ignore[method-assign, func-returns-value]
    first = next(iter(store.find("Q", correl_id=b"c" * 24)))
    assert (first.body, len(read)) == (b"1", 1)
    store.close()


def reads_of(store: Store) -> list[int]:
    """The numbers that are read from now on."""
    read: list[int] = []
    message = store.reader.message
    store.reader.message = lambda lane, number: read.append(number) or message(lane, number)  # type: ignore[method-assign, func-returns-value]
    return read


def test_browsing_by_an_identifier_goes_on_where_it_was(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for priority in (4, 9, 4):
        puts = LanePuts("Q", priority=priority, heads=[head(correl_id=b"c" * 24)] * 50, bodies=[b"x"] * 50)
        commit(store, StoreUnit(puts=[puts]))
    expected = matching(store, "Q", correl_id=b"c" * 24)
    assert len(expected) == 150
    read = reads_of(store)
    found: list[int] = []
    while message := next(iter(store.find("Q", correl_id=b"c" * 24, after=found[-1] if found else None)), None):
        found.append(message.token)
    assert found == expected
    assert len(read) < 3 * len(expected)
    store.close()


def test_getting_by_an_identifier_does_not_look_at_what_is_gone(tmp_path: Path) -> None:
    store = opened(tmp_path)
    puts = LanePuts("Q", heads=[head(correl_id=b"c" * 24)] * 200, bodies=[b"x"] * 200)
    commit(store, StoreUnit(puts=[puts]))
    read = reads_of(store)
    for token in puts.tokens:
        message = next(iter(store.find("Q", correl_id=b"c" * 24)))
        assert message.token == token
        commit(store, StoreUnit(takes=[LaneTakes("Q", tokens=[token])]))
    assert matching(store, "Q", correl_id=b"c" * 24) == []
    assert len(read) < 2 * len(puts.tokens)
    index = store.finder.searched["Q", b""].fields["correl_id"]
    assert index.entries == 0
    again = LanePuts("Q", heads=[head(correl_id=b"c" * 24)] * 2, bodies=[b"x"] * 2)
    commit(store, StoreUnit(puts=[again]))
    assert matching(store, "Q", correl_id=b"c" * 24) == list(again.tokens)
    store.close()


def test_messages_that_are_passed_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds may be marked in front of the first that is not, for each look of a program that browses."""
    store = opened(tmp_path)
    correlation, queue = b"c" * 24, [b"%d" % number for number in range(200)]
    puts = LanePuts("Q", heads=[head(correl_id=correlation)] * 200, bodies=queue)
    commit(store, StoreUnit(puts=[puts]))
    marked, read = set(puts.tokens[:150]), list[int]()

    def onward(token: int) -> int:
        return token + (token in marked)

    message = store.finder._reader.message

    def noted(lane: Lane, number: int) -> Message | None:
        read.append(number)
        return message(lane, number)

    monkeypatch.setattr(store.finder._reader, "message", noted)
    found = store.find("Q", correl_id=correlation, onward=onward)
    assert next(iter(found)).token == puts.tokens[150]
    assert len(read) == 1, read
    found = store.find("Q", correl_id=correlation, after=puts.tokens[159], onward=onward)
    assert [one.token for one in found] == [*puts.tokens[160:]]
    read.clear()
    assert next(iter(store.find("Q", onward=onward))).token == puts.tokens[150]
    assert len(read) == 1, read
    store.close()


def test_what_identifiers_are_found_by_is_made_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages come and go, and change places, between two of them."""
    monkeypatch.setattr(finder, "PART", 7)
    store = opened(tmp_path)
    names = [b"%24d" % (number % 10) for number in range(60)]
    for at in range(0, 60, 20):
        for priority in (3, 4):
            chosen = [head(correl_id=one) for one in names[at : at + 20]]
            commit(store, StoreUnit(puts=[LanePuts("Q", priority=priority, heads=chosen, bodies=[b"x"] * 20)]))
    parts = 0
    while not store.prepare_find("Q", b"", "correl_id"):
        parts += 1
        first, last = store.tokens("Q", b"")[0], store.tokens("Q", b"")[-1]
        commit(store, StoreUnit(takes=[LaneTakes("Q", tokens=[first])]))
        commit(store, StoreUnit(moves=[LaneMoves("Q", b"", [last], to_queue="Q", to_priority=parts % 10)]))
        come = LanePuts("Q", priority=parts % 10, heads=[head(correl_id=names[0])], bodies=[b""])
        commit(store, StoreUnit(puts=[come]))
    assert parts >= 10
    assert store.prepare_find("Q", b"", "correl_id")
    everything = list(store.find("Q"))
    for name in set(names):
        wanted = [one.token for one in everything if one.head[72:96] == name]
        assert matching(store, "Q", correl_id=name) == wanted
    store.close()


def test_nothing_is_kept_of_a_queue_that_was_deleted(tmp_path: Path) -> None:
    """As of those that programs make for the reply to one request."""
    store = opened(tmp_path)
    for number in range(3):
        queue, correlation = f"REPLY.{number}", bytes([number + 1]) * 24
        puts = LanePuts(queue, heads=[head(correl_id=correlation)], bodies=[b"reply"])
        commit(store, StoreUnit(puts=[puts]))
        assert matching(store, queue, correl_id=correlation) == list(puts.tokens)
        commit(store, StoreUnit(takes=[LaneTakes(queue, tokens=list(puts.tokens))]))
        assert store.finder.searched
        store.forget(queue)
        assert not store.finder.searched
    store.close()

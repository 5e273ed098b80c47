"""The store in memory: messages leave it in any order, each at the same cost."""

from __future__ import annotations

import random
from typing import Any

import pytest

from gateway.queue_manager.descriptor import default_descriptor
from gateway.queue_manager.store.memory import Shelf
from gateway.queue_manager.store.unit import Message

MANY = 2_000
ORDERS = ["oldest first", "youngest first", "at random"]


class Counted(int):
    """A token that counts how often tokens are compared; those that are the same object are not."""

    compared = 0
    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return int.__eq__(self, other)


class Looked(dict[int, Any]):
    """Entries that count how often somebody looks whether one is there."""

    looks = 0

    def __contains__(self, key: object) -> bool:
        Looked.looks += 1
        return super().__contains__(key)


def filled() -> tuple[Shelf, list[int]]:
    """A shelf of messages that have the same CorrelId, as most have, and its tokens."""
    shelf, tokens, head = Shelf(), [Counted(1_000 + number) for number in range(MANY)], default_descriptor()
    shelf.entries = Looked()
    for token in tokens:
        shelf.add(Message(token, head, b"", 0, 0, 0), persistent=False)
    return shelf, tokens


@pytest.mark.parametrize("order", ORDERS)
def test_what_leaves_is_not_searched_among_all_others(order: str) -> None:
    shelf, tokens = filled()
    leaving = {ORDERS[0]: tokens, ORDERS[1]: tokens[::-1], ORDERS[2]: random.Random(1).sample(tokens, MANY)}[order]
    Counted.compared = 0
    for token in leaving:
        assert shelf.remove(token) is not None
    assert Counted.compared <= 10 * MANY
    assert (shelf.entries, shelf.by_msg_id, shelf.by_correl_id) == ({}, {}, {})


def test_the_next_is_found_at_once_behind_what_has_left_before_it() -> None:
    shelf, tokens = filled()
    for token in tokens[1 : MANY // 2]:
        shelf.remove(token)
    shelf.remove(tokens[0])
    Looked.looks = 0
    for token in tokens[MANY // 2 :]:
        assert next(iter(shelf.tokens_after(None))) == token
        shelf.remove(token)
    assert Looked.looks <= 10 * MANY

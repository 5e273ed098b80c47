"""Tokens sort in the order of delivery, places fit a column, MsgIds name their message."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.queue_manager import descriptor
from gateway.queue_manager.store import place

NUMBERS = st.integers(1, place.NUMBER_MASK)


@given(st.tuples(st.integers(0, 9), NUMBERS), st.tuples(st.integers(0, 9), NUMBERS))
def test_tokens_compare_by_priority_then_number(one: tuple[int, int], two: tuple[int, int]) -> None:
    first, second = place.token_of(*one), place.token_of(*two)
    assert (place.priority_of(first), first & place.NUMBER_MASK) == one
    assert (first < second) == ((-one[0], one[1]) < (-two[0], two[1]))
    assert first < 1 << 64


@given(st.integers(0, (1 << 23) - 1), st.integers(0, (1 << 20) - 1), st.integers(0, place.ROW_MASK))
def test_places_fit_64_bits(slot: int, block: int, row: int) -> None:
    frame = place.frame_of(slot, block)
    assert (place.slot_of(frame), place.block_of(frame)) == (slot, block)
    assert not frame & place.VOLATILE
    assert (frame << place.ROW_BITS | row) < 1 << 64
    assert ((place.VOLATILE | frame) << place.ROW_BITS | row) < 1 << 64


@given(NUMBERS, st.sampled_from(["QM1", "A.VERY.LONG.QUEUE.MANAGER", ""]))
def test_msg_ids(number: int, name: str) -> None:
    identifier = descriptor.message_id(name, number)
    assert len(identifier) == 24
    assert identifier.startswith(b"AMQ " + name.encode()[:12])
    assert identifier == place.id_prefix(name) + number.to_bytes(8, "big")

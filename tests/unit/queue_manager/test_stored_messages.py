"""gateway.queue_manager.batch.stored_messages: what comes back at the start, of which there may be a million."""

from __future__ import annotations

from gateway.mq import mqmd
from gateway.queue_manager.batch.stored_messages import _PAGE, keyed, stored
from gateway.queue_manager.store.unit import Message


def test_what_comes_back_is_completed_a_page_at_a_time_and_kept_no_longer() -> None:
    head = mqmd.build(persistence=1)
    messages = [Message(number, head, b"%d" % number, 1_790_000_000_000_000, 0, 0) for number in range(2 * _PAGE + 1)]
    expected = [(one.body, each) for one, each in zip(messages, stored(messages, "QM"), strict=True)]
    left = [(one.body, one) for one in messages]
    rows = keyed(left, "QM")
    found = [next(rows)]
    assert len(left) == _PAGE + 1
    found += rows
    assert found == expected
    assert not left

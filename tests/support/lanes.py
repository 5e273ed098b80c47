"""Which form of the lanes takes packets in: the plain lane alone, the fast lane in Python, the compiled one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gateway.broker.publish import fast

FORMS = ["python", "compiled", "compiled, few topics"] if fast.compiled() else ["python"]


def nothing_is_ordinary(lane, arrived, replies, pending, generation, now, /):
    """Leaves everything to the plain lane."""
    del lane, replies, pending, generation
    rest, size = [], 0
    for one in arrived:
        connection, data = one[:2]
        if connection.state == fast.CLOSED:
            continue
        if len(one) == 2:
            size += len(data)
            connection.last_read = now
            if connection.state == fast.ONLINE and connection.reader.held is not None:
                data = connection.reader.joined(data)
        if data:
            rest.append((connection, data, one[2] if len(one) == 3 else 0))
    return rest, len(arrived), size, 0, 0, 0, 0


@contextmanager
def lane(form: str) -> Iterator[None]:
    """Until the end of the block."""
    with pytest.MonkeyPatch.context() as patch:
        if form == "compiled, few topics":  # as with many: their routes lie where they are found quickly
            fast.configure(0)
        elif form != "compiled":
            patch.setattr(fast, "take", fast.take_in_python if form == "python" else nothing_is_ordinary)
        yield
        if fast.compiled():
            fast.configure(fast.MANY)


@contextmanager
def short_runs() -> Iterator[None]:
    """Until the end of the block, publications of QoS 2 are staged in runs however few they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast, "LEAST", 1)
        patch.setattr("gateway.broker.publish.chunk.LEAST", 1)
        if fast.compiled():
            fast.configure(fast.MANY)
        yield
    if fast.compiled():
        fast.configure(fast.MANY)

"""What tests do with the journal's store: one unit written and applied, and what is on a queue."""

from __future__ import annotations

from gateway.errors import StoreUnavailable
from gateway.queue_manager.journal import Prepared, Store


def commit(store: Store, prepared: Prepared) -> None:
    """Write and apply a unit, or abort it where it cannot be written."""
    try:
        store.write(prepared)
    except StoreUnavailable:
        store.abort(prepared)
        raise
    store.apply(prepared)


def listed(store: Store) -> list[bytes]:
    """Bodies of what lies on `Q`, in order."""
    return [message.body for message in store.fetch("Q", limit=100_000)]

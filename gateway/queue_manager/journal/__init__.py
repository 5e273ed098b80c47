"""The journal: the only opener of the store's files."""

from gateway.queue_manager.journal.store import Prepared, Store, StoreOptions

__all__ = ["Prepared", "Store", "StoreOptions"]

"""The journal: the only opener of the store's files."""

from gateway.backends.embedded.journal.store import Prepared, Store, StoreOptions, unit_of

__all__ = ["Prepared", "Store", "StoreOptions", "unit_of"]

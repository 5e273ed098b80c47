"""The journal: the only opener of the store's files."""

from gateway.queue_manager.journal.prepared import Prepared, StoreOptions, Usage, unit_of
from gateway.queue_manager.journal.store import Store

__all__ = ["Prepared", "Store", "StoreOptions", "Usage", "unit_of"]

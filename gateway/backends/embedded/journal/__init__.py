"""The journal: the only opener of the store's files."""

from gateway.backends.embedded.journal.prepared import Prepared, StoreOptions, Usage, unit_of
from gateway.backends.embedded.journal.store import Store

__all__ = ["Prepared", "Store", "StoreOptions", "Usage", "unit_of"]

"""The IBM MQ backend, joined when the settings ask for it: its drivers are optional."""

from __future__ import annotations

from gateway.config.model import Settings
from gateway.errors import DriverUnavailable
from gateway.ports.batch import BatchQueueManager, Scheduler
from gateway.ports.counters import Counters


def open_ibm(settings: Settings, scheduler: Scheduler, counters: Counters) -> BatchQueueManager:
    """Connect; DriverUnavailable says which library is missing."""
    del settings, scheduler, counters
    raise DriverUnavailable("the IBM MQ backend is not joined to the gateway in this version")

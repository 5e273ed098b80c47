"""Which view an operator has of the queue manager of this gateway, or of one that no gateway runs on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from gateway.app.inquiries import Inquiries
from gateway.app.sights import FarSights, Sights
from gateway.config.model import Settings
from gateway.ports.batch import Scheduler
from gateway.ports.inspection import Inspects
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.inspection import Inspection
from gateway.routing.table import Table

if TYPE_CHECKING:
    from gateway.app.gateway import Gateway
    from gateway.backends.ibm.inspection import IbmInspection


def inspection_of(gateway: Gateway) -> Inspects | None:
    """The queue manager's own with the embedded one; otherwise a connection to IBM MQ, when it is needed."""
    if isinstance(gateway.queue_manager, EmbeddedQueueManager):
        return Inspection(gateway.queue_manager)
    if gateway.settings.queue_manager.ibm is None:
        return None
    return ibm_inspection(gateway.settings, lambda: [gateway.engine.dead_letter_queue, *names_of(gateway.table)])


def questions_of(gateway: Gateway) -> tuple[Inquiries | None, Sights]:
    """The thread in which a queue manager elsewhere is asked; none for the embedded one, which answers at once."""
    if isinstance(gateway.inspection, Inspection) or gateway.inspection is None:
        return None, Sights(gateway)
    from gateway.backends.ibm.inspection import IbmInspection  # the drivers are optional

    assert isinstance(gateway.inspection, IbmInspection)  # noqa: S101 -- there is no third one
    inquiries = inquiries_of(gateway.settings, gateway.scheduler, gateway.inspection)
    return inquiries, FarSights(gateway, gateway.inspection, inquiries)


def inquiries_of(settings: Settings, scheduler: Scheduler, inspection: IbmInspection) -> Inquiries:
    """A thread for all that is asked of this view."""
    inquiries = Inquiries(scheduler, settings.admin.answer_timeout, inspection.close)
    inspection.heard = inquiries.heard
    return inquiries


def names_of(table: Table) -> list[str]:
    """The queues that rules name outright."""
    from gateway.app.ibm import queues_of  # the drivers are optional
    from gateway.backends.ibm.connection import TOPIC_PREFIX

    puts, consumes = queues_of(table)
    return [name for name in (*puts, *consumes) if not name.startswith(TOPIC_PREFIX)]


def ibm_inspection(settings: Settings, names: Callable[[], Iterable[str]] = list) -> IbmInspection:
    """A view of the queue manager of these settings. DriverUnavailable where no library is."""
    from gateway.app.ibm import connect_settings  # the drivers are optional
    from gateway.backends.ibm.driver import load
    from gateway.backends.ibm.identifiers import message_ids
    from gateway.backends.ibm.inspection import IbmInspection

    ibm = settings.queue_manager.ibm
    assert ibm is not None  # noqa: S101 -- the callers have looked

    new_id = message_ids(time.time(), os.urandom(4))
    return IbmInspection(load(ibm.driver), connect_settings(settings, ibm), new_id, names)

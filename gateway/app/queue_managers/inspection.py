"""The operator's view of the queues: those of a running gateway's queue manager, or of IBM MQ without a gateway."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from gateway.app.queue_managers.inquiries import Inquiries
from gateway.app.reports import log_lines
from gateway.app.reports.queue_status import PolledQueueStatus, QueueStatus
from gateway.config.model import Settings
from gateway.ports import state_queues
from gateway.ports.batch import BatchQueueManager, Scheduler
from gateway.ports.inspection import Inspects
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.inspection import Inspection
from gateway.routing.table import Table

if TYPE_CHECKING:
    from gateway.backends.ibm.inspection import IbmInspection


def inspection_of(
    settings: Settings,
    queue_manager: BatchQueueManager,
    table: Callable[[], Table],
    dead_letters: Callable[[], str],
    seen: Callable[[], Iterable[str]],
) -> Inspects | None:
    """Returns the view of a running gateway's queue manager: the embedded one's own, otherwise a connection to IBM MQ,
    made when it is needed. `table`, `dead_letters` and `seen` are asked which queues it shows."""
    if isinstance(queue_manager, EmbeddedQueueManager):
        return Inspection(queue_manager)
    if settings.queue_manager.ibm is None:
        return None
    return ibm_inspection(settings, lambda: [dead_letters(), *names_of(table()), *seen(), *state_queues.ALL])


def questions_of(
    settings: Settings,
    scheduler: Scheduler,
    queue_manager: BatchQueueManager,
    inspection: Inspects | None,
    names: Callable[[], Iterable[str]],
    refusing: Callable[[], Iterable[str]],
) -> tuple[Inquiries | None, QueueStatus]:
    """Returns the thread in which IBM MQ is asked, and the status of queues; there is no thread for the embedded queue
    manager."""
    if isinstance(inspection, Inspection) or inspection is None:
        return None, QueueStatus(queue_manager, inspection)
    from gateway.backends.ibm.inspection import IbmInspection  # the drivers are optional

    assert isinstance(inspection, IbmInspection)  # noqa: S101 -- there is no third one
    inquiries = inquiries_of(settings, scheduler, inspection)
    return inquiries, PolledQueueStatus(queue_manager, inspection, inquiries, names, refusing)


def inquiries_of(settings: Settings, scheduler: Scheduler, inspection: IbmInspection) -> Inquiries:
    """Returns the thread in which all questions to this view are asked."""
    inquiries = Inquiries(scheduler, settings.admin.answer_timeout, inspection.close)
    inspection.heard = inquiries.heard
    return inquiries


def names_of(table: Table) -> list[str]:
    """Returns the queues that rules name without a template; topics are not included."""
    from gateway.app.queue_managers.ibm import queues_of  # the drivers are optional
    from gateway.backends.ibm.connection import TOPIC_PREFIX

    puts, consumes = queues_of(table)
    return [name for name in (*puts, *consumes) if not name.startswith(TOPIC_PREFIX)]


def ibm_inspection(settings: Settings, names: Callable[[], Iterable[str]] = list) -> IbmInspection:
    """Returns a view of the IBM MQ queue manager of the settings. DriverUnavailable without a client library."""
    from gateway.app.queue_managers.ibm import connect_settings  # the drivers are optional
    from gateway.backends.ibm.driver import load
    from gateway.backends.ibm.identifiers import MessageIds
    from gateway.backends.ibm.inspection import IbmInspection

    ibm = settings.queue_manager.ibm
    assert ibm is not None  # noqa: S101 -- the callers have looked

    new_id = MessageIds(time.time(), os.urandom(4))
    reached, driver = connect_settings(settings, ibm), load(ibm.driver)
    driver.on_left_open = log_lines.superseded
    return IbmInspection(driver, reached, new_id, names)

"""Targets: queue managers other than that of the state, made where the settings name some."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gateway.app.reports import log_lines
from gateway.broker.context import Context
from gateway.broker.targets import Targets, marker_key_of
from gateway.config.model import Settings
from gateway.observe import logs
from gateway.ports.batch import Scheduler
from gateway.ports.state_queues import MARKERS, SUBSCRIPTIONS
from gateway.routing.table import Table

if TYPE_CHECKING:
    from gateway.backends.ibm.driver import ConnectSettings
    from gateway.backends.targets.target import IbmTarget

log = logs.get("mqgate.target")


def open_targets(settings: Settings, scheduler: Scheduler, context: Context) -> Sequence[IbmTarget]:
    """Begin to connect to them, and have units of work go through them. One that is away is waited for. Raises
    DriverUnavailable without a client library."""
    if not settings.targets:
        return ()
    from gateway.app.queue_managers.ibm import count_attempt  # the drivers are optional
    from gateway.backends.ibm.driver import load
    from gateway.backends.ibm.worker import Backoff
    from gateway.backends.targets.target import IbmTarget

    made = []
    for name, target in settings.targets.items():
        connect, driver = _connect_settings(settings, name), load(_driver(settings))
        driver.on_left_open = log_lines.superseded
        made.append(
            IbmTarget(
                connect,
                scheduler,
                driver,
                marker_key_of(context.queue_manager.name),
                instance=context.instance,
                backoff=Backoff(target.reconnect_from, target.reconnect_to),
                told=partial(log.warning, "connection", target=name),
                attempted=partial(count_attempt, context.counters, name),
            )
        )
    Targets(context, made)
    for one in made:
        one.start()
    return made


def look(settings: Settings, name: str, table: Table | None = None) -> str:
    """Returns in words what a target lacks, including what these rules need. Raises MQError if it does not answer."""
    from gateway.backends.ibm.connection import Connection
    from gateway.backends.ibm.driver import load
    from gateway.backends.ibm.structures import NO_ID
    from gateway.errors import MQError
    from gateway.mq import constants as mq

    connect = _connect_settings(settings, name)
    session, queue = load(_driver(settings)).connect(connect), ""
    try:
        session.inquire(MARKERS, mq.MQIA_CURRENT_Q_DEPTH)
        for queue in consumed_at(name, table):
            Connection(session, lambda _priority: NO_ID).input(queue)
    except MQError as error:
        if queue:
            return f"{queue} cannot be consumed ({error}): define it, or let the gateway's user get from it"
        return f"{MARKERS} cannot be used ({error}): define it, as deploy/mq/state.mqsc does"
    finally:
        session.disconnect()
    return ""


def consumed_at(name: str, table: Table | None) -> Iterator[str]:
    """Yields the queues of a target that rules consume."""
    found = [rule.spec for rule in table.outbound if name in rule.targets] if table is not None else []
    yield from sorted({spec.queue or spec.transmission_queue or SUBSCRIPTIONS for spec in found})


def _connect_settings(settings: Settings, name: str) -> ConnectSettings:
    from gateway.app.queue_managers.ibm import connect_settings

    return connect_settings(settings, settings.targets[name].as_ibm(name), f"targets.{name}")


def _driver(settings: Settings) -> str:
    ibm = settings.queue_manager.ibm
    return ibm.driver if ibm is not None else "auto"

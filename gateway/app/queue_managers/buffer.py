"""IBM MQ with a buffer in front, made where the settings ask for it: the gateway starts even if IBM MQ is away."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from gateway.app.files.data_directory import patiently
from gateway.app.queue_managers.ibm import connect_settings, count_attempt, findings, queues_of, short_of
from gateway.app.reports import log_lines
from gateway.backends.buffer import adoption
from gateway.backends.buffer.ibm_link import IbmLink
from gateway.backends.buffer.queue_manager import BUFFERING, CONNECTED, MOVED_IN, BufferedQueueManager
from gateway.backends.buffer.spool import ADOPTED, COPIED
from gateway.backends.ibm.client import IbmQueueManager
from gateway.backends.ibm.connection import Connection
from gateway.backends.ibm.driver import ConnectSettings, Driver, load
from gateway.backends.ibm.identifiers import MessageIds, NewId
from gateway.backends.ibm.requirements import Problem
from gateway.backends.ibm.worker import Backoff
from gateway.broker.engine import Engine
from gateway.broker.publish.router import policy_in
from gateway.config.counting import counted
from gateway.config.model import Settings
from gateway.errors import ConfigurationError, Finding, MQError
from gateway.mq import constants as mq
from gateway.mq.reason_policy import Action, action_for, explain
from gateway.observe import logs
from gateway.ports.batch import Address, Puts, Scheduler, Takes, Token
from gateway.ports.counters import NO_ROUTE, Counters
from gateway.ports.failure_policy import Policy
from gateway.ports.state_queues import FORWARD, GATEWAYS
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.journal import StoreOptions
from gateway.routing.table import Table

log = logs.get("mqgate.buffer")
STORE = "BUFFER"
"""The name of the embedded queue manager underneath."""
_USED = "gateways without a buffer run on this queue manager; a new buffer would take their sessions from under them"
_END_THEM = "end them all, then start this one"
_LEFT = (
    f"publications for sessions of a gateway that has ended lie on {FORWARD}; in a new buffer they would reach nobody"
)
_HAND_OVER = "start one gateway without `buffer` until that queue is empty, end it, then start this one"
FIRST_LOOK_SECONDS = 10.0
"""How long the start waits for a queue manager that does not answer at all."""


def open_buffered(
    settings: Settings, directory: Path, scheduler: Scheduler, counters: Counters, table: Table
) -> BufferedQueueManager:
    """Open the queue manager and its buffer. Raises the same as without a buffer, except that a queue manager that is
    away is not an error."""
    ibm, buffer = settings.queue_manager.ibm, settings.queue_manager.buffer
    assert ibm is not None  # noqa: S101 -- the settings see to it
    assert buffer is not None  # noqa: S101
    connect, backoff = connect_settings(settings, ibm), Backoff(ibm.reconnect_from, ibm.reconnect_to)
    reads = _Quiet(connect, scheduler, driver=ibm.driver, connections=1, backoff=backoff)
    there = _first_look(reads, settings, table)
    store = patiently(lambda: EmbeddedQueueManager.open(directory, STORE, scheduler, store_options=StoreOptions(STORE)))

    def attempted(reason: int) -> None:
        count_attempt(counters, queue_manager.name, reason)

    new_id = MessageIds(time.time(), os.urandom(4))
    driver = load(ibm.driver)
    driver.on_left_open = log_lines.superseded
    driver.check(connect)
    link = IbmLink(driver, connect, scheduler, new_id, backoff=backoff, attempted=attempted)
    try:
        queue_manager = BufferedQueueManager(
            store, link, reads, scheduler, counters, max_bytes=buffer.max_bytes, name=ibm.name, told=_say
        )
    except BaseException:
        store.close()
        raise
    try:
        _take_over(queue_manager, reads, connect, new_id, there=there)
    except BaseException:
        queue_manager.close()
        raise
    if queue_manager.spool.messages:
        waits = counted(queue_manager.spool.messages, "message waits", "messages wait")
        log.info("recovered", f"{waits} for IBM MQ", directory=str(directory))
    queue_manager.start()
    return queue_manager


class _Quiet(IbmQueueManager):
    """Reads objects and attributes of IBM MQ. It is never started, so its workers do not connect: `IbmLink` commits."""


def _take_over(
    queue_manager: BufferedQueueManager, reads: IbmQueueManager, connect: ConnectSettings, new_id: NewId, *, there: bool
) -> None:
    """Move the state that a gateway without a buffer has left on IBM MQ into the buffer."""
    spool = queue_manager.spool
    if spool.identity.home == ADOPTED:
        return
    if not there:
        if spool.identity.home != COPIED:
            log.warning("state", "the buffer is new and IBM MQ is away: sessions that lie there are not taken over")
            adoption.stay(spool)
        return
    with closing(_Taker(load(reads.driver), connect, new_id)) as taker:
        if taker.is_used():
            raise ConfigurationError([Finding("queue_manager.buffer", 0, 0, _USED, _END_THEM)])
        if taker.is_left():
            raise ConfigurationError([Finding("queue_manager.buffer", 0, 0, _LEFT, _HAND_OVER)])
        found = adoption.adopt(spool, sorted(MOVED_IN), reads.load, taker.remove)
    if found:
        log.info("state", f"{counted(found, 'message')} of the gateway's state moved from IBM MQ into the buffer")


class _Taker:
    """A connection that removes messages."""

    def __init__(self, driver: Driver, connect: ConnectSettings, new_id: NewId) -> None:
        self._connection = Connection(driver.connect(connect), new_id)

    def is_used(self) -> bool:
        """Whether gateways are running whose state this is: each keeps open the queue on which it renews its lease."""
        return int(self._connection.session.inquire(GATEWAYS, mq.MQIA_OPEN_INPUT_COUNT)) > 0

    def is_left(self) -> bool:
        """Whether a gateway has accepted publications for another one that it could not hand over any more."""
        return int(self._connection.session.inquire(FORWARD, mq.MQIA_CURRENT_Q_DEPTH)) > 0

    def remove(self, queue: str, tokens: Sequence[Token]) -> None:
        """Remove the messages, and commit."""
        self._connection.take(Takes(queue, b"", list(tokens)))
        self._connection.session.commit()

    def close(self) -> None:
        """Disconnect."""
        self._connection.session.disconnect()


def _first_look(reads: IbmQueueManager, settings: Settings, table: Table) -> bool:
    """Examine the queue manager at start and log advice. Returns False if it is away."""
    found: list[Problem | MQError] = []

    def look() -> None:
        try:
            found.extend(reads.examine(*queues_of(table), settings.mqtt.max_packet, short_of(table)))
        except MQError as error:
            found.append(error)

    looking = threading.Thread(target=look, name="mq-first-look", daemon=True)
    looking.start()
    looking.join(FIRST_LOOK_SECONDS)
    if looking.is_alive():
        log.warning("away", f"IBM MQ has not answered for {FIRST_LOOK_SECONDS:.0f} s: messages are buffered")
        return False
    for error in found:
        if isinstance(error, MQError):
            text = explain(error.reason, str(error))
            if action_for(error.reason) is not Action.RECONNECT:
                raise MQError(error.reason, text, error.comp_code)
            log.warning("away", f"messages are buffered: {text}")
            return False
    problems = [one for one in found if isinstance(one, Problem)]
    for problem in problems:
        if not problem.serious:
            log.warning("advice", problem.text)
    serious = findings(problems, table)
    if serious:
        raise ConfigurationError(serious)
    return True


def _say(state: str, why: str) -> None:
    """Log a change of the buffer's state."""
    if state == BUFFERING:
        log.warning(state, f"IBM MQ is away, messages go to the buffer: {why}")
    elif state == CONNECTED:
        log.info(state, "IBM MQ has everything, the buffer is empty")
    else:
        log.info(state, "IBM MQ is back, the buffer is being drained")


def join_buffer(engine: Engine, buffer: BufferedQueueManager, declare_names: Callable[[], None]) -> None:
    """Give the buffer the rules of what it stores, and tell the broker when IBM MQ says its names."""

    def connected() -> None:
        engine.context.dead_letter_queue = buffer.dead_letter_queue
        declare_names()

    def rule_of(puts: Puts) -> str:
        destination = engine.context.running.destinations.get(Address.of(puts))
        return NO_ROUTE if destination is None else destination.policy(0).rule

    def policy_of(name: str) -> Policy | None:
        rules = (route.rule for route in engine.router.table.routes)
        return next((policy_in(rule.spec) for rule in rules if rule.name == name), None)

    buffer.policy_of(policy_of)
    buffer.units.rule_of = rule_of
    buffer.on_connected = connected


def buffer_view(buffer: BufferedQueueManager, now: float) -> dict[str, object]:
    """Returns the buffer as the admin API shows it."""
    ages = oldest_by_rule(buffer, now)
    waits = [f"{queue or 'everything'}: {text}" for queue, text in buffer.problems.items()]
    return {
        "messages": buffer.spool.messages,
        "bytes": buffer.spool.bytes,
        "limit_bytes": buffer.max_bytes,
        "oldest_seconds": max(ages.values(), default=None),
        "state": buffer.state,
        "detail": buffer.why if buffer.state == BUFFERING else "; ".join(waits),
    }


def oldest_by_rule(buffer: BufferedQueueManager, now: float) -> dict[str, float]:
    """Returns how long the oldest message of each rule has waited, including the lines of queues that refuse
    messages."""
    found: dict[str, float] = {}
    for since, rule in buffer.spool.waiting_since():
        found[rule or NO_ROUTE] = max(found.get(rule or NO_ROUTE, 0.0), now - since)
    return found

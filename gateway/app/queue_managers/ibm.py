"""The IBM MQ backend, made where the settings ask for it: its drivers are optional."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from gateway.app.files.secrets import read_secret
from gateway.app.queue_managers.mqi_library import load_library, short_name
from gateway.app.reports import log_lines
from gateway.backends.ibm.client import IbmQueueManager
from gateway.backends.ibm.connection import TOPIC_PREFIX
from gateway.backends.ibm.driver import ConnectSettings
from gateway.backends.ibm.requirements import SUBSCRIPTION_TO, Problem
from gateway.backends.ibm.worker import Backoff
from gateway.config.model import Settings
from gateway.config.queue_manager import SOCKET, Ibm
from gateway.errors import ConfigurationError, Finding
from gateway.observe import logs
from gateway.ports.batch import Scheduler
from gateway.ports.counters import Counters, mqrc_label
from gateway.routing.table import Table
from gateway.rules.mappings import InboundRule, OutboundRule

log = logs.get("mqgate.ibm")


def open_ibm(settings: Settings, scheduler: Scheduler, counters: Counters, table: Table) -> IbmQueueManager:
    """Connect. Raises DriverUnavailable, which says which library is missing; MQError, which says what the queue
    manager refuses; or ConfigurationError, which says what its queues lack for these rules."""
    ibm = settings.queue_manager.ibm
    assert ibm is not None  # noqa: S101 -- the caller has looked
    queue_manager = IbmQueueManager(
        connect_settings(settings, ibm),
        scheduler,
        driver=ibm.driver,
        connections=ibm.connections,
        backoff=Backoff(ibm.reconnect_from, ibm.reconnect_to),
        told=lambda text: log.warning("connection", text),
        lease=ibm.lease,
        patient=True,
        attempted=lambda reason: count_attempt(counters, queue_manager.name, reason),
    )
    queue_manager.on_superseded = log_lines.superseded
    queue_manager.on_gone = partial(count_gone, counters, queue_manager.name)
    queue_manager.start()
    problems = queue_manager.examine(*queues_of(table), settings.mqtt.max_packet, short_of(table))
    for problem in problems:
        if not problem.serious:
            log.warning("advice", problem.text)
    serious = findings(problems, table)
    if serious:
        queue_manager.close()
        raise ConfigurationError(serious)
    counters.mq_connect_attempts[queue_manager.name, "ok"] += ibm.connections
    return queue_manager


def count_gone(counters: Counters, name: str, queue: str, count: int) -> None:
    """Count and log messages that devices have got from a queue of IBM MQ, and perhaps somebody else as well."""
    counters.mq_gone_messages[name] += count
    log.warning(
        "message.gone",
        f"{count} messages of {queue} were gone when they were to be taken, but have been delivered to devices: a "
        "program got them, they expired, or a unit of work took so long that MARKINT ran out and another gateway has "
        "handed them on too; then raise it (ALTER QMGR MARKINT)",
        queue=queue,
        count=count,
    )


def count_attempt(counters: Counters, name: str, reason: int) -> None:
    """Count an attempt to connect; reason 0: it succeeded."""
    counters.mq_connect_attempts[name, "failed" if reason else "ok"] += 1
    if reason:
        counters.mq_errors[name, "connect", mqrc_label(reason)] += 1


def findings(problems: Iterable[Problem], table: Table) -> list[Finding]:
    """Returns the problems that stop a rule, each at the rule's file and line."""
    return [_finding(problem, table) for problem in problems if problem.serious]


def _finding(problem: Problem, table: Table) -> Finding:
    rule = rule_of(problem, table)
    if rule is None:
        return Finding("queue_manager.ibm", 0, 0, problem.text)
    return Finding(rule.file, rule.line, 1, f"rule {rule.name!r}: {problem.text}")


def rule_of(problem: Problem, table: Table) -> InboundRule | OutboundRule | None:
    """Returns the first rule that puts to the queue or topic of a problem, consumes it, or subscribes to it."""
    puts = (route.rule for route in table.routes if not route.rule.spec.queue_manager)
    for rule in puts:
        if problem.subject in (rule.spec.queue, f"{TOPIC_PREFIX}{rule.spec.mq_topic}"):
            return rule
    for one in table.outbound:
        named = (one.spec.queue, one.spec.transmission_queue, f"{SUBSCRIPTION_TO}{one.spec.mq_topic}")
        if problem.subject in named and not one.targets:
            return one
    return None


def queues_of(table: Table) -> tuple[list[str], list[str]]:
    """Returns the queues that rules put to and those they consume, as far as named without a template, with topics to
    publish or subscribe to (`topic://`)."""
    specs = [route.rule.spec for route in table.routes if not route.rule.spec.queue_manager]
    puts = {spec.queue or f"{TOPIC_PREFIX}{spec.mq_topic}" for spec in specs if spec.queue or spec.mq_topic}
    own = [rule.spec for rule in table.outbound if not rule.targets]
    consumes = {spec.queue or spec.transmission_queue or "" for spec in own}
    consumes |= {f"{TOPIC_PREFIX}{spec.mq_topic}" for spec in own if spec.mq_topic}
    return sorted(name for name in puts if name and "{" not in name), sorted(name for name in consumes if name)


def short_of(table: Table) -> frozenset[str]:
    """Returns queues whose longest message may be shorter than the longest payload, because all their rules segment or
    refuse it."""
    specs = [route.rule.spec for route in table.routes if route.rule.spec.queue]
    whole = {spec.queue for spec in specs if spec.too_long == "dead_letter"}
    return frozenset(str(spec.queue) for spec in specs if spec.queue not in whole)


def connect_settings(settings: Settings, ibm: Ibm, key: str = "queue_manager.ibm") -> ConnectSettings:
    """Returns how to reach the queue manager. For an embedded one our MQI library is loaded, which the bindings then
    find. Raises DriverUnavailable if it is not available."""
    tls = ibm.tls
    connection = ibm.connection or ""
    if ibm.socket:
        load_library()
        path = Path(settings.resolve(ibm.socket, f"{key}.connection"))
        connection = f"{SOCKET}{short_name(path)}"
    return ConnectSettings(
        name=ibm.name,
        connection=connection,
        channel=ibm.channel or "",
        user=ibm.user or "",
        password=password_of(settings, ibm, key),
        token_file=token_file_of(settings, ibm, key),
        ccdt=ibm.ccdt or "",
        cipher=tls.cipher if tls is not None else "",
        key_repository=tls.key_repository or "" if tls is not None else "",
        certificate_label=tls.certificate_label or "" if tls is not None else "",
        peer_name=tls.peer_name or "" if tls is not None else "",
    )


def password_of(settings: Settings, ibm: Ibm, key: str = "queue_manager.ibm") -> str:
    """Returns the password, from its file or the environment."""
    return read_secret(settings, ibm.password, ibm.password_file, f"{key}.password_file") or ""


def token_file_of(settings: Settings, ibm: Ibm, key: str = "queue_manager.ibm") -> str:
    """Returns the file of the token. Raises ConfigurationError if it does not exist at the start."""
    if ibm.token_file is None:
        return ""
    path = Path(settings.resolve(ibm.token_file, f"{key}.token_file"))
    if not path.is_file():
        raise ConfigurationError([Finding(str(path), 1, 1, "there is no token file", f"check `{key}.token_file`")])
    return str(path)

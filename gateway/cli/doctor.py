"""`mqgate doctor`: what is installed here, what is missing and why it matters."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from gateway.app.files.directories import data_directory
from gateway.cli.extensions import EXTENSIONS, missing
from gateway.cli.reach import settings_file, show_json
from gateway.config.counting import counted
from gateway.config.extras import how_to_install
from gateway.config.load import load_settings
from gateway.config.model import Settings
from gateway.config.queue_manager import Ibm
from gateway.errors import ConfigurationError, DriverUnavailable, MQError, MqgateError, StoreError, StoreInUse

if TYPE_CHECKING:
    from gateway.routing.table import Table

_READ_AT_MOST = 1 << 30
"""A larger store takes long to read, and there is a command for that."""


class Found(NamedTuple):
    """One thing that was examined."""

    what: str
    state: str
    """ok, missing (something cannot be used), or wrong (the gateway will not run as it is)."""
    text: str


@click.command()
@click.option("-c", "--config", type=click.Path(dir_okay=False), help="File of settings to examine too.")
@click.option("--json", "as_json", is_flag=True, help="Output as JSON.")
def doctor(config: str | None, as_json: bool) -> None:
    """Show what is missing here, and why it matters. Exit code 1 if the gateway would not run as configured."""
    found = list(examine(config))
    if as_json:
        show_json([one._asdict() for one in found])
    else:
        marks = {"ok": "ok     ", "missing": "missing", "note": "note   ", "wrong": "WRONG  "}
        for one in found:
            click.echo(f"{marks[one.state]}  {one.what}: {one.text}")
    sys.exit(1 if any(one.state == "wrong" for one in found) else 0)


def examine(config: str | None) -> Iterator[Found]:
    """Yields everything examined, in the order in which an operator would ask."""
    version = platform.python_version()
    yield Found("Python", "ok" if sys.version_info >= (3, 11) else "wrong", f"{version} (3.11 or later is required)")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = hard >= 20_000 or hard == resource.RLIM_INFINITY
    yield Found("open files", "ok" if enough else "note", f"limit {soft}, at most {hard}; each device needs one")
    compiled = _compiled()
    yield compiled
    if compiled.state == "wrong":
        return  # much of the gateway cannot be imported then
    yield _sends()
    config = settings_file(config, None)
    settings, wrong = _settings(config)
    yield _driver(settings)
    yield _tool("C compiler", os.environ.get("CC", "cc"), "the MQI library (mqgate mqi build)", "gcc")
    yield _package("pyspark", "the data pipeline", how_to_install("spark"))
    yield _tool("Java", "java", "the data pipeline", "openjdk-17-jre-headless")
    yield _package("opentelemetry-sdk", "spans (tracing.endpoint)", how_to_install("otel"))
    yield from wrong
    if settings is not None:
        yield Found("settings", "ok", config or "defaults")
        yield from _configured(settings)


def _settings(config: str | None) -> tuple[Settings | None, list[Found]]:
    try:
        return load_settings(config, os.environ, {}), []
    except ConfigurationError as error:
        return None, [Found("settings", "wrong", str(finding)) for finding in error.findings]


def _compiled() -> Found:
    try:
        left = missing()
    except ImportError as error:
        return Found("compiled parts", "wrong", str(error))
    if not left:
        return Found("compiled parts", "ok", ", ".join(EXTENSIONS.values()))
    how = "apt-get install gcc python3-dev, then install mqgate again"
    return Found("compiled parts", "missing", f"done in Python, at up to twice the cost: {', '.join(left)}. {how}")


def _sends() -> Found:
    from gateway.net.wire import compiled, sends_in_one_call

    if sends_in_one_call():
        return Found("io_uring", "ok", "the answers of a batch are sent in one call")
    if not compiled():
        return Found("io_uring", "note", "used by the compiled parts only")
    why = "the kernel is older than 5.18, or kernel.io_uring_disabled or a container's seccomp profile forbids it"
    return Found(
        "io_uring", "note", f"not used: {why}. With it, about a tenth more where devices have one message in flight"
    )


def _driver(settings: Settings | None) -> Found:
    from gateway.app.queue_managers.mqi_library import load_library
    from gateway.backends.ibm.driver import load

    ibm = None if settings is None else settings.queue_manager.ibm
    try:
        if ibm is not None and ibm.socket:
            load_library()  # the bindings find this one, and do not need IBM's
        return Found("IBM MQ", "ok", f"through {load('auto').name}")
    except DriverUnavailable as error:
        return Found("IBM MQ", "missing", f"{error} (needed for queue_manager.ibm only)")


def _tool(what: str, command: str, needed_for: str, package: str) -> Found:
    path = shutil.which(command)
    if path:
        return Found(what, "ok", path)
    return Found(what, "missing", f"needed for {needed_for}: apt-get install {package}")


def _package(name: str, needed_for: str, how: str) -> Found:
    try:
        return Found(name, "ok", importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Found(name, "missing", f"needed for {needed_for}: {how}")


def _configured(settings: Settings) -> Iterator[Found]:
    from gateway.app.mappings import read_table

    table = None
    try:
        table = read_table(settings)
        yield Found("mappings", "ok", f"{counted(len(table.routes), 'rule')} to MQ, {len(table.outbound)} to devices")
    except MqgateError as error:
        yield Found("mappings", "wrong", str(error))
    ibm = settings.queue_manager.ibm
    if ibm is not None:
        yield from _queue_manager(settings, ibm)
    yield from (_target(settings, name, table) for name in settings.targets)
    buffer = settings.queue_manager.buffer
    if buffer is not None:
        yield _buffer(data_directory(settings).absolute(), buffer.max_bytes)
    embedded = settings.queue_manager.embedded
    if embedded is not None:
        path = data_directory(settings).absolute()
        there = path
        while not there.exists():
            there = there.parent
        writable = os.access(there, os.W_OK)
        free = shutil.disk_usage(there).free
        text = f"{path}, {free // 2**20:,} MiB free" if writable else f"{there} cannot be written"
        yield Found("data directory", "ok" if writable and free > 512 << 20 else "wrong", text)
        yield from _store(path)
    for listener in settings.listeners:
        if listener.tls is not None:
            yield _certificate(settings, listener.name, listener.tls.certificate)
        elif listener.bind not in {"127.0.0.1", "::1", "localhost"} and listener.unix is None:
            yield Found(f"listener {listener.name}", "note", "it is neither encrypted nor on loopback: consider `tls`")


def _store(path: Path) -> Iterator[Found]:
    """Yields whether the store of a stopped gateway is intact."""
    from gateway.queue_manager.journal import diagnosis

    size = sum(file.stat().st_size for file in path.glob("*.segment"))
    if not size:
        return
    if size > _READ_AT_MOST:
        yield Found("store", "note", f"not checked, it has {size // 2**30} GiB: `mqgate journal check` reads all of it")
        return
    try:
        found = list(diagnosis.check(path))
    except StoreInUse:
        yield Found("store", "ok", "the running gateway has it open")
        return
    except (StoreError, OSError) as error:
        yield Found("store", "wrong", str(error))
        return
    problems = [one for one in found if isinstance(one, diagnosis.Problem)]
    messages = sum(one.messages for one in found if isinstance(one, diagnosis.Verdict))
    if problems:
        first = f"{problems[0].path}, byte {problems[0].offset}: {problems[0].what}"
        fix = "`mqgate journal salvage` saves what can be read; docs/runbooks/damaged-frame.md says how to continue"
        yield Found("store", "wrong", f"{first}: {fix}")
    else:
        yield Found("store", "ok", f"whole, {counted(messages, 'message')}")


def _queue_manager(settings: Settings, ibm: Ibm) -> Iterator[Found]:
    """Yields whether IBM MQ has the objects that the gateway and its rules need (deploy/mq defines them)."""
    from gateway.app.mappings import read_table
    from gateway.app.queue_managers.ibm import connect_settings, queues_of, rule_of, short_of
    from gateway.backends.ibm.requirements import look
    from gateway.mq.reason_policy import Action, action_for

    what = f"queue manager {ibm.name}"
    away = "wrong" if settings.queue_manager.buffer is None else "missing"
    try:
        table = read_table(settings)
        asked = (*queues_of(table), settings.mqtt.max_packet, short_of(table))
        problems = look(connect_settings(settings, ibm), ibm.driver, *asked)
    except MQError as error:
        gone = action_for(error.reason) is Action.RECONNECT
        yield Found(what, away if gone else "wrong", f"{error}{'; messages are buffered' if away == 'missing' else ''}")
        return
    except MqgateError as error:
        yield Found(what, "wrong", str(error))
        return
    for problem in problems:
        rule = rule_of(problem, table)
        where = f"{rule.file}:{rule.line}: rule {rule.name!r}: " if rule is not None else ""
        yield Found(problem.subject, "wrong" if problem.serious else "missing", f"{where}{problem.text}")
    if not problems:
        yield Found(what, "ok", "its queues are as the gateway needs them")


def _target(settings: Settings, name: str, table: Table | None) -> Found:
    """Returns whether a target answers, and has the queues that a gateway and its rules need there."""
    from gateway.app.queue_managers.targets import look

    try:
        text = look(settings, name, table)
    except MqgateError as error:
        return Found(f"target {name}", "missing", f"{error}; messages to and from it wait")
    return Found(f"target {name}", "wrong" if text else "ok", text or "it is as the gateway needs it")


def _buffer(path: Path, max_bytes: int) -> Found:
    """Returns the state of the buffer's directory, and how much it holds for IBM MQ."""
    from gateway.backends.buffer.spool import ASIDE, ENTRIES
    from gateway.queue_manager.embedded import EmbeddedQueueManager
    from gateway.queue_manager.thread_scheduler import ThreadScheduler

    there = path
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    if not os.access(there, os.W_OK) or free < min(max_bytes, 512 << 20):
        return Found("buffer", "wrong", f"{there} cannot be written or has only {free // 2**20:,} MiB free")
    if not path.exists():
        return Found("buffer", "ok", f"{path}, new, {free // 2**20:,} MiB free")
    try:
        with ThreadScheduler() as scheduler:
            store = EmbeddedQueueManager.open(path, "BUFFER", scheduler)
            waiting = store.depth(ENTRIES) + store.depth(ASIDE)
            store.close()
    except StoreInUse:
        return Found("buffer", "ok", f"{path}, in use by a running gateway, whose page shows what waits")
    except MqgateError as error:
        return Found("buffer", "wrong", str(error))
    waits = counted(waiting, "unit of work waits", "units of work wait")
    return Found("buffer", "ok", f"{path}, {waits} for IBM MQ, {free // 2**20:,} MiB free")


def _certificate(settings: Settings, listener: str, name: str) -> Found:
    from datetime import UTC, datetime

    from cryptography import x509

    path = Path(settings.resolve(name, "listeners"))
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        return Found(f"certificate of {listener}", "wrong", f"{path}: {error}")
    left = certificate.not_valid_after_utc - datetime.now(UTC)
    if left.days < 0:
        return Found(f"certificate of {listener}", "wrong", f"expired on {certificate.not_valid_after_utc:%Y-%m-%d}")
    state, more = ("ok", "") if left.days > 14 else ("note", ": renew it, then `mqgate reload`")
    until = f"{certificate.not_valid_after_utc:%Y-%m-%d}"
    return Found(f"certificate of {listener}", state, f"expires in {counted(left.days, 'day')}, on {until}{more}")

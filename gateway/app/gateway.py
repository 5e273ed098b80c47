"""One gateway process: start, reload, drain, stop, and what is done every second."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.interfaces import IListeningPort
from twisted.internet.task import LoopingCall

from gateway.app import log_lines
from gateway.app.admin_site import admin_root, guard_of
from gateway.app.api import Tracer, endpoints
from gateway.app.data_directory import write_address
from gateway.app.drain import Drain
from gateway.app.gauges import totals_of
from gateway.app.limits import client_rates, take_over
from gateway.app.listener_settings import open_listeners
from gateway.app.mappings import read_table
from gateway.app.parts import LastReload, Parts
from gateway.app.watched_files import Watch, watched_files
from gateway.config.changes import Change, changes
from gateway.config.counting import counted
from gateway.config.model import Settings
from gateway.errors import ConfigurationError
from gateway.mqi.server_protocol import ServerProtocol
from gateway.net import http, mqi
from gateway.net.api import Guard
from gateway.net.rates import SendRates
from gateway.observe import logs
from gateway.observe.history import STEP_SECONDS
from gateway.observe.reports import Reports
from gateway.observe.service import ServiceManager
from gateway.queue_manager.embedded import EmbeddedQueueManager

log = logs.get("mqgate")
TICK_SECONDS = 1.0
COLLECT_TICKS = 60
"""Ticks between two runs of the garbage collector over young objects, which take milliseconds. Of a hundred thousand
new objects it takes notice by itself."""


class Gateway:
    """A running gateway."""

    def __init__(self, settings: Settings, reactor: Any) -> None:
        self.parts = parts = Parts(settings, reactor)
        self.reread: Callable[[], Settings] = lambda: settings
        """Reads the settings again, for a reload."""
        self.guard = Guard()
        self.admin_port: IListeningPort | None = None
        self.mqi_port: IListeningPort | None = None
        self.service = ServiceManager()
        self.tracer = Tracer(parts.engine, parts.inspection)
        self.reports = Reports(parts.counters, log)
        self.on_stopped: Callable[[], None] = lambda: None
        self._ticking = LoopingCall(log_lines.guarded(self._tick))
        self._ticking.clock = reactor
        self._ticks = 0
        self._watch = Watch(lambda: watched_files(parts.settings, parts.table), self._files_changed)

    # -- start and stop --

    def start(self) -> None:
        """Recover, listen, serve. Raises what keeps it from starting."""
        parts = self.parts
        counts = parts.engine.recover()
        parts.recovered = True
        parts.consumers.start(parts.table)
        if parts.settings.log.clients:
            self.tracer.follow(parts.settings.log.clients)
        open_listeners(parts.listeners, parts.settings)
        self._serve_programs()
        self._serve_operators()
        write_address(parts.directory, parts.settings, self.admin_number)
        self._ticking.start(TICK_SECONDS, now=False)
        parts.queue_status.look()
        parts.engine.flush()
        self.service.ready(f"MQTT listeners: {', '.join(parts.listeners.all)}")
        watchdog = self.service.watchdog_seconds()
        if watchdog is not None:
            LoopingCall(self.service.alive).start(watchdog / 2)
        _collect_seldom()
        recovered = {f"recovered_{what}": count for what, count in counts.items()}
        log.info("started", f"queue manager {parts.queue_manager.name}", **recovered)

    def _serve_programs(self) -> None:
        """Programs with the MQI library reach the embedded queue manager through a Unix socket."""
        parts = self.parts
        queue_manager, embedded = parts.queue_manager, parts.settings.queue_manager.embedded
        if not isinstance(queue_manager, EmbeddedQueueManager) or embedded is None:
            return
        path = parts.directory / "mqi.sock"
        if embedded.socket is not None:
            path = Path(parts.settings.resolve(embedded.socket, "queue_manager.embedded.socket"))
        if len(str(path)) > 100:  # a Unix socket's name has room for 107 bytes
            path = Path(os.path.relpath(path))

        def make(write: Callable[[bytes], None], close: Callable[[], None], user: str) -> ServerProtocol:
            soon = parts.scheduler.soon
            return ServerProtocol(queue_manager, write, close, monotonic=time.monotonic, soon=soon, user=user)

        try:
            self.mqi_port = mqi.listen(parts.reactor, path, make)
            log.info("listening", f"MQI programs at {path}", listener="mqi")
        except OSError as error:
            parts.engine.context.problems["MQI socket"] = str(error)
            log.warning("mqi_socket", f"programs cannot connect: {error}")

    def _serve_operators(self) -> None:
        """The admin port, unless it is switched off."""
        parts, admin = self.parts, self.parts.settings.admin
        if admin.port is None:
            return
        self.guard.use(guard_of(parts.directory, parts.settings))
        self.guard.audit = log_lines.audit
        self.guard.on_defect = log_lines.defect
        site = admin_root(parts, endpoints(parts, self.tracer, self.reload, self.drain), self.guard)
        self.admin_port = http.listen(parts.reactor, site, admin.bind, admin.port)
        log.info("listening", f"admin on {admin.bind}:{self.admin_number}", listener="admin")

    @property
    def admin_number(self) -> int:
        """The admin port's number (0: switched off)."""
        port: Any = self.admin_port
        return 0 if port is None else int(port.getHost().port)

    def drain(self) -> None:
        """Accept no more connections, tell clients, let the open batch be committed, then stop."""
        if not self.parts.engine.context.draining:
            Drain(self.parts, self.service, self.parts.settings.process.drain_timeout, self.stop).begin()

    def stop(self) -> None:
        """Close connections, ports and the queue manager at once; `on_stopped` is called at the end."""
        parts = self.parts
        if self._ticking.running:
            self._ticking.stop()
        for connection in list(parts.engine.connections):
            parts.engine.context.close(connection, "draining")
        parts.engine.flush()
        for port in (self.admin_port, self.mqi_port):
            if port is not None:
                port.stopListening()
        if parts.inquiries is not None:
            parts.inquiries.close()
        elif parts.inspection is not None:
            parts.inspection.close()
        close = getattr(parts.queue_manager, "close", None)
        if close is not None:
            close()
        if parts.spans is not None:
            parts.spans.close()
        log.info("stopped", "the gateway has stopped")
        self.on_stopped()

    # -- reload --

    def reload(self) -> None:
        """New rules between two batches. ConfigurationError says what is wrong with a file; then nothing changes."""
        parts = self.parts
        try:
            settings = self.reread()
            table = read_table(settings)
            use_access = parts.access.prepare(settings)
            guard = guard_of(parts.directory, settings)
            wrong = parts.listeners.reload_certificates()
            if wrong:
                raise ConfigurationError(wrong)  # noqa: TRY301 -- counted and reported below
        except ConfigurationError as error:
            self._refused(error)
            raise
        parts.counters.config_reloads["ok"] += 1
        changed = changes(parts.settings, settings)
        parts.settings, parts.table = settings, table
        parts.declare_names()
        parts.engine.router.use(table)
        parts.consumers.use(table)
        use_access()
        self.guard.use(guard)
        parts.listeners.admission.certificate_user = settings.security.certificate_user
        self._use_limits(changed)
        parts.engine.in_flight.check_rights()
        if any(change.key == "log.level" for change in changed):
            logs.set_level(settings.log.level)
        if any(change.key.startswith("log.clients") for change in changed):
            self.tracer.follow(settings.log.clients)
        parts.last_reload = LastReload()
        for change in changed:
            (log.info if change.live else log.warning)("setting", str(change))
        with contextlib.suppress(OSError):  # a full disk: commands look for the token where it was
            write_address(parts.directory, settings, self.admin_number)
        log.info("reloaded", f"{counted(len(table.routes), 'rule')} to MQ, {len(table.outbound)} to devices")

    def _refused(self, error: ConfigurationError) -> None:
        """Log and keep what is wrong with the files."""
        parts = self.parts
        parts.counters.config_reloads["failed"] += 1
        parts.last_reload.ok = False
        parts.last_reload.findings = [
            {"file": one.file, "line": one.line, "column": one.column, "what": one.what, "fix": one.fix}
            for one in error.findings
        ]
        for finding in error.findings:
            log.error("reload_refused", str(finding))

    def _use_limits(self, changed: list[Change]) -> None:
        """Rates, shares and the numbers of connections and sessions. No client is disconnected for them."""
        parts = self.parts
        take_over(parts.engine.limits, parts.settings)
        parts.listeners.admission.use(parts.settings.limits, parts.settings.listeners)
        if any("_per_second" in change.key for change in changed):
            parts.listeners.use_send_rates(SendRates(client_rates(parts.settings), time.monotonic))

    def _files_changed(self) -> None:
        log.info("files_changed", "settings, mappings or files they name have changed")
        with contextlib.suppress(ConfigurationError):  # reload has logged it; what was in force still is
            self.reload()

    # -- every second --

    def _tick(self) -> None:
        parts, now = self.parts, time.monotonic()
        parts.counters.reactor_lag_seconds["0"].observe(max(0.0, now - parts.heartbeat - TICK_SECONDS))
        parts.heartbeat = now
        parts.engine.tick()
        parts.incomplete.look()
        self.reports.look(held=parts.buffer is None and not parts.connected, why=self._why_away)
        self._observe_commits()
        parts.queue_status.look()
        self._ticks += 1
        if self._ticks % COLLECT_TICKS == 0:
            gc.collect(1)
        interval = parts.settings.process.watch_interval
        if interval and self._ticks % max(1, round(interval / TICK_SECONDS)) == 0:
            self._watch.look()
        if self._ticks % int(STEP_SECONDS) == 0:
            parts.history.sample(time.time(), self._sample())

    def _why_away(self) -> str:
        return self.parts.engine.failures.last_text or f"no connection to {self.parts.queue_manager.name}"

    def _observe_commits(self) -> None:
        """How long the commits to the gateway's own disk have taken since the last tick."""
        parts = self.parts
        store = parts.buffer.store if parts.buffer is not None else parts.queue_manager
        if isinstance(store, EmbeddedQueueManager):
            times = store.core.committer.times
            parts.counters.spool_sync_seconds.observe_each([times.popleft() for _ in range(len(times))])

    def _sample(self) -> dict[str, float | None]:
        """What the charts of the admin page are drawn from."""
        parts = self.parts
        totals: dict[str, float | None] = dict(totals_of(parts.counters))
        times = parts.counters.mqtt_puback_seconds
        parts.recent.look([one + two for one, two in zip(times[1].buckets, times[2].buckets, strict=True)])
        parts.activity.look(time.time())
        room = parts.room()
        totals |= {"connections": len(parts.engine.connections), "spool_bytes": room.used if room else None}
        return totals | {"latency_p99_ms": parts.latency()["p99"]}


def _collect_seldom() -> None:
    """Let the garbage collector run seldom, and never over what exists now: a run over the objects of tens of thousands
    of sessions would stop the gateway for every device. Messages and connections end in no cycle of references, which
    tests check; what may still be left is young, and collected by `_tick`."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 10)

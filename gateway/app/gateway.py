"""One gateway process: start, reload, drain, stop, and what is done every second."""

from __future__ import annotations

import gc
import socket
import time
from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IListeningPort
from twisted.internet.task import LoopingCall

from gateway.app import people
from gateway.app.admin_site import admin_root, guard_of
from gateway.app.api.endpoints import endpoints
from gateway.app.api.trace import Tracer
from gateway.app.drain import Drain
from gateway.app.files.data_directory import write_address
from gateway.app.files.emptied_files import emptied_files
from gateway.app.files.watched_files import Watch, watched_files
from gateway.app.limits import client_rates, take_over
from gateway.app.listener_settings import admin_tls, bind_admin, bind_listeners, open_listeners, warning_about_admin
from gateway.app.mappings import read_table
from gateway.app.memory import collect_seldom, freeze_what_exists, keep_what_is_freed
from gateway.app.parts import LastReload, Parts
from gateway.app.queue_managers.embedded import mqi_socket
from gateway.app.reports import log_lines
from gateway.app.reports.audit import AuditTrail
from gateway.app.reports.history import Sampler
from gateway.app.reports.problems import unknown_queues
from gateway.app.reports.recovering import Recovering
from gateway.config.changes import Change, changes
from gateway.config.counting import counted
from gateway.config.model import Settings
from gateway.errors import ConfigurationError, Finding
from gateway.mqi.rounds import Rounds
from gateway.mqi.server_protocol import ServerProtocol
from gateway.net import http, mqi
from gateway.net.descriptors import Descriptors
from gateway.net.guard import Guard
from gateway.net.https import SecureSite
from gateway.net.rates import SendRates
from gateway.observe import logs
from gateway.observe.disk_reports import DiskReports
from gateway.observe.history import STEP_SECONDS
from gateway.observe.reports import Reports
from gateway.observe.service import ServiceManager
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.routing.table import Table

log = logs.get("mqgate")
TICK_SECONDS = 1.0
COLLECT_TICKS = 60
"""Ticks between two runs of the garbage collector over young objects, which take milliseconds. Of ten thousand new
objects it takes notice by itself."""


class Gateway:
    """A running gateway."""

    def __init__(self, settings: Settings, reactor: Any) -> None:
        collect_seldom()
        self.parts = parts = Parts(settings, reactor)
        self.reread: Callable[[], Settings] = lambda: settings
        """Reads the settings again, for a reload."""
        self.guard = Guard()
        self.admin_port: IListeningPort | None = None
        self._admin_socket: socket.socket | None = None
        self.mqi_port: IListeningPort | None = None
        self.service = ServiceManager()
        self.audit = AuditTrail(parts.queue_manager, settings.admin.audit_keep)
        self.tracer = Tracer(parts.engine, parts.inspection)
        self.sampler = Sampler(parts)
        self.reports = Reports(parts.counters, log, parts.clients.happened)
        self.on_stopped: Callable[[], None] = lambda: None
        self._ticking = LoopingCall(log_lines.guarded(self._tick))
        self._ticking.clock = reactor
        self._ticks = 0
        self._findable = True
        """gateway.json says where this process is."""
        self.disk_reports = DiskReports(log)
        self.descriptors = Descriptors(log, parts.engine.context.problems, time.monotonic)
        parts.hub.on_exhausted = self.descriptors.exhausted
        self._watch = Watch(lambda: watched_files(parts.settings, parts.table), self._files_changed)

    # -- start and stop --

    def start(self) -> None:
        """Recover, listen, serve. Raises what prevents the start. All addresses are bound first, so that nothing is
        taken from anybody, such as the sessions of another gateway, by a process that cannot listen."""
        parts = self.parts
        bind_listeners(parts.listeners, parts.settings)
        parts.listeners.admin_tls = admin_tls(parts.settings)
        self._admin_socket = bind_admin(parts.settings.admin)
        counts = parts.engine.recover(Recovering(self.service, time.monotonic).read)
        if parts.users is not None:
            parts.users.start()
        parts.recovered = True
        self.sampler.restore(time.time())
        self._consume()
        if parts.settings.log.clients:
            self.tracer.follow(parts.settings.log.clients)
        self._serve_operators()
        parts.engine.tick()  # $SYS is retained before anybody can subscribe to it
        open_listeners(parts.listeners, parts.settings)
        self._serve_programs()
        self._findable = write_address(parts.directory, parts.settings, self.admin_number)
        self._ticking.start(TICK_SECONDS, now=False)
        parts.queue_status.look()
        parts.engine.flush()
        self.service.ready(f"MQTT listeners: {', '.join(parts.listeners.all)}")
        watchdog = self.service.watchdog_seconds()
        if watchdog is not None:
            LoopingCall(self.service.alive).start(watchdog / 2)
        keep_what_is_freed()
        freeze_what_exists()
        parts.hub.turns.watch()
        recovered = {f"recovered_{what}": count for what, count in counts.items() if count}
        log.info("started", f"queue manager {parts.queue_manager.name}", **recovered)
        self._warn_of_unknown_queues()

    def _consume(self) -> None:
        """Take messages from queues to devices, as soon as it is known what devices at other gateways subscribe to."""
        parts, ownership = self.parts, self.parts.engine.ownership
        if ownership is None:
            parts.consumers.use(parts.table)
        else:
            parts.consumers.know(parts.table)
            ownership.joining.when_over(lambda: parts.consumers.use(parts.table))

    def _serve_programs(self) -> None:
        """Programs with the MQI library reach the embedded queue manager through a Unix socket."""
        parts = self.parts
        queue_manager, embedded = parts.queue_manager, parts.settings.queue_manager.embedded
        if not isinstance(queue_manager, EmbeddedQueueManager) or embedded is None:
            return
        path = mqi_socket(parts.settings, embedded, parts.directory)
        rounds = Rounds(queue_manager, time.monotonic, lambda: parts.scheduler.soon(rounds.run))

        def make(write: Callable[[bytes], None], close: Callable[[], None], user: str, process: int) -> ServerProtocol:
            return ServerProtocol(queue_manager, write, close, monotonic=time.monotonic, user=user, process=process)

        try:
            self.mqi_port = mqi.listen(parts.reactor, path, make, rounds, self.descriptors.exhausted_by_programs)
            queue_manager.serve_through(rounds.soon)
            log.info("listening", f"MQI programs at {path}", listener="mqi")
        except OSError as error:
            parts.engine.context.problems["MQI socket"] = str(error)
            log.warning("mqi_socket", f"programs cannot connect: {error}")

    def _serve_operators(self) -> None:
        """The admin port, unless it is switched off."""
        parts, admin = self.parts, self.parts.settings.admin
        if self._admin_socket is None:
            return
        self.guard.use(guard_of(parts.directory, parts.settings))
        self.guard.audit = self.audit.add
        self.guard.of_token, self.guard.of_cookie = parts.people.of_token, parts.people.of_cookie
        self.guard.on_defect = log_lines.defect
        site = admin_root(parts, endpoints(parts, self.tracer, self.reload, self.drain), self.guard)
        took, other = parts.hub.turns.took, log_lines.admin_other
        self.admin_port = http.listen(parts.reactor, site, self._admin_socket, took, self._secured, other)
        self._tell_page()
        log.info("listening", f"admin on {admin.bind}:{self.admin_number}", listener="admin")
        warning = warning_about_admin(admin)
        if warning:
            log.warning("listener.open", warning, listener="admin")

    def _secured(self, site: http.AdminSite) -> Any:
        """The site behind TLS, where the settings have it."""
        listeners = self.parts.listeners
        if listeners.admin_tls is None:
            return site
        return SecureSite(site, listeners.admin_tls, listeners.handshakes, log_lines.admin_handshake)

    @property
    def admin_number(self) -> int:
        """The admin port's number (0: switched off)."""
        port: Any = self.admin_port
        return 0 if port is None else int(port.getHost().port)

    def _tell_page(self) -> None:
        """Tell the other gateways where this one's administration page is."""
        self.parts.engine.census.page = self.parts.settings.admin.page or self.page(socket.gethostname())

    def page(self, host: str) -> str:
        """Address of the administration page; `host` is this machine where the port listens on every address."""
        admin = self.parts.settings.admin
        if not self.admin_number:
            return ""
        name = host if admin.bind in {"0.0.0.0", "::"} else admin.bind
        name = f"[{name}]" if ":" in name else name
        return f"{admin.scheme}://{name}:{self.admin_number}/admin/"

    def drain(self) -> None:
        """Accept no more connections, tell clients, let the open batch be committed, then stop."""
        if not self.parts.engine.context.draining:
            Drain(self.parts, self.service, self.stop).begin()

    def stop(self) -> None:
        """Close connections, ports and the queue manager at once; `on_stopped` is called at the end."""
        parts = self.parts
        if self._ticking.running:
            self._ticking.stop()
        parts.hub.turns.close()
        parts.reader.close()
        for connection in list(parts.engine.connections):
            parts.engine.context.close(connection, "draining")
        parts.engine.flush()
        parts.device_events.end()
        for port in (self.admin_port, self.mqi_port):
            if port is not None:
                port.stopListening()
        if parts.inquiries is not None:
            parts.inquiries.close()
        elif parts.inspection is not None:
            parts.inspection.close()
        for target in parts.targets:
            target.close()
        close = getattr(parts.queue_manager, "close", None)
        if close is not None:
            close()
        if parts.spans is not None:
            parts.spans.close()
        parts.people.close()
        log.info("stopped", "the gateway has stopped")
        self.on_stopped()

    # -- reload --

    def reload(self, told: Callable[[Exception | None], None] = log_lines.not_reloaded) -> None:
        """Read the files again, and put what is in them into force between two batches; the log says so when what the
        new rules consume is open. `told` is called with None, or with the exception: a ConfigurationError says what is
        wrong with a file, and nothing has changed."""

        def read() -> tuple[Settings, Table]:
            settings = self.reread()
            return settings, read_table(settings)

        def use(found: tuple[Settings, Table] | Exception) -> None:
            try:
                if isinstance(found, Exception):
                    raise found  # noqa: TRY301 -- as what is found below
                self._use(*found)
            except ConfigurationError as error:
                self._refused(error)
                told(error)
            except Exception as error:  # noqa: BLE001 -- told apart where it is answered
                self._refused(ConfigurationError([_met(error)]))
                told(error)
            else:
                self.parts.counters.config_reloads["ok"] += 1
                told(None)

        self.parts.reader.ask(read, use)

    def _use(self, settings: Settings, table: Table) -> None:
        """Put settings and rules into force. Raises ConfigurationError if something is wrong with a file; then nothing
        has changed. After a defect, what was in force before is put into force again."""
        parts = self.parts
        before = parts.settings, parts.table
        prepared = self._prepare(settings)
        wrong = emptied_files(*before, settings, table) or parts.listeners.reload_certificates()
        if wrong:
            raise ConfigurationError(wrong)
        try:
            self._put_into_force(settings, table, prepared)
        except Exception as error:
            try:
                self._put_into_force(*before, self._prepare(before[0]))
            except Exception as worse:  # noqa: BLE001 -- told with the first one
                error.add_note(f"and what was in force could not be so again: {worse!r}")
            raise

    def _prepare(self, settings: Settings) -> Callable[[], None]:
        """Read the files with users and keys; calling what is returned puts them into force. Raises ConfigurationError
        if one is wrong."""
        parts = self.parts
        use_access, guard = parts.access.prepare(settings), guard_of(parts.directory, settings)
        use_people = people.prepare(parts.people, parts.settings, settings, parts.directory)

        def use() -> None:
            use_access()
            use_people()
            self.guard.use(guard)

        return use

    def _put_into_force(self, settings: Settings, table: Table, use_prepared: Callable[[], None]) -> None:
        parts = self.parts
        changed = changes(parts.settings, settings)
        parts.settings, parts.table = settings, table
        parts.declare_names()
        parts.engine.use(table)
        parts.consumers.use(table)
        use_prepared()
        parts.use_events()
        self.audit.keep = settings.admin.audit_keep
        self._tell_page()
        parts.listeners.admission.certificate_user = settings.security.certificate_user
        self._use_limits(changed)
        parts.engine.in_flight.check_rights()
        if any(change.key == "log.level" for change in changed):
            logs.set_level(settings.log.level)
        parts.clients.connections = settings.log.connections
        if any(change.key.startswith("log.clients") for change in changed):
            self.tracer.follow(settings.log.clients)
        parts.last_reload = LastReload()
        waiting = {change.key: change for change in parts.waiting_for_restart()}
        for change in changed:
            if change.live:
                log.info("setting", str(change))
            elif change.key in waiting:  # else it is again what has been in force since the start
                log.warning("setting", str(waiting[change.key]))
        self._findable = write_address(parts.directory, settings, self.admin_number)
        rules = f"{counted(len(table.routes), 'rule')} to MQ, {len(table.outbound)} to devices"
        parts.consumers.when_open(lambda: log.info("reloaded", rules))
        self._warn_of_unknown_queues()

    def _warn_of_unknown_queues(self) -> None:
        for text in unknown_queues(self.parts):
            log.warning("queue.unknown", text)

    def _refused(self, error: ConfigurationError) -> None:
        """Log and remember what is wrong with the files."""
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
        """Put new rates, shares and numbers of connections and sessions into force. No client is disconnected because
        of them."""
        parts = self.parts
        take_over(parts.engine.limits, parts.settings)
        parts.listeners.admission.use(parts.settings.limits, parts.settings.listeners)
        if any("_per_second" in change.key for change in changed):
            parts.listeners.use_send_rates(SendRates(client_rates(parts.settings), time.monotonic))

    def _files_changed(self, over: Callable[[], None]) -> None:
        log.info("files_changed", "settings, mappings or files they name have changed")

        def told(error: Exception | None) -> None:
            over()
            log_lines.not_reloaded(error)

        self.reload(told)

    # -- every second --

    def _tick(self) -> None:
        parts, now = self.parts, time.monotonic()
        parts.counters.reactor_lag_seconds["0"].observe(max(0.0, now - parts.heartbeat - TICK_SECONDS))
        parts.heartbeat = now
        parts.engine.tick()
        parts.incomplete.look()
        held = not parts.connected and (parts.buffer is None or bool(parts.disk_hangs()))
        self.reports.look(held=held, why=self._why_away)
        self._observe_commits()
        parts.queue_status.look()
        self._ticks += 1
        self.disk_reports.look(parts.storage_full)  # before removed files are made again, which may be at once
        if isinstance(store := parts.own_store, EmbeddedQueueManager):
            store.look_after_files()
            parts.counters.spool_corrupt_records += self.disk_reports.look_at_damage(store.damaged())
        self.descriptors.look()
        if not self._findable and parts.storage_full is None:
            self._findable = write_address(parts.directory, parts.settings, self.admin_number, again=True)
        if self._ticks % COLLECT_TICKS == 0:
            gc.collect(1)
        interval = parts.settings.process.watch_interval
        if interval and self._ticks % max(1, round(interval / TICK_SECONDS)) == 0:
            self._watch.look()
        if self._ticks % int(STEP_SECONDS) == 0:
            self.sampler.sample(time.time())

    def _why_away(self) -> str:
        return self.parts.why_away() or f"no connection to {self.parts.queue_manager.name}"

    def _observe_commits(self) -> None:
        """Record how long the commits to the gateway's own disk have taken since the last tick."""
        parts = self.parts
        if isinstance(store := parts.own_store, EmbeddedQueueManager):
            times = store.core.committer.times
            parts.counters.spool_sync_seconds.observe_each([times.popleft() for _ in range(len(times))])


def _met(error: Exception) -> Finding:
    """A defect that was met where a reload was put into force."""
    mixed = bool(getattr(error, "__notes__", ()))
    fix = "some of it may be in force: restart the gateway" if mixed else "tell its makers what the log says"
    return Finding("mqgate", 0, 0, f"a defect of the gateway: {error!r}", fix)

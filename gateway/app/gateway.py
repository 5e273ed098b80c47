"""One gateway process: its parts, made and joined; start, reload, drain, stop."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from twisted.internet.interfaces import IListeningPort
from twisted.internet.task import LoopingCall

from gateway.app import collecting, notices
from gateway.app.access import access_of
from gateway.app.api import Tracer
from gateway.app.gauges import gauges_of, totals_of
from gateway.app.incomplete import Stays
from gateway.app.inspecting import inspection_of, questions_of
from gateway.app.limits import client_rates, limits_of, take_over
from gateway.app.listening import open_listeners
from gateway.app.mappings import read_table
from gateway.app.resources import Room, room_for, room_of
from gateway.app.secrets import mqi_users
from gateway.app.site import admin_root, guard_of, private, write_address
from gateway.app.spans import open_spans
from gateway.app.stopping import Stopping
from gateway.app.watching import Watch, watched_files
from gateway.backends.buffer.queue_manager import BUFFERING, BufferedQueueManager
from gateway.broker.deliver.consumers import Consumers
from gateway.broker.engine import Engine
from gateway.broker.publish.router import Router
from gateway.broker.sessions.recovery import recover
from gateway.config.changes import Change, changes
from gateway.config.counting import counted
from gateway.config.model import Settings
from gateway.errors import ConfigurationError
from gateway.mqi.front import Front
from gateway.net import http, mqi
from gateway.net.api import Guard
from gateway.net.hub import Hub
from gateway.net.listeners import Listeners
from gateway.net.rates import SendRates
from gateway.net.scheduler import ReactorScheduler
from gateway.observe import logs
from gateway.observe.activity import Activity, Recent
from gateway.observe.health import Snapshot
from gateway.observe.history import STEP_SECONDS, History
from gateway.observe.reports import Reports
from gateway.observe.service import ServiceManager
from gateway.ports.batch import BatchQueueManager
from gateway.ports.counters import LATENCY_BUCKETS, Counters, Names
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.journal import StoreOptions
from gateway.routing.table import Table

log = logs.get("mqgate")
TICK_SECONDS = 1.0


class Gateway:
    """A running gateway."""

    def __init__(self, settings: Settings, reactor: Any) -> None:
        self.settings = self.started_with = settings
        self.reread: Callable[[], Settings] = lambda: settings
        """Reads the settings again, for a reload."""
        self.reactor = reactor
        self.scheduler = ReactorScheduler(reactor)
        private(self.directory)
        self.table = read_table(settings)
        self.counters = Counters()
        self.queue_manager = self._open_queue_manager()
        self.access = access_of(settings, self.scheduler)
        router = Router(
            self.table, self.access, lambda: f"auto-{secrets.token_hex(12)}", settings.mqtt.max_topic_levels,
            partial(os.urandom, 8),
        )  # fmt: skip
        self.engine = Engine(
            self.queue_manager, self.scheduler, limits_of(settings), router, self.access, self.counters
        )
        self.engine.dead_letter_queue = self.dead_letter_queue()
        if self.buffer is not None:
            from gateway.app.buffer import join_buffer

            join_buffer(self, self.buffer)
        self.hub = Hub(reactor, self.engine)
        self.engine.on_pause = self.hub.pause
        self.engine.answers.write_each = self.hub.write_each
        self.engine.on_end = notices.ended
        self.engine.stored.on_full = notices.full
        self.spans = open_spans(settings, self.engine)
        self.hub.on_defect = notices.defect
        self.hub.on_fatal = notices.fatal
        self.hub.rates = SendRates(client_rates(settings), time.monotonic)
        self.listeners = Listeners(reactor, self.engine, self.hub, settings.limits)
        self.listeners.certificate_user = settings.security.certificate_user
        self.listeners.on_refused = notices.not_admitted
        self.guard = Guard()
        self.consumers = Consumers(self.engine.context, self.engine.handover)
        self.stays = Stays(self.consumers)
        self.admin_port: IListeningPort | None = None
        self.mqi_port: IListeningPort | None = None
        self.service = ServiceManager()
        self.started_at, self.heartbeat = time.time(), time.monotonic()
        self.recovered = False
        self.reload_ok, self.reloaded_at = True, time.time()
        self.reload_findings: list[dict[str, object]] = []
        self.declare_names()
        self.gauges = gauges_of(self)
        self.history, self.activity, self.recent = History(), Activity(self.counters), Recent(LATENCY_BUCKETS)
        self.tracer = Tracer(self)
        self.inspection = inspection_of(self)
        self.inquiries, self.sights = questions_of(self)
        self._ticking = LoopingCall(notices.kept_on(self._tick))
        self._ticking.clock = reactor
        self._ticks = 0
        self._watch = Watch(lambda: watched_files(self.settings, self.table), self._files_changed)
        self.reports = Reports(self.counters, log)
        self.on_stopped: Callable[[], None] = lambda: None

    def _open_queue_manager(self) -> BatchQueueManager:
        """The queue manager the settings ask for."""
        ibm = self.settings.queue_manager.ibm
        if self.settings.queue_manager.buffer is not None:
            from gateway.app.buffer import open_buffered  # the drivers are optional

            return open_buffered(self.settings, self.directory, self.scheduler, self.counters, self.table)
        if ibm is not None:
            from gateway.app.ibm import open_ibm  # the drivers are optional

            return open_ibm(self.settings, self.scheduler, self.counters, self.table)
        embedded = self.settings.queue_manager.embedded
        assert embedded is not None  # noqa: S101 -- the settings see to it
        text = ""
        if embedded.objects is not None:
            path = self.settings.resolve(embedded.objects, "queue_manager.embedded.objects")
            text = Path(path).read_text(encoding="utf-8")
        return EmbeddedQueueManager.open(
            self.directory, embedded.name, self.scheduler, text, users=mqi_users(self.settings),
            administrators=embedded.administrators,
            check_client=embedded.check_client, max_uncommitted=embedded.max_uncommitted,
            store_options=StoreOptions(
                embedded.name, segment_bytes=embedded.segment_bytes, max_bytes=embedded.max_bytes
            ),
        )  # fmt: skip

    @property
    def buffer(self) -> BufferedQueueManager | None:
        """The buffer in front of IBM MQ, where one is set."""
        return self.queue_manager if isinstance(self.queue_manager, BufferedQueueManager) else None

    @property
    def connected(self) -> bool:
        """Whether the queue manager takes messages."""
        if self.buffer is not None:
            here = self.buffer.state != BUFFERING
        else:
            here = bool(getattr(self.queue_manager, "connected", True))
        return here and not self.engine.held_since

    def room(self) -> Room | None:
        """What the messages on the gateway's own disk take, and what they may take."""
        buffer = self.buffer
        if buffer is None:
            return room_of(self.settings)
        return Room(buffer.spool.bytes, room_for(self.directory, buffer.spool.bytes, buffer.max_bytes))

    @property
    def directory(self) -> Path:
        """Where this process keeps its files: the journal's directory, or the buffer's."""
        embedded = self.settings.queue_manager.embedded
        if embedded is not None:
            return Path(self.settings.resolve(embedded.path, "queue_manager.embedded.path"))
        buffer = self.settings.queue_manager.buffer
        name = buffer.path if buffer is not None else "./mqgate-data"
        return Path(self.settings.resolve(name, "queue_manager.buffer.path"))

    def dead_letter_queue(self) -> str:
        """The queue manager's DEADQ."""
        name: str = getattr(self.queue_manager, "dead_letter_queue", "SYSTEM.DEAD.LETTER.QUEUE")
        return name

    def declare_names(self) -> None:
        """The closed label sets of the metrics."""
        rules = [route.rule.name for route in self.table.routes] + [rule.name for rule in self.table.outbound]
        listeners = [listener.name for listener in self.settings.listeners]
        self.counters.declare(Names(tuple(listeners), tuple(dict.fromkeys(rules)), (self.queue_manager.name,)))

    # -- start and stop --

    def start(self) -> None:
        """Recover, listen, serve. Raises what keeps it from starting."""
        found = recover(self.engine)
        self.recovered = True
        self.consumers.start(self.table)
        if self.settings.log.clients:
            self.tracer.follow(self.settings.log.clients)
        open_listeners(self.listeners, self.settings)
        self._serve_programs()
        admin = self.settings.admin
        if admin.port is not None:
            self.guard.use(guard_of(self.directory, self.settings))
            self.guard.audit = notices.audit
            self.guard.on_defect = notices.defect
            self.admin_port = http.listen(self.reactor, admin_root(self, self.guard), admin.bind, admin.port)
            log.info("listening", f"admin on {admin.bind}:{self.admin_number}", listener="admin")
        write_address(self.directory, self.settings, self.admin_number)
        self._ticking.start(TICK_SECONDS, now=False)
        self.sights.look()
        self.engine.flush()
        self.service.ready(f"MQTT listeners: {', '.join(self.listeners.all)}")
        watchdog = self.service.watchdog_seconds()
        if watchdog is not None:
            LoopingCall(self.service.alive).start(watchdog / 2)
        collecting.settle()
        log.info(
            "started", f"queue manager {self.queue_manager.name}", **{f"recovered_{k}": v for k, v in found.items()}
        )

    def _serve_programs(self) -> None:
        """Programs with the MQI library reach the embedded queue manager through a Unix socket."""
        queue_manager, embedded = self.queue_manager, self.settings.queue_manager.embedded
        if not isinstance(queue_manager, EmbeddedQueueManager) or embedded is None:
            return
        path = self.directory / "mqi.sock"
        if embedded.socket is not None:
            path = Path(self.settings.resolve(embedded.socket, "queue_manager.embedded.socket"))
        if len(str(path)) > 100:  # a Unix socket's name has room for 107 bytes
            path = Path(os.path.relpath(path))

        def make(write: Callable[[bytes], None], close: Callable[[], None], user: str) -> Front:
            soon = self.scheduler.soon
            return Front(queue_manager, write, close, monotonic=time.monotonic, soon=soon, user=user)

        try:
            self.mqi_port = mqi.listen(self.reactor, path, make)
            log.info("listening", f"MQI programs at {path}", listener="mqi")
        except OSError as error:
            self.engine.problems["MQI socket"] = str(error)
            log.warning("mqi_socket", f"programs cannot connect: {error}")

    @property
    def admin_number(self) -> int:
        """The admin port's number (0: switched off)."""
        port: Any = self.admin_port
        return 0 if port is None else int(port.getHost().port)

    def drain(self, seconds: float | None = None) -> None:
        """Stop taking connections, tell clients, let what is under way be committed, close."""
        if not self.engine.draining:
            Stopping(self, self.settings.process.drain_timeout if seconds is None else seconds).begin()

    def stop(self) -> None:
        """Everything is over: close the queue manager and say so."""
        if self._ticking.running:
            self._ticking.stop()
        for connection in list(self.engine.connections):
            self.engine.close(connection, "draining")
        self.engine.flush()
        for port in (self.admin_port, self.mqi_port):
            if port is not None:
                port.stopListening()
        if self.inquiries is not None:
            self.inquiries.close()
        elif self.inspection is not None:
            self.inspection.close()
        close = getattr(self.queue_manager, "close", None)
        if close is not None:
            close()
        if self.spans is not None:
            self.spans.close()
        log.info("stopped", "the gateway has stopped")
        self.on_stopped()

    # -- while it runs --

    def reload(self) -> None:
        """New rules between two batches; a bad file changes nothing and says why (ConfigurationError)."""
        try:
            settings = self.reread()
            table: Table = read_table(settings)
            use_access = self.access.prepare(settings)
            guard = guard_of(self.directory, settings)
            wrong = self.listeners.reload_certificates()
            if wrong:
                raise ConfigurationError(wrong)  # noqa: TRY301 -- counted and reported below
        except ConfigurationError as error:
            self.reload_ok = False
            self.counters.config_reloads["failed"] += 1
            self.reload_findings = [
                {"file": one.file, "line": one.line, "column": one.column, "what": one.what, "fix": one.fix}
                for one in error.findings
            ]
            for finding in error.findings:
                log.error("reload_refused", str(finding))  # noqa: TRY400 -- the finding is the message
            raise
        self.reload_findings = []
        self.counters.config_reloads["ok"] += 1
        changed = changes(self.settings, settings)
        self.settings, self.table = settings, table
        self.declare_names()
        self.engine.router.use(table)
        self.consumers.use(table)
        use_access()
        self.guard.use(guard)
        self.listeners.certificate_user = settings.security.certificate_user
        self._use_limits(changed)
        self.engine.in_flight.check_rights()
        if any(change.key == "log.level" for change in changed):
            logs.set_level(settings.log.level)
        if any(change.key.startswith("log.clients") for change in changed):
            self.tracer.follow(settings.log.clients)
        self.reload_ok, self.reloaded_at = True, time.time()
        for change in changed:
            (log.info if change.live else log.warning)("setting", str(change))
        with contextlib.suppress(OSError):  # a full disk: commands look for the token where it was
            write_address(self.directory, settings, self.admin_number)
        log.info("reloaded", f"{counted(len(table.routes), 'rule')} to MQ, {len(table.outbound)} to devices")

    def _use_limits(self, changed: list[Change]) -> None:
        """Rates, shares and the numbers of connections and sessions; those who are in stay in."""
        take_over(self.engine.limits, self.settings)
        self.listeners.use(self.settings.limits, self.settings.listeners)
        if any("_per_second" in change.key for change in changed):
            self.listeners.use_send_rates(SendRates(client_rates(self.settings), time.monotonic))

    def waiting_for_restart(self) -> list[Change]:
        """Settings that a reload has read and cannot put into force."""
        return [change for change in changes(self.started_with, self.settings) if not change.live]

    def _files_changed(self) -> None:
        log.info("files_changed", "settings, mappings or files they name have changed")
        with contextlib.suppress(ConfigurationError):  # said by the reload; what was in force still is
            self.reload()

    def _tick(self) -> None:
        now = time.monotonic()
        self.counters.reactor_lag_seconds["0"].observe(max(0.0, now - self.heartbeat - TICK_SECONDS))
        self.heartbeat = now
        self.engine.tick()
        self.stays.look()
        away = self.buffer is None and not self.connected
        self.reports.look(held=away, why=self._why_away)
        self._note_commits()
        self.sights.look()
        self._ticks += 1
        collecting.look(self._ticks)
        interval = self.settings.process.watch_interval
        if interval and self._ticks % max(1, round(interval / TICK_SECONDS)) == 0:
            self._watch.look()
        if self._ticks % int(STEP_SECONDS) == 0:
            self.history.sample(time.time(), self.sample())

    def _why_away(self) -> str:
        return self.engine.failures.last_text or f"no connection to {self.queue_manager.name}"

    def _note_commits(self) -> None:
        """How long the commits to the gateway's own disk have taken since the last tick."""
        store = self.buffer.store if self.buffer is not None else self.queue_manager
        if isinstance(store, EmbeddedQueueManager):
            times = store.core.committer.times
            self.counters.spool_sync_seconds.observe_each([times.popleft() for _ in range(len(times))])

    def sample(self) -> dict[str, float | None]:
        """What the charts of the admin page are made of."""
        totals: dict[str, float | None] = dict(totals_of(self.counters))
        times = self.counters.mqtt_puback_seconds
        self.recent.look([one + two for one, two in zip(times[1].buckets, times[2].buckets, strict=True)])
        self.activity.look(time.time())
        room = self.room()
        totals |= {"connections": len(self.engine.connections), "spool_bytes": room.used if room else None}
        return totals | {"latency_p99_ms": self.latency()["p99"]}

    def latency(self) -> dict[str, float | None]:
        """Median and 99th percentile of the last seconds, as the upper bound of their bucket, in milliseconds."""
        found = {name: self.recent.share(share) for name, share in (("p50", 0.5), ("p99", 0.99))}
        return {name: None if bound is None else bound * 1000 for name, bound in found.items()}

    def snapshot(self) -> Snapshot:
        """What the probes are answered from."""
        room = self.room()
        return Snapshot(
            configured=True,
            recovered=self.recovered,
            listening={
                name: one.acceptor is not None or one.port is not None for name, one in self.listeners.all.items()
            },
            draining=self.engine.draining,
            heartbeat_ages={"0": time.monotonic() - self.heartbeat},
            queue_managers={self.queue_manager.name: self.connected},
            refusal=self.engine.failures.last_text if self.inspection is not None else "",
            buffered=self.buffer is not None,
            spool_bytes=room.used if room else 0,
            spool_limit_bytes=room.limit if room else 0,
        )

"""The embedded queue manager as a process of its own: its MQI socket, probes, metrics, and an orderly end.

Several gateways on one machine share it (decision 0060), and MQ programs reach it as they reach that of a gateway. One
thread serves all programs; the reactor handles signals, the admin port and what is done every second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IListeningPort
from twisted.internet.task import LoopingCall
from twisted.web.resource import Resource
from twisted.web.server import Request

from gateway.app.files.data_directory import make_private, patiently
from gateway.app.files.directories import data_directory
from gateway.app.listener_settings import bind_admin
from gateway.app.mappings import gateway_name
from gateway.app.memory import collect_seldom, freeze_what_exists, keep_what_is_freed
from gateway.app.queue_managers.embedded import mqi_socket, open_embedded
from gateway.app.reports import log_lines
from gateway.app.reports.resources import room_of
from gateway.config.model import Settings
from gateway.errors import ConfigurationError
from gateway.mqi.serve import MAX_PROGRAMS, MqiServer
from gateway.net import http
from gateway.net.descriptors import most_for_programs
from gateway.net.http import Answer, Folder, Page
from gateway.observe import health, logs, metrics
from gateway.observe.disk_reports import DiskReports, disk_hangs
from gateway.observe.metrics import Gauges, build_info
from gateway.observe.service import ServiceManager
from gateway.ports.counters import Counters
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.thread_scheduler import ThreadScheduler
from gateway.version import VERSION

log = logs.get("mqgate")
TICK_SECONDS = 1.0


class QueueManagerProcess:
    """Opened with `start`, ended with `stop`."""

    def __init__(self, settings: Settings, reactor: Any) -> None:
        embedded = settings.queue_manager.embedded
        if embedded is None:
            what = "`queue_manager.ibm` names IBM MQ, but this command serves the embedded queue manager"
            raise ConfigurationError([settings.finding("queue_manager.ibm", what, "give `embedded` instead")])
        self._settings = settings
        self._embedded = embedded
        self._reactor = reactor
        self.directory = data_directory(settings)
        self.socket = mqi_socket(settings, embedded, self.directory)
        self._scheduler = ThreadScheduler()
        self._queue_manager: EmbeddedQueueManager | None = None
        self._server: MqiServer | None = None
        self.admin_port: IListeningPort | None = None
        self._ticking = LoopingCall(log_lines.guarded(self._tick))
        self._ticking.clock = reactor
        self._service = ServiceManager()
        self._disk_reports = DiskReports(log)
        self._answered = time.monotonic()
        """When the thread that serves programs last gave a sign of life."""
        self._counters = Counters()
        self._stopping = False

    def start(self) -> None:
        """Recover, define what gateways need, and serve. Raises StoreError, ConfigurationError or OSError; nothing is
        left running then."""
        collect_seldom()
        try:
            make_private(self.directory)
        except OSError as error:
            text = f"{self.directory}: {error.strerror}: the data directory must be a writable directory"
            raise OSError(text) from error
        admin = bind_admin(self._settings.admin) if self._settings.said_by("admin.port") != "default" else None
        self._scheduler.__enter__()
        try:
            self._queue_manager = opened = patiently(
                lambda: open_embedded(self._settings, self.directory, self._scheduler, self._counters)
            )
            opened.define_state_queues()
            self._server = MqiServer(
                opened, self.socket, max_connections=min(MAX_PROGRAMS, most_for_programs()), on_fatal=log_lines.fatal
            )
            self._server.start()
        except BaseException:
            if admin is not None:
                admin.close()
            self._close()
            raise
        if admin is not None:
            self.admin_port = http.listen(self._reactor, self._site(opened), admin, other=log_lines.admin_other)
            log.info("listening", f"admin on {self._settings.admin.bind}:{self.admin_number}", listener="admin")
        log.info("listening", f"MQI programs at {self.socket}", listener="mqi")
        self._ticking.start(TICK_SECONDS, now=False)
        self._service.ready(f"MQI programs at {self.socket}")
        watchdog = self._service.watchdog_seconds()
        if watchdog is not None:
            LoopingCall(self._feed).start(watchdog / 2)
        keep_what_is_freed()
        freeze_what_exists()
        log.info("started", f"queue manager {opened.name} in {self.directory}")

    @property
    def admin_number(self) -> int:
        """The admin port's number (0: there is none)."""
        port: Any = self.admin_port
        return 0 if port is None else int(port.getHost().port)

    def stop(self) -> None:
        """Disconnect programs, whose open units of work are backed out, write what was submitted, and give up the
        socket and the directory."""
        if self._stopping:
            return
        self._stopping = True
        self._service.stopping("programs are disconnected")
        if self._ticking.running:
            self._ticking.stop()
        if self.admin_port is not None:
            self.admin_port.stopListening()
        self._close()
        log.info("stopped", "the queue manager has stopped")

    def _close(self) -> None:
        if self._server is not None:
            self._server.stop()
        if self._queue_manager is not None:
            self._queue_manager.close()
        self._scheduler.__exit__(None, None, None)

    def _tick(self) -> None:
        if self._server is not None:
            self._server.soon(self._beat)
        if self._queue_manager is not None:
            self._disk_reports.look(self._queue_manager.storage_full)  # before removed files are made again
            self._queue_manager.look_after_files()
            self._disk_reports.look_at_damage(self._queue_manager.damaged())
            self._disk_reports.look_at_writes(self._disk_hangs())

    def _disk_hangs(self) -> str:
        silence = self._queue_manager.disk_silence if self._queue_manager is not None else 0.0
        return disk_hangs(str(self.directory), silence)

    def _beat(self) -> None:
        self._answered = time.monotonic()

    def _feed(self) -> None:
        if time.monotonic() - self._answered < health.HEARTBEAT_SECONDS:
            self._service.alive()

    # -- the admin port --

    def _site(self, queue_manager: EmbeddedQueueManager) -> Resource:
        root = Folder()
        registry = metrics.registry_of(self._counters, self._gauges(queue_manager))

        def exposition(request: Request) -> Answer:
            body, content_type = metrics.rendered(registry, request.getHeader("accept") or "")
            return 200, body, content_type

        root.putChild(b"metrics", Page(exposition))
        for name, question in ((b"livez", health.livez), (b"readyz", health.readyz), (b"startupz", health.startupz)):
            root.putChild(name, Page(self._probe(question)))
        return root

    def _gauges(self, queue_manager: EmbeddedQueueManager) -> Gauges:
        def queues() -> list[str]:
            return [name for name in queue_manager.local_queues() if not name.startswith("SYSTEM.")]

        def limits(part: int) -> dict[tuple[object, ...], float]:
            names = {*queues(), queue_manager.dead_letter_queue}
            found = {name: queue_manager.depth_limits(name) for name in names if name}
            return {(name,): float(each[part]) for name, each in found.items() if each is not None}

        def full_since() -> float:
            full = queue_manager.storage_full
            return full.since if full is not None else 0.0

        return Gauges(
            build_info=build_info(VERSION, "embedded", gateway_name(self._settings)),
            queue_depth=lambda: {(name,): float(queue_manager.depth(name)) for name in queues()},
            queue_max_depth=lambda: limits(0),
            queue_high_depth=lambda: limits(1),
            spool_bytes=lambda: float(room.used) if (room := room_of(self._settings)) else 0.0,
            spool_limit_bytes=lambda: float(room.limit) if (room := room_of(self._settings)) else 0.0,
            spool_full_since_seconds=full_since,
        )

    def _probe(self, question: Callable[[health.Snapshot], health.Verdict]) -> Callable[[Request], Answer]:
        def answer(request: Request) -> Answer:
            del request
            verdict = question(self.snapshot())
            return verdict.status, verdict.text().encode(), "text/plain; charset=utf-8"

        return answer

    def snapshot(self) -> health.Snapshot:
        """Returns the state from which the probes are answered."""
        opened, room, hangs = self._queue_manager, room_of(self._settings), self._disk_hangs()
        return health.Snapshot(
            configured=True,
            recovered=opened is not None,
            listening={"mqi": self._server is not None},
            draining=self._stopping,
            heartbeat_ages={"mqi": time.monotonic() - self._answered},
            queue_managers={self._embedded.name: opened is not None and not hangs},
            refusal=hangs,
            spool_bytes=room.used if room else 0,
            spool_limit_bytes=room.limit if room else 0,
            storage_full=opened.storage_full if opened is not None else None,
        )

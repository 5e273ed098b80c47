"""The parts of one gateway process, made from the settings and connected, and the questions that only all parts
together can answer.

Whatever shows or serves the process takes this object; `gateway.py` starts, reloads and stops it.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.app.access import Providers, access_of
from gateway.app.files.data_directory import make_private, own_secret, patiently
from gateway.app.files.directories import data_directory
from gateway.app.files.reader import Reader
from gateway.app.limits import client_rates, limits_of
from gateway.app.managed_users import UserStore
from gateway.app.mappings import gateway_name, read_table
from gateway.app.people import people_of
from gateway.app.queue_managers.embedded import open_embedded
from gateway.app.queue_managers.inspection import inspection_of, questions_of
from gateway.app.queue_managers.targets import open_targets
from gateway.app.reports import log_lines
from gateway.app.reports.client_log import ClientLog
from gateway.app.reports.device_events import DeviceEventQueue
from gateway.app.reports.incomplete_messages import IncompleteMessages
from gateway.app.reports.resources import Room, room_for, room_of
from gateway.backends.buffer.queue_manager import BUFFERING, BufferedQueueManager
from gateway.broker.deliver.consumers import Consumers
from gateway.broker.engine import Engine
from gateway.broker.publish.router import Router
from gateway.config.changes import Change, changes
from gateway.config.counting import counted
from gateway.config.model import Settings
from gateway.net.hub import Hub
from gateway.net.listeners import Listeners
from gateway.net.rates import SendRates
from gateway.net.scheduler import ReactorScheduler
from gateway.net.turns import Stall
from gateway.observe.activity import Activity, Recent
from gateway.observe.disk_reports import disk_hangs
from gateway.observe.health import Snapshot
from gateway.observe.history import History
from gateway.pipeline.journal.job_reports import JobReports
from gateway.ports.batch import BatchQueueManager, Fills, StorageFull
from gateway.ports.counters import LATENCY_BUCKETS, Counters, Names
from gateway.ports.state_queues import DEFAULT, PREFIX, SET_ASIDE
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.version import VERSION

if TYPE_CHECKING:
    from gateway.observe.tracing import Spans


class LastReload:
    """How the last reload ended; the start counts as one."""

    def __init__(self) -> None:
        self.ok, self.time = True, time.time()
        self.findings: list[dict[str, object]] = []
        """What was wrong with the files, when it was refused."""


class Parts:
    """The parts are attributes. A reload replaces `settings` and `table`; the others stay as long as the process."""

    def __init__(self, settings: Settings, reactor: Any) -> None:
        self.settings = self.started_with = settings
        self.reactor = reactor
        self.scheduler = ReactorScheduler(reactor)
        self.reader = Reader(self.scheduler.soon)
        self.directory = data_directory(settings)
        """Where this process keeps its files."""
        make_private(self.directory)
        self.table = read_table(settings)
        self.counters, self.clients = Counters(), ClientLog()
        self.clients.connections = settings.log.connections
        self.queue_manager = self._open_queue_manager()
        self.providers = Providers(self.counters, time.monotonic)
        self.access = access_of(settings, self.scheduler, own_secret(self.directory), self.counters, self.providers)
        self.people = people_of(settings, self.directory, own_secret(self.directory), self.scheduler.soon)
        self.engine = self._make_engine()
        self.use_events()
        self.users = UserStore(self.engine, self.access.managed) if settings.security.managed else None
        self.hub = Hub(reactor, self.engine)
        self.engine.context.on_pause = self.hub.pause
        self.engine.answers.write_each = self.hub.write_each
        self.spans = self._open_spans()
        self.hub.on_defect = log_lines.defect
        self.hub.on_fatal = self.engine.context.on_fatal = log_lines.fatal
        self.hub.turns.on_stall, self.hub.turns.on_lasting = self._stalled, log_lines.stands_still
        self.hub.rates = SendRates(client_rates(settings), time.monotonic)
        self.listeners = Listeners(reactor, self.engine, self.hub, settings.limits)
        self.listeners.admission.certificate_user = settings.security.certificate_user
        self.listeners.admission.on_refused = self.clients.not_admitted
        self.consumers = Consumers(self.engine.context, self.engine.handover)
        self.incomplete = IncompleteMessages(self.consumers.incomplete)
        self.started_at, self.heartbeat = time.time(), time.monotonic()
        self.recovered = False
        self.last_reload = LastReload()
        self.job_reports = JobReports()
        self.declare_names()
        self.history, self.activity, self.recent = History(), Activity(self.counters), Recent(LATENCY_BUCKETS)
        self.inspection = inspection_of(
            settings,
            self.queue_manager,
            lambda: self.table,
            lambda: self.engine.context.dead_letter_queue,
            self.queues_seen,
        )
        self.inquiries, self.queue_status = questions_of(
            settings, self.scheduler, self.queue_manager, self.inspection, self._queues_to_count, self._refusing_queues
        )

    def _make_engine(self) -> Engine:
        settings = self.settings
        router = Router(self.table, self.access, lambda: f"auto-{secrets.token_hex(12)}", partial(os.urandom, 8))
        engine = Engine(self.queue_manager, self.scheduler, limits_of(settings), router, self.access, self.counters)
        engine.context.dead_letter_queue = self.dead_letter_queue()
        census = engine.census
        census.name, census.version, census.started = gateway_name(settings), VERSION, time.time()
        engine.context.on_connected, engine.context.on_end = self.clients.connected, self.clients.ended
        self.access.granted.on_changed = engine.in_flight.check_rights_of
        engine.context.set_aside.on_defect = log_lines.set_aside
        engine.context.stored.on_full = self.clients.full
        if engine.ownership is not None:
            engine.ownership.rebalance.told = log_lines.rebalanced
        self.device_events = DeviceEventQueue(
            self.queue_manager, self.scheduler, self.counters, engine.context.problems, census.name
        )
        self.targets = open_targets(settings, self.scheduler, engine.context)
        if self.buffer is not None:
            from gateway.app.queue_managers.buffer import join_buffer

            join_buffer(engine, self.buffer, self.declare_names)
        return engine

    def use_events(self) -> None:
        """Send device events where the settings say. Where none are wanted, the broker does not even collect them."""
        events = self.settings.events
        self.device_events.use(events)
        self.clients.events = self.device_events if events.wanted else None
        self.engine.context.on_denied = self.clients.denied if events.wanted else None

    def _open_queue_manager(self) -> BatchQueueManager:
        """Returns the queue manager of the settings."""
        ibm = self.settings.queue_manager.ibm
        if self.settings.queue_manager.buffer is not None:
            from gateway.app.queue_managers.buffer import open_buffered  # the drivers are optional

            return open_buffered(self.settings, self.directory, self.scheduler, self.counters, self.table)
        if ibm is not None:
            from gateway.app.queue_managers.ibm import open_ibm  # the drivers are optional

            return open_ibm(self.settings, self.scheduler, self.counters, self.table)
        return patiently(lambda: open_embedded(self.settings, self.directory, self.scheduler, self.counters))

    def _stalled(self, stall: Stall) -> None:
        self.counters.reactor_stall_seconds.observe(stall.seconds)
        log_lines.stalled(stall)

    def _open_spans(self) -> Spans | None:
        """Returns the exporter of spans, if the settings name a collector. ConfigurationError where it is not
        installed."""
        tracing = self.settings.tracing
        if tracing.endpoint is None:
            return None
        from gateway.observe.tracing import Spans  # opentelemetry is optional

        spans = Spans(tracing.endpoint, tracing.share, tracing.service, self.queue_manager.name, self.counters)
        self.engine.context.on_hop = spans.begin
        return spans

    def declare_names(self) -> None:
        """Declare the closed label sets of the metrics: listeners, rules, the queue manager."""
        listeners = [listener.name for listener in self.settings.listeners]
        managers = (self.queue_manager.name, *self.settings.targets)
        self.counters.declare(Names(tuple(listeners), self.table.names, managers))

    # -- the queue manager --

    @property
    def buffer(self) -> BufferedQueueManager | None:
        """The buffer in front of IBM MQ, where one is set."""
        return self.queue_manager if isinstance(self.queue_manager, BufferedQueueManager) else None

    @property
    def own_store(self) -> object:
        """The queue manager on the gateway's own disk, where there is one."""
        return self.buffer.store if self.buffer is not None else self.queue_manager

    @property
    def connected(self) -> bool:
        """Whether messages are taken: the queue manager is connected (the buffer in front of it is not buffering),
        commits are not held, and the gateway's own disk answers."""
        if self.buffer is not None:
            connected = self.buffer.state != BUFFERING
        else:
            connected = bool(getattr(self.queue_manager, "connected", True))
        return connected and not self.engine.context.held_since and not self.disk_hangs()

    def disk_hangs(self) -> str:
        """Returns the write to the gateway's own disk that everybody is waiting for, in words; empty if none hangs."""
        store = self.own_store
        return disk_hangs(str(self.directory), store.disk_silence) if isinstance(store, EmbeddedQueueManager) else ""

    def why_away(self) -> str:
        """Why the queue manager takes no messages, as far as it has said so."""
        return self.disk_hangs() or self.engine.failures.last_text

    def dead_letter_queue(self) -> str:
        """Returns the queue manager's DEADQ."""
        name: str = getattr(self.queue_manager, "dead_letter_queue", "SYSTEM.DEAD.LETTER.QUEUE")
        return name

    def named_queues(self) -> frozenset[str]:
        """Queues that rules name without a template, and those they were seen to put to."""
        seen = self.queues_seen()
        return self.table.queues | seen if seen else self.table.queues

    def queues_seen(self) -> set[str]:
        """Queues that rules with placeholders have put to since the start, as nothing else names them; at most 500."""
        seen: set[str] = getattr(self.queue_manager, "put_to", set())
        own = {self.engine.context.dead_letter_queue}
        return {name for name in seen if name not in own and (name == DEFAULT or not name.startswith(PREFIX))}

    def _queues_to_count(self) -> set[str]:
        return {*self.named_queues(), self.engine.context.dead_letter_queue, SET_ASIDE} - {""}

    def depths_kept(self) -> Iterator[int]:
        """Returns the number of messages on each queue of rules and for dead letters, counted one queue at each
        step."""
        return (self.queue_status.depth(name) or 0 for name in self._queues_to_count())

    def set_aside(self) -> str:
        """How many messages are set aside, and in words what met a defect last; empty if there is neither."""
        depth, last = self.queue_status.depth(SET_ASIDE), self.engine.context.set_aside.last
        if not depth and not last:
            return ""
        many = counted(depth or 0, "message is", "messages are")
        since = f"; the last defect since the start: {last}" if last else ""
        return f"{many} set aside on {SET_ASIDE} (`mqgate dlq list --set-aside`){since}"

    def _refusing_queues(self) -> set[str]:
        return {parked.address.queue for parked in self.engine.parking.waiting.values()}

    # -- the process --

    @property
    def storage_full(self) -> StorageFull | None:
        """Why the gateway's own disk takes no new messages; also told while IBM MQ takes them, and the disk is not
        needed."""
        disk = self.buffer.store.storage_full if self.buffer is not None else None
        return disk or (self.queue_manager.storage_full if isinstance(self.queue_manager, Fills) else None)

    def room(self) -> Room | None:
        """Returns how many bytes the messages on the gateway's own disk take, and how many they may take."""
        buffer = self.buffer
        if buffer is None:
            return room_of(self.settings)
        return Room(buffer.spool.bytes, room_for(self.directory, buffer.spool.bytes, buffer.max_bytes))

    def waiting_for_restart(self) -> list[Change]:
        """Settings that a reload has read and that only a restart puts into force."""
        return [change for change in changes(self.started_with, self.settings) if not change.live]

    def latency(self) -> dict[str, float | None]:
        """Median and 99th percentile of the last seconds, as the upper bound of their bucket, in milliseconds."""
        bounds = {name: self.recent.share(share) for name, share in (("p50", 0.5), ("p99", 0.99))}
        return {name: None if bound is None else bound * 1000 for name, bound in bounds.items()}

    def snapshot(self) -> Snapshot:
        """Returns the state from which the probes are answered."""
        room = self.room()
        return Snapshot(
            configured=True,
            recovered=self.recovered,
            listening={name: one.acceptor is not None for name, one in self.listeners.all.items()},
            draining=self.engine.context.draining,
            heartbeat_ages={"0": time.monotonic() - self.heartbeat},
            queue_managers={self.queue_manager.name: self.connected},
            silence=getattr(self.queue_manager, "silence", 0.0),
            refusal=self.why_away() if self.inspection is not None else "",
            buffered=self.buffer is not None,
            buffering=self.buffer.why if self.buffer is not None and self.buffer.state == BUFFERING else "",
            targets={one.name: one.away for one in self.targets},
            consumed=self.consumers.problems_at_targets(),
            set_aside=self.set_aside(),
            spool_bytes=room.used if room else 0,
            spool_limit_bytes=room.limit if room else 0,
            storage_full=self.storage_full,
            buffer_hangs=self.disk_hangs() if self.buffer is not None else "",
        )

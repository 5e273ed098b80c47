"""The process: role of the caller, overview, history, settings, log level, reload, drain, pipeline."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import count
from typing import Any

from gateway.app.api.held_back import count_held_back
from gateway.app.api.mapping import Reload, finding
from gateway.app.api.sliced import sliced
from gateway.app.parts import Parts
from gateway.app.pipeline import pipeline_of, pipeline_state
from gateway.app.reports.gauges import totals_of
from gateway.app.reports.problems import troubles_of
from gateway.app.reports.resources import certificate_ends
from gateway.config.changes import is_live
from gateway.config.descriptions import description_of
from gateway.config.load import display
from gateway.errors import ConfigurationError
from gateway.net.calls import OPERATOR, VIEWER, Answered, Call, Endpoint, Later, Problem, endpoint
from gateway.observe import health, logs
from gateway.ports.counters import NO_ROUTE
from gateway.ports.people import ADMINISTRATOR
from gateway.queue_manager.commands.definitions import script
from gateway.queue_manager.commands.mqsc_report import MqscReport
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.routing.table import Table
from gateway.session.connection import ONLINE
from gateway.version import VERSION

MOST_ANSWERED = 4 << 20
"""The most characters in the answer to the MQSC commands of one request."""
_LEVELS = ("debug", "info", "warning", "error")


def state_endpoints(parts: Parts, reload: Reload, drain: Callable[[], None]) -> list[Endpoint]:
    """Returns the endpoints of this module."""
    views = StateViews(parts, reload, drain)
    return [
        endpoint("GET", "/me", VIEWER, views.me),
        endpoint("GET", "/overview", VIEWER, views.overview),
        endpoint("GET", "/history", VIEWER, views.history),
        endpoint("GET", "/history/queues/{key}", VIEWER, lambda call: views.history(call, "queue")),
        endpoint("GET", "/history/rules/{key}", VIEWER, lambda call: views.history(call, "rule")),
        endpoint("GET", "/history/clients/{key}", VIEWER, lambda call: views.history(call, "client")),
        endpoint("GET", "/settings", VIEWER, views.settings),
        endpoint("GET", "/log", VIEWER, views.log),
        endpoint("PUT", "/log", ADMINISTRATOR, views.set_log),
        endpoint("POST", "/reload", OPERATOR, views.reload),
        endpoint("POST", "/drain", ADMINISTRATOR, views.drain),
        endpoint("POST", "/mqsc", ADMINISTRATOR, views.mqsc, most=1 << 20),
        endpoint("GET", "/definitions", VIEWER, views.definitions),
        endpoint("GET", "/pipeline", VIEWER, views.pipeline),
    ]


class StateViews:
    """The process as the API shows it."""

    def __init__(self, parts: Parts, reload: Reload, drain: Callable[[], None]) -> None:
        self._parts = parts
        self._reload = reload
        self._drain = drain
        self._numbers = count(1)

    def me(self, call: Call) -> tuple[int, object]:
        """GET /me."""
        parts = self._parts
        websockets = [
            {"name": name, "port": one.number, "path": one.settings.websocket.path, "tls": one.settings.tls is not None}
            for name, one in parts.listeners.all.items()
            if one.settings.websocket is not None
        ]
        return 200, {
            "role": call.role,
            "name": call.caller.user,
            "method": call.caller.method,
            "form_token": call.caller.form_token,
            "version": VERSION,
            "queue_manager": parts.queue_manager.name,
            "websocket_listeners": websockets,
            "pipeline": bool(self._pipeline()["queues"]),
        }

    def overview(self, call: Call) -> tuple[int, object]:
        """GET /overview. Other requests do not wait while thousands of queues are counted."""
        del call
        parts, engine, kept = self._parts, self._parts.engine, 0

        def steps() -> Iterator[None]:
            nonlocal kept
            yield from engine.sys_topics.session_counts.steps()
            if _shows_room(parts):
                for depth in parts.depths_kept():
                    kept += depth
                    yield

        return 200, sliced(engine, steps(), lambda: self._overview(kept))

    def _overview(self, kept: int) -> object:
        parts, engine, context = self._parts, self._parts.engine, self._parts.engine.context
        now = parts.snapshot()
        ready, live = health.readyz(now), health.livez(now)
        sessions = engine.sys_topics.session_counts
        online = [one for one in engine.connections if one.state == ONLINE]
        backend = "ibm" if parts.settings.queue_manager.ibm else "embedded"
        ends = dict(certificate_ends(parts.settings))
        troubles = troubles_of(parts)
        return {
            "time": time.time(),
            "version": VERSION,
            "backend": backend,
            "started": parts.started_at,
            "ready": ready.ok,
            "live": live.ok,
            "draining": engine.context.draining,
            "problems": [one.text for one in troubles],
            "attention": [one._asdict() for one in troubles],
            "queue_managers": [
                {"name": parts.queue_manager.name, "connected": parts.connected, "connections": 1,
                 "detail": _detail(parts) or backend}
            ],
            "listeners": [self._listener(one, ends) for one in parts.listeners.all.values()],
            "connections": len(online),
            "sessions": len(engine.sessions),
            "subscriptions": len(engine.router.subscriptions),
            "retained": engine.retained.count - engine.sys_topics.own,
            "inflight": sessions.out + sessions.arriving,
            "paused": parts.hub.count if context.paused else count_held_back(engine),
            "spool": _spool(parts, kept),
            "dead_letters": _dead_letters(parts),
            "latency_ms": parts.latency(),
            "totals": totals_of(parts.counters),
            "rates": parts.history.rates(),
            "dropped": [
                {"rule": rule if rule != NO_ROUTE else None, "reason": reason, "count": count}
                for (rule, reason), count in parts.counters.messages_dropped.items()
                if count
            ],
            "skipped": context.stored.skipped and asdict(context.stored.skipped),
            "last_reload": {
                "time": parts.last_reload.time, "ok": parts.last_reload.ok, "findings": parts.last_reload.findings,
                "waiting": _waiting(parts),
            },
        }  # fmt: skip

    def _listener(self, listening: Any, ends: dict[str, float]) -> dict[str, object]:
        settings = listening.settings
        kind = "websocket" if settings.websocket else "unix" if settings.unix else "tcp"
        if settings.tls:
            kind = "secure_websocket" if settings.websocket else "tls"
        return {
            "name": settings.name,
            "address": listening.address,
            "transport": kind,
            "connections": listening.connections,
            "limit": settings.max_connections or self._parts.settings.mqtt.max_connections,
            "sessions": self._parts.engine.sessions.by_listener[settings.name],
            "session_limit": settings.max_sessions or self._parts.settings.mqtt.max_sessions,
            "certificate_not_after": ends.get(settings.name),
        }

    def history(self, call: Call, kind: str = "gateway") -> tuple[int, object]:
        """GET /history, and the history of a queue, rule or client."""
        seconds = call.number("seconds", 600, 86_400)
        return 200, self._parts.history.columns((kind, call.path.get("key", "")), seconds, time.time())

    def settings(self, call: Call) -> tuple[int, object]:
        """GET /settings."""
        del call
        items = [
            {
                "key": key,
                "value": value,
                "origin": origin,
                "reloadable": is_live(key),
                "description": description_of(key),
            }
            for key, value, origin in display(self._parts.settings)
        ]
        return 200, {"items": items}

    def log(self, call: Call) -> tuple[int, object]:
        """GET /log."""
        del call
        return 200, {"level": logs.level_name(logging.getLogger().level)}

    def set_log(self, call: Call) -> tuple[int, object]:
        """PUT /log."""
        level = call.body.get("level")
        if level not in _LEVELS:
            raise Problem(400, "Bad request", f"level must be one of {', '.join(_LEVELS)}")
        logs.set_level(str(level))
        return 200, {"level": level}

    def reload(self, call: Call) -> tuple[int, object]:
        """POST /reload: all or nothing; answered when what the rules consume is open."""
        del call
        parts = self._parts

        def begin(answered: Answered) -> None:
            before = parts.table

            def told(error: Exception | None) -> None:
                if error is not None:
                    answered(_not_reloaded(error))
                    return
                self._compare(before, parts.table, answered)

            self._reload(told)

        return 200, Later(begin)

    def _compare(self, before: Table, after: Table, answered: Answered) -> None:
        """Answer a reload with the names of the rules that changed; ten thousand are compared in slices."""
        parts, changed = self._parts, list[str]()

        def work() -> Iterator[None]:
            yield from _changed(before, after, changed)
            answer = {
                "ok": True, "rules": len(after.routes) + len(after.outbound), "changed": changed, "findings": [],
                "waiting": _waiting(parts),
            }  # fmt: skip
            parts.consumers.when_open(lambda: answered((200, answer)))

        parts.engine.context.slices.run(f"reload {next(self._numbers)}", work)

    def mqsc(self, call: Call) -> tuple[int, object]:
        """POST /mqsc: commands for the embedded queue manager."""
        queue_manager = self._parts.queue_manager
        if not isinstance(queue_manager, EmbeddedQueueManager):
            raise Problem(503, "Not offered", "use runmqsc on the IBM MQ queue manager")
        report = MqscReport(most=MOST_ANSWERED)
        steps = queue_manager.mqsc_steps(str(call.body.get("text", "")), report)

        def begin(answered: Answered) -> None:
            def work() -> Iterator[None]:
                try:
                    yield from steps
                except Exception as error:  # noqa: BLE001 -- distinguished where it is answered
                    answered(error)
                else:
                    answered((200, {"lines": report.lines, "summary": report.summary(), "ok": report.ok}))

            self._parts.engine.context.slices.run(f"mqsc {next(self._numbers)}", work)

        return 200, Later(begin)

    def definitions(self, call: Call) -> tuple[int, object]:
        """GET /definitions: the commands that make the objects anew. Other requests do not wait while ten thousand are
        written."""
        del call
        queue_manager = self._parts.queue_manager
        if not isinstance(queue_manager, EmbeddedQueueManager):
            raise Problem(503, "Not offered", "use dmpmqcfg on the IBM MQ queue manager")
        core, commands = queue_manager.core, list[str]()
        made = script(core.catalogue)

        def steps() -> Iterator[None]:
            while True:
                with core.entered():
                    command = next(made, None)
                if command is None:
                    return
                commands.append(command)
                yield

        def answer() -> object:
            return {"mqsc": "".join(f"{one}\n" for one in commands), "objects": len(commands)}

        return 200, sliced(self._parts.engine, steps(), answer)

    def pipeline(self, call: Call) -> tuple[int, object]:
        """GET /pipeline: the consumer groups of the embedded queue manager."""
        del call
        return 200, self._pipeline()

    def _pipeline(self) -> dict[str, Any]:
        parts = self._parts
        return pipeline_state(pipeline_of(parts.queue_manager, parts.directory, parts.job_reports), time.time())

    def drain(self, call: Call) -> tuple[int, object]:
        """POST /drain."""
        del call
        self._parts.scheduler.later(0.1, self._drain)
        return 202, {"draining": True, "pid": os.getpid()}


def _not_reloaded(error: Exception) -> Exception:
    if not isinstance(error, ConfigurationError):
        return error
    return Problem(
        422, "Not reloaded", "the old rules stay in force", findings=[finding(one) for one in error.findings]
    )


def _changed(before: Table, after: Table, found: list[str]) -> Iterator[None]:
    """Find the names of the rules that differ, or exist in only one of the two tables: one at each step."""
    old, new = _rules(before), _rules(after)
    yield
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            found.append(name)
        yield


def _rules(table: Table) -> dict[str, object]:
    """Returns the specification of each rule, by name."""
    inbound = {route.rule.name: route.rule.spec for route in table.routes}
    return {**inbound, **{rule.name: rule.spec for rule in table.outbound}}


def _shows_room(parts: Parts) -> bool:
    """Whether the gateway keeps messages on its own disk, apart from those of a buffer."""
    return parts.buffer is None and parts.room() is not None


def _spool(parts: Parts, kept: int) -> dict[str, object] | None:
    """Returns how the messages on the gateway's own disk are doing. `kept`: messages on the queues of rules."""
    if parts.buffer is not None:
        from gateway.app.queue_managers.buffer import buffer_view

        return buffer_view(parts.buffer, time.time())
    room = parts.room()
    if room is None:
        return None
    return {
        "messages": kept, "bytes": room.used, "limit_bytes": room.limit, "oldest_seconds": None,
        "state": None, "detail": "",
    }  # fmt: skip


def _waiting(parts: Parts) -> list[str]:
    """Returns settings that were read and take effect after a restart."""
    return [str(change) for change in parts.waiting_for_restart()]


def _detail(parts: Parts) -> str:
    """Returns why nothing goes to the queue manager; empty while it does."""
    if hangs := parts.disk_hangs():
        return hangs
    if parts.buffer is not None and not parts.connected:
        return f"messages go to the buffer: {parts.buffer.why}"
    return parts.engine.failures.last_text if parts.engine.context.held_since else ""


def _dead_letters(parts: Parts) -> int:
    name = parts.engine.context.dead_letter_queue
    return (parts.queue_status.depth(name) or 0) if name else 0

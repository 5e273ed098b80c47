"""MQSC commands about what runs and who may: connections, status of queue manager, topics and subscriptions,
authority records."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from gateway.backends.embedded.administration import not_found
from gateway.backends.embedded.authority import GROUPS_OF_RIGHTS, RIGHTS, Authority
from gateway.backends.embedded.core import Core
from gateway.backends.embedded.mqsc import SHOWN, columns, condition_of, syntax
from gateway.backends.embedded.mqsc_parse import Command
from gateway.backends.embedded.objects import matches
from gateway.backends.embedded.status import Row
from gateway.backends.embedded.store.unit import StoreUnit
from gateway.backends.embedded.topics import RETAINED_STATE, Topics

OBJECT_TYPES = {"QUEUE": "QUEUE", "QMGR": "QMGR", "TOPIC": "TOPIC", "NAMELIST": "NAMELIST", "PROCESS": "PROCESS",
                "CHANNEL": "CHANNEL", "AUTHINFO": "AUTHINFO"}  # fmt: skip


class StatusCommands:
    """An extension of `Mqsc`."""

    def __init__(self, core: Core, topics: Topics, authority: Authority) -> None:
        self._core = core
        self._topics = topics
        self._authority = authority
        self._started = core.now()

    def __call__(self, command: Command) -> Iterable[str] | None:
        """Carry out the command if it is one of these."""
        handler = {
            ("DISPLAY", "CONN"): self._connections,
            ("DISPLAY", "QMSTATUS"): self._queue_manager,
            ("DISPLAY", "TPSTATUS"): self._topic_status,
            ("DISPLAY", "SBSTATUS"): self._subscription_status,
            ("DISPLAY", "AUTHREC"): self._records,
            ("SET", "AUTHREC"): self._set_record,
            ("DELETE", "AUTHREC"): self._delete_record,
            ("CLEAR", "TOPICSTR"): self._clear_topic,
            ("RESET", "QSTATS"): self._reset,
            ("SET", "CHLAUTH"): self._accept_channel_rule,
        }.get((command.verb, command.object))
        return None if handler is None else handler(command)

    # Display

    def _shown(self, command: Command, kind: str, rows: Iterable[Row]) -> list[str]:
        given = next((one.values for one in command.parameters if one.keyword == "WHERE"), None)
        holds = condition_of(command, given) if given is not None else None
        lines: list[str] = []
        for row in rows:
            if holds is None or holds(row):
                lines += [SHOWN[kind], *columns(row)]
        if not lines:
            raise not_found(kind, command.name)
        return lines

    def _connections(self, command: Command) -> list[str]:
        rows = []
        for one in sorted(self._authority.connections, key=lambda each: each.connection_id):
            since = datetime.fromtimestamp(one.since, UTC)
            identifier = one.connection_id[-8:].hex().upper()
            if matches(command.name or "*", identifier):
                rows.append({
                    "CONN": identifier, "EXTCONN": one.connection_id[:16].hex().upper(), "TYPE": "CONN",
                    "APPLTAG": one.application, "APPLTYPE": "USER", "USERID": one.user, "CHANNEL": one.channel,
                    "CONNAME": one.connection_name, "UOWSTATE": "ACTIVE" if one.work.open else "NONE",
                    "UOWMSGS": str(one.work.messages), "CONNDATE": f"{since:%Y-%m-%d}", "CONNTIME": f"{since:%H.%M.%S}",
                })  # fmt: skip
        return self._shown(command, "CONN", rows)

    def _queue_manager(self, command: Command) -> list[str]:
        started = datetime.fromtimestamp(self._started, UTC)
        row = {
            "QMNAME": self._core.name, "STATUS": "QUIESCING" if self._core.quiescing else "RUNNING",
            "CONNS": str(len(self._authority.connections)), "CMDSERV": "RUNNING", "STARTDA": f"{started:%Y-%m-%d}",
            "STARTTI": f"{started:%H.%M.%S}",
        }  # fmt: skip
        return self._shown(command, "QMSTATUS", [row])

    def _topic_status(self, command: Command) -> list[str]:
        topics = self._topics
        known = {*topics.retained, *topics.published, *topics.subscribed()}
        rows: list[Row] = [
            {
                "TOPICSTR": topic, "RETAINED": "YES" if topic in topics.retained else "NO",
                "SUBCOUNT": str(sum(1 for _ in topics.matching(topic))), "PUBMSGS": str(topics.published.get(topic, 0)),
            }
            for topic in sorted(known)
            if matches(command.name or "*", topic) or command.name == "#"
        ]  # fmt: skip
        return self._shown(command, "TPSTATUS", rows)

    def _subscription_status(self, command: Command) -> list[str]:
        rows = []
        for one in self._core.catalogue.matching(("SUB",), command.name or "*"):
            in_use = any(handle.subscription == one.name for c in self._authority.connections for handle in c.handles())
            rows.append({
                "SUB": one.name, "SUBID": str(one.extra.get("SUBID", "")),
                "DURABLE": "YES" if one.number("DURABLE") == 1 else "NO",
                "TOPICSTR": one.text("TOPICSTR"), "DEST": one.text("DEST"), "ACTCONN": "YES" if in_use else "NO",
            })  # fmt: skip
        return self._shown(command, "SBSTATUS", rows)

    # Authority records

    def _record_key(self, command: Command) -> tuple[str, str, str]:
        words = {one.keyword: (one.values or [""])[0] for one in command.parameters}
        kind = OBJECT_TYPES.get(words.get("OBJTYPE", ""))
        entity = words.get("PRINCIPAL") or words.get("GROUP", "")
        profile = words.get("PROFILE") or command.name or (self._core.name if kind == "QMGR" else "")
        if kind is None or not entity or not profile:
            raise syntax(command, "PROFILE, OBJTYPE and PRINCIPAL or GROUP are needed")
        return kind, profile, entity

    def _set_record(self, command: Command) -> list[str]:
        kind, profile, entity = self._record_key(command)
        rights = {one.keyword: one.values or [] for one in command.parameters if one.keyword in {"AUTHADD", "AUTHRMV"}}
        for right in (right for values in rights.values() for right in values):
            if right not in RIGHTS and right not in GROUPS_OF_RIGHTS:
                raise syntax(command, f"{right} is no authority")
        self._authority.set_record(kind, profile, entity, rights.get("AUTHADD", []), rights.get("AUTHRMV", []))
        return ["AMQ8862I: IBM MQ authority record set."]

    def _delete_record(self, command: Command) -> list[str]:
        self._authority.delete_record(*self._record_key(command))
        return ["AMQ8863I: IBM MQ authority record deleted."]

    def _records(self, command: Command) -> list[str]:
        rows: list[Row] = [
            {"PROFILE": profile, "ENTITY": entity, "OBJTYPE": kind, "AUTHLIST": ",".join(sorted(rights)) or "NONE"}
            for (kind, profile, entity), rights in sorted(self._authority.records.items())
            if matches(command.name or "*", profile)
        ]
        return self._shown(command, "AUTHREC", rows)

    # The rest

    def _accept_channel_rule(self, _command: Command) -> list[str]:
        """Channels are labels here: rules about them are taken, so that scripts run, and change nothing."""
        return ["AMQ8877I: IBM MQ channel authentication record set."]

    def _clear_topic(self, command: Command) -> list[str]:
        if command.name not in self._topics.retained:
            raise not_found("TOPIC", command.name)
        self._core.commit(StoreUnit(state={RETAINED_STATE + command.name.encode(): None}))
        return ["AMQ8761I: Retained publication cleared."]

    def _reset(self, command: Command) -> list[str]:
        rows = []
        for definition in self._core.catalogue.matching(("QLOCAL",), command.name):
            queue = self._core.queues[definition.name]
            rows.append({
                "QSTATS": queue.name, "MSGSIN": str(queue.puts), "MSGSOUT": str(queue.gets), "HIQDEPTH":
                str(queue.high_depth), "RESETINT": str(int(self._core.now() - queue.since)),
            })  # fmt: skip
            queue.puts = queue.gets = 0
            queue.high_depth, queue.since = self._core.depth(queue), self._core.now()
        return self._shown(command, "QSTATS", rows)

"""MQSC commands on status and authority: connections, handles, queue manager, topics, subscriptions, authority
records."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from gateway.queue_manager.commands import open_handles
from gateway.queue_manager.commands.display_rows import Row
from gateway.queue_manager.commands.mqsc import SHOWN, chosen, columns, condition_of, is_selected, syntax
from gateway.queue_manager.commands.mqsc_parse import Command
from gateway.queue_manager.core import Core
from gateway.queue_manager.objects.administration import AdministrationError, no_status, not_found
from gateway.queue_manager.objects.authority import GROUPS_OF_RIGHTS, RIGHTS, Authority
from gateway.queue_manager.objects.catalogue import matches
from gateway.queue_manager.objects.topics import Topics
from gateway.queue_manager.verbs import mqdisc
from gateway.queue_manager.verbs.connection_state import Connections

OBJECT_TYPES = {"QUEUE": "QUEUE", "QMGR": "QMGR", "TOPIC": "TOPIC", "NAMELIST": "NAMELIST", "PROCESS": "PROCESS",
                "CHANNEL": "CHANNEL", "AUTHINFO": "AUTHINFO"}  # fmt: skip


TITLES = {
    "QSTATUS": ("QUEUE", "TYPE"), "CONN": ("CONN", "EXTCONN", "TYPE"), "TPSTATUS": ("TOPICSTR", "SUBID"),
    "SBSTATUS": ("SUB", "SUBID"), "QMSTATUS": ("QMNAME",), "PUBSUB": ("QMNAME", "TYPE"), "QSTATS": ("QSTATS",),
    "AUTHREC": ("PROFILE", "ENTITY", "OBJTYPE"), "ENTAUTH": ("OBJNAME", "ENTITY", "OBJTYPE"),
}  # fmt: skip
CHANNEL_STATUS_NOT_FOUND = 3065


def _value(command: Command, keyword: str) -> str:
    """Returns the first value given with a keyword; empty if it is not there."""
    return next((one.values[0] for one in command.parameters if one.keyword == keyword and one.values), "")


class StatusCommands:
    """Carries out the MQSC commands that `Mqsc` leaves to extensions."""

    def __init__(self, core: Core, topics: Topics, authority: Authority, connections: Connections) -> None:
        self._core = core
        self._topics = topics
        self._authority = authority
        self._connections = connections
        self._started = core.now()

    def __call__(self, command: Command) -> Iterable[str] | None:
        """Returns the lines of the answer; None if the command is none of these."""
        handler = {
            ("DISPLAY", "QSTATUS"): self._queue_handles,
            ("DISPLAY", "CONN"): self._display_connections,
            ("STOP", "CONN"): self._stop_connection,
            ("DISPLAY", "CHSTATUS"): self._channel_status,
            ("DISPLAY", "PUBSUB"): self._publish_subscribe,
            ("DISPLAY", "ENTAUTH"): self._entity,
            ("DISPLAY", "QMSTATUS"): self._queue_manager,
            ("DISPLAY", "TPSTATUS"): self._topic_status,
            ("DISPLAY", "SBSTATUS"): self._subscription_status,
            ("DISPLAY", "AUTHREC"): self._records,
            ("SET", "AUTHREC"): self._set_record,
            ("DELETE", "AUTHREC"): self._delete_record,
            ("CLEAR", "TOPICSTR"): self._clear_topic,
            ("RESET", "QSTATS"): self._reset,
        }.get((command.verb, command.object))
        return None if handler is None else handler(command)

    # Display

    def _shown(self, command: Command, kind: str, rows: Iterable[Row]) -> list[str]:
        given = next((one.values for one in command.parameters if one.keyword == "WHERE"), None)
        holds = condition_of(command, given) if given is not None else None
        # Keywords without a value are attributes to show; those with one select rows.
        wanted = {one.keyword for one in command.parameters if one.values is None}
        asked = set() if "ALL" in wanted else wanted | ({given[0].upper()} if given and wanted else set())
        lines: list[str] = []
        for row in rows:
            if holds is None or holds(row):
                lines += [SHOWN[kind], *columns(chosen(row, asked, TITLES.get(kind, (kind, "TYPE"))))]
        if not lines:
            raise no_status(command.name, exists=True) if kind == "QSTATUS" else not_found(kind, command.name)
        return lines

    def _queue_handles(self, command: Command) -> Iterable[str] | None:
        """Returns the answer to DISPLAY QSTATUS TYPE(HANDLE); None for TYPE(QUEUE), which `Mqsc` shows."""
        if _value(command, "TYPE").upper() != "HANDLE":
            return None
        definitions = list(self._core.catalogue.matching(("QLOCAL",), command.name))
        rows = [
            open_handles.queue_handle(*held)
            for definition in definitions
            for held in open_handles.handles_of(self._connections, definition.name)
        ]
        used = _value(command, "OPENTYPE").upper()
        rows = [row for row in rows if used not in {"INPUT", "OUTPUT"} or row[used] != "NO"]
        if not definitions:
            raise not_found("QLOCAL", command.name)
        return self._shown(command, "QSTATUS", rows)

    def _display_connections(self, command: Command) -> list[str]:
        rows: list[Row] = []
        kind, extended = _value(command, "TYPE").upper() or "CONN", _value(command, "EXTCONN") or "*"
        for one in self._connections:
            identifier, extension = one.connection_id[-8:].hex().upper(), one.connection_id[:16].hex().upper()
            if not matches(command.name or "*", identifier) or not matches(extended, extension):
                continue
            if kind != "HANDLE":
                rows.append(open_handles.connection_row(one))
            if kind != "CONN":
                rows += open_handles.open_objects(one)
        if not rows and not self._connections and command.name in {"", "*"}:
            return []  # no program is connected: nothing to show, but not an error
        return self._shown(command, "CONN", rows)

    def _stop_connection(self, command: Command) -> list[str]:
        """Stop a connection: its program finds it broken, and its unit of work is backed out."""
        for one in self._connections:
            if one.connection_id[-8:].hex().upper() == command.name.upper():
                mqdisc.disconnect(one, commit=False)
                return ["AMQ8457I: IBM MQ connection stopped."]
        raise not_found("CONN", command.name)

    def _channel_status(self, _command: Command) -> list[str]:
        """Refuse DISPLAY CHSTATUS. There are no channels: programs connect through a local socket."""
        raise AdministrationError(CHANNEL_STATUS_NOT_FOUND, "AMQ8420I: Channel Status not found.")

    def _publish_subscribe(self, command: Command) -> list[str]:
        row = {
            "QMNAME": self._core.name, "TYPE": "LOCAL", "STATUS": "ACTIVE",
            "SUBCOUNT": str(self._topics.subscriptions), "TPCOUNT": str(len(self._topics.known())),
        }  # fmt: skip
        return self._shown(command, "PUBSUB", [row])

    def _queue_manager(self, command: Command) -> list[str]:
        started = datetime.fromtimestamp(self._started, UTC)
        row = {
            "QMNAME": self._core.name, "STATUS": "QUIESCING" if self._core.quiescing else "RUNNING",
            "CONNS": str(len(self._connections)), "CMDSERV": "RUNNING", "STARTDA": f"{started:%Y-%m-%d}",
            "STARTTI": f"{started:%H.%M.%S}",
        }  # fmt: skip
        return self._shown(command, "QMSTATUS", [row])

    def _topic_status(self, command: Command) -> list[str]:
        topics = self._topics
        if _value(command, "TYPE").upper() == "SUB":
            return self._shown(command, "TPSTATUS", self._subscriptions_of(command.name))
        rows: list[Row] = [
            {
                "TOPICSTR": topic, "RETAINED": "YES" if topic in topics.retained else "NO",
                "SUBCOUNT": str(sum(1 for _ in topics.matching(topic))), "PUBMSGS": str(topics.published.get(topic, 0)),
            }
            for topic in topics.known(command.name or "#")
        ]  # fmt: skip
        return self._shown(command, "TPSTATUS", rows)

    def _subscriptions_of(self, topic: str) -> Iterable[Row]:
        for one in sorted((each.definition for each in self._topics.matching(topic)), key=lambda each: each.name):
            yield {
                "TOPICSTR": topic, "SUBID": str(one.extra.get("SUBID", "")), "SUBUSER": one.text("SUBUSER"),
                "DURABLE": "YES" if one.number("DURABLE") == 1 else "NO",
                "SUBTYPE": "API" if one.number("SUBTYPE") == 1 else "ADMIN",
                "ACTCONN": "YES" if self._connections.subscription_in_use(one.name) else "NO",
            }  # fmt: skip

    def _subscription_status(self, command: Command) -> list[str]:
        rows = []
        for one in self._core.catalogue.matching(("SUB",), command.name or "*"):
            in_use = self._connections.subscription_in_use(one.name)
            rows.append({
                "SUB": one.name, "SUBID": str(one.extra.get("SUBID", "")),
                "SUBTYPE": "API" if one.number("SUBTYPE") == 1 else "ADMIN",
                "DURABLE": "YES" if one.number("DURABLE") == 1 else "NO",
                "TOPICSTR": self._topics.topic_of(one), "DEST": one.text("DEST"), "ACTCONN": "YES" if in_use else "NO",
            })  # fmt: skip
        identifier = _value(command, "SUBID").upper()
        rows = [row for row in rows if is_selected(command, row) and row["SUBID"].startswith(identifier)]
        return self._shown(command, "SBSTATUS", rows)

    # Authority records

    def _record_key(self, command: Command) -> tuple[str, str, str]:
        words = {one.keyword: (one.values or [""])[0] for one in command.parameters}
        kind = OBJECT_TYPES.get(words.get("OBJTYPE", ""))
        if kind is None and words.get("OBJTYPE"):
            raise syntax(command, f"OBJTYPE must be one of {', '.join(OBJECT_TYPES)}")
        entity = words.get("PRINCIPAL") or words.get("GROUP", "")
        profile = words.get("PROFILE") or command.name or (self._core.name if kind == "QMGR" else "")
        if kind is None or not entity or not profile:
            raise syntax(command, "PROFILE, OBJTYPE and PRINCIPAL or GROUP are required")
        return kind, profile, entity

    def _set_record(self, command: Command) -> list[str]:
        kind, profile, entity = self._record_key(command)
        rights = {one.keyword: one.values or [] for one in command.parameters if one.keyword in {"AUTHADD", "AUTHRMV"}}
        for right in (right for values in rights.values() for right in values):
            if right not in RIGHTS and right not in GROUPS_OF_RIGHTS:
                raise syntax(command, f"{right} is not an authority")
        if not rights:
            raise syntax(command, "AUTHADD or AUTHRMV is required")
        self._authority.set_record(kind, profile, entity, rights.get("AUTHADD", []), rights.get("AUTHRMV", []))
        return ["AMQ8862I: IBM MQ authority record set."]

    def _delete_record(self, command: Command) -> list[str]:
        self._authority.delete_record(*self._record_key(command))
        return ["AMQ8863I: IBM MQ authority record deleted."]

    def _records(self, command: Command) -> list[str]:
        rows: list[Row] = [
            {"PROFILE": profile, "ENTITY": entity, "OBJTYPE": kind, "AUTHLIST": ",".join(sorted(rights)) or "NONE"}
            for (kind, profile, entity), rights in sorted(self._authority.records.items())
            if matches(command.name or _value(command, "PROFILE") or "*", profile)
            and kind == (OBJECT_TYPES.get(_value(command, "OBJTYPE")) or kind)
            and entity == (_value(command, "PRINCIPAL") or _value(command, "GROUP") or entity)
        ]
        return self._shown(command, "AUTHREC", rows)

    def _entity(self, command: Command) -> list[str]:
        """Returns the rights of a user on one object, whichever records they come from."""
        entity = _value(command, "PRINCIPAL") or _value(command, "GROUP")
        kind = OBJECT_TYPES.get(_value(command, "OBJTYPE"))
        name = _value(command, "OBJNAME") or (self._core.name if kind == "QMGR" else "")
        if not entity or kind is None or not name:
            raise syntax(command, "PRINCIPAL or GROUP, OBJTYPE and OBJNAME are required")
        rights = ",".join(sorted(self._authority.rights(entity, kind, name))) or "NONE"
        by_group = "GROUP" if _value(command, "GROUP") else "PRINCIPAL"
        row = {"OBJNAME": name, "ENTITY": entity, "ENTTYPE": by_group, "OBJTYPE": kind, "AUTHLIST": rights}
        return self._shown(command, "ENTAUTH", [row])

    # Other commands

    def _clear_topic(self, command: Command) -> list[str]:
        if command.name not in self._topics.retained:
            raise not_found("TOPIC", command.name)
        self._topics.clear_retained([command.name])
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

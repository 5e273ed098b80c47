"""Objects and their status as rows of keyword and value, for DISPLAY, PCF and the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from gateway.queue_manager.core import Core
from gateway.queue_manager.objects.attributes import BY_KEYWORD, QUEUE_KINDS, Value, in_words
from gateway.queue_manager.objects.catalogue import COMMAND_LEVEL, VERSION, Definition
from gateway.queue_manager.objects.topic_names import topic_of

Row = dict[str, str]

DATED = frozenset({*QUEUE_KINDS, "QMGR", "SUB"})
"""Types whose objects show when they were defined, not only when they were altered."""
SHOWN_WITH = {
    "QLOCAL": ("CURDEPTH", "IPPROCS", "OPPROCS", "DEFTYPE"),
    "NAMELIST": ("NAMCOUNT",),
    "QMGR": ("QMNAME", "CMDLEVEL", "VERSION", "PLATFORM", "COMMANDQ", "MAXPRTY", "SYNCPT", "DISTL", "QMID"),
    "SUB": ("SUBID",),
}
"""What is shown of an object, by type, in addition to the attributes that a command sets."""
ALWAYS_SHOWN = frozenset({"TYPE", "CRDATE", "CRTIME", "ALTDATE", "ALTTIME"})
_QDT = {1: "PREDEFINED", 2: "PERMDYN", 3: "TEMPDYN"}


def describe(core: Core, definition: Definition, only: Iterable[str] | None = None) -> Row:
    """Returns an object with every attribute in words, including those that no command sets. `only` restricts the
    attributes that a command sets to these."""
    table, attributes = BY_KEYWORD[definition.kind], definition.attributes
    row = _title(definition)
    words = sorted(attributes) if only is None else [word for word in only if word in attributes]
    row |= {word: in_words(table[word], attributes[word]) for word in words}
    if definition.kind == "QLOCAL":
        queue = core.queues[definition.name]
        row["CURDEPTH"] = str(core.depth(queue))
        row["IPPROCS"], row["OPPROCS"] = str(queue.inputs), str(queue.outputs)
        row["DEFTYPE"] = _QDT.get(definition.dynamic, "PREDEFINED")
    if definition.kind == "NAMELIST":
        row["NAMCOUNT"] = str(len(definition.names()))
    if definition.kind == "QMGR":
        row |= queue_manager_facts(core)
    if definition.kind == "SUB":
        row["TOPICSTR"] = topic_of(core.catalogue, definition)
    times = (("CR", definition.created), ("ALT", definition.altered))
    for when, value in times if definition.kind in DATED else times[1:]:
        day, _, time = value.partition(" ")
        row[f"{when}DATE"], row[f"{when}TIME"] = day, time
    return row


def _title(definition: Definition) -> Row:
    if definition.kind in QUEUE_KINDS:
        return {"QUEUE": definition.name, "TYPE": definition.kind}
    if definition.kind == "QMGR":
        return {}
    if definition.kind == "SUB":
        return {"SUB": definition.name, "SUBID": str(definition.extra.get("SUBID", ""))}
    return {definition.kind: definition.name}


def queue_manager_facts(core: Core) -> Row:
    """Returns the attributes of the queue manager that ALTER QMGR cannot change."""
    return {
        "QMNAME": core.name,
        "CMDLEVEL": str(COMMAND_LEVEL),
        "VERSION": VERSION,
        "PLATFORM": "UNIX",
        "COMMANDQ": "SYSTEM.ADMIN.COMMAND.QUEUE",
        "MAXPRTY": "9",
        "SYNCPT": "",
        "DISTL": "NO",
        "QMID": core.identifier,
    }


def queue_status(core: Core, name: str) -> Mapping[str, Value]:
    """Returns the row of DISPLAY QSTATUS TYPE(QUEUE) for a queue."""
    queue = core.queues[name]
    oldest = core.store.oldest(name)
    age = int(core.now() - oldest / 1_000_000) if oldest else -1
    return {
        "CURDEPTH": core.depth(queue),
        "IPPROCS": queue.inputs,
        "OPPROCS": queue.outputs,
        "MSGAGE": max(age, 0) if oldest else -1,
        "UNCOM": queue.uncommitted_puts + len(queue.locked),
        "LPUTDATE": _day(queue.last_put),
        "LPUTTIME": _time(queue.last_put),
        "LGETDATE": _day(queue.last_get),
        "LGETTIME": _time(queue.last_get),
    }


def _day(when: float) -> str:
    return f"{datetime.fromtimestamp(when, UTC):%Y-%m-%d}" if when else ""


def _time(when: float) -> str:
    return f"{datetime.fromtimestamp(when, UTC):%H.%M.%S}" if when else ""

"""The objects of the queue manager: definitions by type and name, their attributes, and their form on disk.

Pure. A definition is kept as one state record of the store, named by its type and name.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from gateway.queue_manager.objects.attributes import BY_KEYWORD, HEXADECIMAL, QUEUE_KINDS, TABLES, Attribute, Value

NAME = re.compile(r"[A-Za-z0-9./_%]{1,48}\Z")
"""Valid names of objects: 1 to 48 of these characters; case matters."""

NAMED_FREELY = frozenset({"SUB"})
"""Types with names of any characters, up to 10,240 long: subscriptions."""

VERSION, COMMAND_LEVEL = "09040000", 940
"""The version of IBM MQ that the queue manager states."""


@dataclass(slots=True)
class Definition:
    """One object. `attributes` holds every attribute of its type."""

    kind: str
    name: str
    attributes: dict[str, Value]
    created: str = ""
    """When the object was defined: `YYYY-MM-DD HH.MM.SS`, as CRDATE and CRTIME show it."""
    altered: str = ""
    dynamic: int = 0
    """MQQDT_*: 0 or 1 predefined, 2 permanent dynamic, 3 temporary dynamic (never on disk)."""
    extra: dict[str, Value] = field(default_factory=dict)
    """What is kept with the object without being an attribute of MQSC (a subscription's identifier)."""

    def number(self, keyword: str) -> int:
        """Returns an integer attribute."""
        value = self.attributes[keyword]
        return value if isinstance(value, int) else 0

    def text(self, keyword: str) -> str:
        """Returns a character attribute."""
        return str(self.attributes[keyword])

    def begin_expiry(self, now: float) -> None:
        """Let the EXPIRY of a subscription (tenths of a second) count from `now` on."""
        self.extra = {word: value for word, value in self.extra.items() if word != "EXPIRES"}
        if self.number("EXPIRY") > 0:
            self.extra["EXPIRES"] = int(now + self.number("EXPIRY") / 10)

    def names(self) -> list[str]:
        """Returns the names in a namelist."""
        return [name for name in self.text("NAMES").split(",") if name]

    def encode(self) -> bytes:
        """Returns the state record: only what differs from the defaults of the type."""
        table = BY_KEYWORD[self.kind]
        changed = {word: value for word, value in self.attributes.items() if value != table[word].default}
        record = [self.kind, self.name, changed, self.created, self.altered, self.dynamic, self.extra]
        return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()


def decode_definition(data: bytes) -> Definition:
    """Read what `encode` wrote. Unknown attributes are dropped, and missing ones get their defaults. So do invalid
    hexadecimal digits: an earlier version accepted any text."""
    kind, name, changed, created, altered, dynamic, extra = json.loads(data)
    known = {
        word: value
        for word, value in changed.items()
        if word in BY_KEYWORD[kind] and (word not in HEXADECIMAL or is_hexadecimal(str(value)))
    }
    return Definition(kind, name, defaults(kind) | known, created, altered, dynamic, extra)


def defaults(kind: str) -> dict[str, Value]:
    """Returns every attribute of this type with its default."""
    return {attribute.keyword: attribute.default for attribute in TABLES[kind]}


def valid_name(kind: str, name: str) -> bool:
    """Whether an object of this type may have this name."""
    return 0 < len(name) <= 10_240 if kind in NAMED_FREELY else NAME.match(name) is not None


def family(kind: str) -> str:
    """Returns the name space of a type: all types of queue share one, every other type has its own."""
    return "QUEUE" if kind in QUEUE_KINDS else kind


class Catalogue:
    """Holds all definitions."""

    queue_manager: Definition
    """The queue manager's own attributes; there are none until it has been defined."""

    def __init__(self) -> None:
        self._objects: defaultdict[str, dict[str, Definition]] = defaultdict(dict)
        """Definitions by name space and name: programs make thousands of subscriptions and dynamic queues."""
        self._changes = Counter[str]()
        self.version = 0
        """Incremented with every change; caches of resolved names compare it."""

    def get(self, kind: str, name: str) -> Definition | None:
        """Returns the object of this type, or None; for a queue of any type ask for `QUEUE`."""
        return self._objects[family(kind)].get(name)

    def changes(self, kind: str) -> int:
        """Returns how often objects in the name space of this type have changed."""
        return self._changes[family(kind)]

    def add(self, definition: Definition) -> None:
        """Define or replace an object."""
        self._objects[family(definition.kind)][definition.name] = definition
        if definition.kind == "QMGR":
            self.queue_manager = definition
        self._changed(definition)

    def remove(self, definition: Definition) -> None:
        """Delete an object."""
        self._objects[family(definition.kind)].pop(definition.name, None)
        self._changed(definition)

    def _changed(self, definition: Definition) -> None:
        self._changes[family(definition.kind)] += 1
        self.version += 1

    def matching(self, kinds: Iterable[str], pattern: str = "*") -> Iterator[Definition]:
        """Yields the objects of these types that match a generic name (`ABC*`), in the order of their names."""
        wanted = set(kinds)
        for objects in [self._objects[one] for one in sorted(set(map(family, wanted)))]:
            for name in sorted(objects) if pattern.endswith("*") else [pattern]:
                definition = objects.get(name)  # may be gone: the caller may take its time
                if definition is not None and definition.kind in wanted and matches(pattern, name):
                    yield definition


def matches(pattern: str, name: str) -> bool:
    """Whether a name matches a generic name: a `*` at its end stands for anything."""
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def is_hexadecimal(text: str) -> bool:
    """Whether a text consists of hexadecimal digits, two for each byte."""
    try:
        bytes.fromhex(text)
    except ValueError:
        return False
    return True


def checked(attribute: Attribute, value: Value) -> Value | None:
    """Returns the value if the attribute takes it, otherwise None."""
    if attribute.keyword in HEXADECIMAL and not is_hexadecimal(str(value)):
        return None
    if attribute.is_text:
        return value if isinstance(value, str) and len(value.encode()) <= attribute.length else None
    if not isinstance(value, int):
        return None
    if attribute.words is not None and value in attribute.words.values():
        return value
    numeric = attribute.words is None or attribute.high != 999_999_999 or attribute.low < 0
    return value if numeric and attribute.low <= value <= attribute.high else None

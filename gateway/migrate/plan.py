"""What a reader makes of a configuration: settings, mappings, users, objects, and what has no counterpart.

Readers are pure: they get texts, and a function that gives them the texts of the files these name. Where what was
configured cannot be said here, less is allowed and a note says so: nothing gets open that was closed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

ReadFile = Callable[[str], str | None]
"""The text of a file that the configuration names, by the name written there; None: it cannot be read."""

ReadDirectory = Callable[[str], list[tuple[str, str]] | None]
"""The files of a directory that the configuration names, each with the name it is spoken of by; None: as above."""


class Note(NamedTuple):
    """One thing the operator has to know, and where it comes from."""

    file: str
    line: int
    """0: the whole file, or a form without lines."""
    text: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.text}"


@dataclass(slots=True)
class Plan:
    """Everything that is to be written."""

    source: str
    """In a few words, what it was read from."""
    settings: dict[str, Any] = field(default_factory=dict)
    mappings: dict[str, Any] = field(default_factory=dict)
    users: list[str] | None = None
    """Lines of the password file; None: there is none."""
    secrets: dict[str, str] = field(default_factory=dict)
    """Further files that only their owner may read, by name."""
    objects: list[str] = field(default_factory=list)
    """MQSC commands that define what the mappings need."""
    notes: list[Note] = field(default_factory=list)

    def say(self, file: str, line: int, text: str) -> None:
        """Add a note, once."""
        note = Note(file, line, text)
        if note not in self.notes:
            self.notes.append(note)

    def section(self, name: str) -> dict[str, Any]:
        """A section of the settings, made when it is first needed."""
        found: dict[str, Any] = self.settings.setdefault(name, {})
        return found


USERS = "users"
"""Name of the password file."""
DENY_ALL: dict[str, Any] = {"deny": ["#"]}
"""The access entry for when nothing may be allowed."""

DEFAULT_RULE: dict[str, Any] = {"name": "everything", "topic": "#", "queue": "MQGATE.DEFAULT"}
"""What a gateway without a mapping does."""


def definition(queue: str, attributes: str = "") -> str:
    """The MQSC of a queue that may fill. Without MAXDEPTH it takes 5,000 messages, and then devices wait. That of
    DEFAULT_RULE takes as many as where the gateway makes it."""
    depth = 999_999_999 if queue == DEFAULT_RULE["queue"] else 1_000_000
    name = queue if queue == queue.upper() else f"'{queue}'"
    return f"DEFINE QLOCAL({name}) DEFPSIST(YES) MAXDEPTH({depth}) {attributes}NOREPLACE"


def name_of_object(text: str, length: int = 48) -> str:
    """A valid name of an MQ object like `text`."""
    return re.sub(r"[^A-Z0-9._%/]", ".", text.upper()).strip(".")[:length] or "IMPORTED"


def unused(name: str, taken: set[str]) -> str:
    """`name`, or with a number when it is taken; it is taken then."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    taken.add(found)
    return found

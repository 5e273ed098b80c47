"""What a reader makes of a configuration: settings, mappings, users, objects, and what has no counterpart.

Readers are pure: they get texts, and a function that returns the texts of the files that these name. If something
cannot be expressed here, less is allowed and a note says so: nothing that was closed is opened.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

ReadFile = Callable[[str], str | None]
"""Returns the text of a file that the configuration names, by the name written there; None if it cannot be read."""

ReadDirectory = Callable[[str], list[tuple[str, str]] | None]
"""Returns the files of a directory that the configuration names, each with the name used in notes; None if it cannot be
read."""


class Note(NamedTuple):
    """One thing that the operator has to know, and where it comes from."""

    file: str
    line: int
    """The line; 0: the whole file, or a format without lines."""
    text: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.text}"


@dataclass(slots=True)
class Plan:
    """Everything that is to be written."""

    source: str
    """What it was read from, in a few words."""
    settings: dict[str, Any] = field(default_factory=dict)
    mappings: dict[str, Any] = field(default_factory=dict)
    users: list[str] | None = None
    """Lines of the password file; None if there is none."""
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
        """Returns a section of the settings, made when it is first needed."""
        found: dict[str, Any] = self.settings.setdefault(name, {})
        return found


USERS = "users"
"""The name of the password file."""
DENY_ALL: dict[str, Any] = {"deny": ["#"]}
"""The access entry for when nothing may be allowed."""

DEFAULT_RULE: dict[str, Any] = {"name": "everything", "topic": "#", "queue": "MQGATE.DEFAULT"}
"""What a gateway without a mapping does."""


def definition(queue: str, attributes: str = "") -> str:
    """Returns the MQSC of a queue that may fill. Without MAXDEPTH it would take 5,000 messages, and then devices wait.
    The queue of DEFAULT_RULE takes as many as where the gateway makes it."""
    depth = 999_999_999 if queue == DEFAULT_RULE["queue"] else 1_000_000
    name = queue if queue == queue.upper() else f"'{queue}'"
    return f"DEFINE QLOCAL({name}) DEFPSIST(YES) MAXDEPTH({depth}) {attributes}NOREPLACE"


def name_of_object(text: str, length: int = 48) -> str:
    """Returns a valid name of an MQ object that resembles `text`."""
    return re.sub(r"[^A-Z0-9._%/]", ".", text.upper()).strip(".")[:length] or "IMPORTED"


def unused(name: str, taken: set[str]) -> str:
    """Returns `name`, with a number if it is taken already, and marks it as taken."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    taken.add(found)
    return found

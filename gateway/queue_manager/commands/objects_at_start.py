"""The MQSC commands that a queue manager begins with: its own, and those of the settings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container
from importlib.resources import files

from gateway.queue_manager.commands.mqsc_parse import commands


def default_commands(name: str) -> str:
    """Returns the commands that every queue manager begins with."""
    return files("gateway.queue_manager.objects").joinpath(name).read_text()


def defined_twice(text: str) -> set[str]:
    """Returns the names that more than one command of a text defines for the same kind of object. All queues are of one
    kind; a topic may have the name of a queue. A command in a comment, or in a description, defines nothing."""
    defined: Counter[tuple[str, str]] = Counter()
    for _, command in commands(text):
        found = re.match(r"(?i)DEF(?:INE)?\s+(\w+)\s*\(\s*('?)([^'()\s]+)'?\s*\)", command)
        if found is not None:
            kind, quote, name = found.groups()
            defined["Q" if kind[0] in "Qq" else kind.upper(), name if quote else name.upper()] += 1
    return {name for (_, name), times in defined.items() if times > 1}


def exists_already(problem: str, repeated: Container[str]) -> bool:
    """Whether the problem is only that an object of the text exists already: it stays as its administrators have
    altered it. An object that is defined twice in the text is an error. The same holds for records that exist already,
    or are gone already."""
    if problem.startswith(("AMQ8882E", "AMQ8884E")):
        return True
    found = re.search(r"AMQ8150E: .* already exists: (\S+?)\.?$", problem)
    return found is not None and found[1] not in repeated

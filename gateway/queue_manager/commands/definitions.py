"""Writes the objects of the queue manager as the MQSC commands that define them anew, here or elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.ports import state_queues
from gateway.queue_manager.objects.attributes import BY_KEYWORD, FLAGS, Attribute, Value, in_words
from gateway.queue_manager.objects.catalogue import Catalogue, Definition

KINDS = ("PROCESS", "NAMELIST", "TOPIC", "QLOCAL", "QMODEL", "QALIAS", "QREMOTE", "SUB")
"""Types of objects in the order of the script: those that others refer to come first."""


def script(catalogue: Catalogue) -> Iterator[str]:
    """Yields a command for each object that somebody has defined, with what differs from the defaults of its type."""
    for kind in KINDS:
        for definition in catalogue.matching((kind,)):
            if not _is_own(definition):
                yield _command(definition)


def _is_own(definition: Definition) -> bool:
    """Whether the queue manager or the gateway makes the object by itself."""
    name = definition.name
    return name.startswith("SYSTEM.") or name in state_queues.ALL or definition.dynamic > 1


def _command(definition: Definition) -> str:
    if definition.kind == "TOPIC" and not definition.text("TOPICSTR"):  # made by an earlier release
        return f"* TOPIC {definition.name!a} is left out: it has no TOPICSTR, without which it cannot be defined"
    table = BY_KEYWORD[definition.kind]
    parts = [f"DEFINE {definition.kind}({_quoted(definition.name)}) REPLACE"]
    parts += [
        _parameter(table[word], value)
        for word, value in sorted(definition.attributes.items())
        if value != table[word].default
    ]
    if any("\n" in part or "\r" in part for part in parts):  # programs may name and describe subscriptions so
        return f"* {definition.kind} {definition.name!a} is left out: a value has a line end, which MQSC cannot express"
    return " +\n  ".join(parts)


def _parameter(attribute: Attribute, value: Value) -> str:
    for flag, (word, number) in FLAGS.items():
        if word == attribute.keyword and number == value:
            return flag
    if attribute.keyword == "NAMES":
        return f"NAMES({','.join(map(_quoted, str(value).split(',')))})"
    return f"{attribute.keyword}({_quoted(value) if isinstance(value, str) else in_words(attribute, value)})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

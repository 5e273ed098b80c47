"""Whether the queue manager has the queues that rules name, or gets them from the MQSC file of the settings: `mqgate
check --queues`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from gateway.app.files.directories import data_directory
from gateway.app.mappings import read_table
from gateway.app.queue_managers.embedded import objects_of, queues_of_objects
from gateway.cli.reach import Reach, Refused, before_first_start, reach, segment
from gateway.config.load import load_settings
from gateway.errors import Finding
from gateway.ports.state_queues import ALL, DEAD_LETTERS, DEFAULT
from gateway.routing.table import Table

_HARM = {
    "dead_letter": "what it takes is dead-lettered",
    "hold": "what it takes is held back",
    "drop": "what it takes is lost",
    "disconnect": "who publishes to it is disconnected",
}


def missing_queues(config: str) -> list[Finding]:
    """A finding for each rule whose queue is not there, as the running gateway says or its stopped store, and is not
    made by the next start. ConfigurationError: the objects of the settings keep it from starting. Queues that are named
    by the topic are known when a publication comes."""
    settings = load_settings(config, os.environ, {})
    table = read_table(settings)
    if settings.queue_manager.ibm is not None:
        with reach(config, None) as there:
            return list(_missing(table, there, {}))
    own = dict.fromkeys((*ALL, DEAD_LETTERS, DEFAULT), True)
    objects, text = objects_of(settings)
    if not data_directory(settings).is_dir():
        with before_first_start(settings) as there:
            return list(_missing(table, there, own))
    with reach(config, None) as there:
        return list(_missing(table, there, own, objects, queues_of_objects(objects, text)))


def _missing(
    table: Table, there: Reach, known: dict[str, bool], objects: str = "", coming: frozenset[str] = frozenset()
) -> Iterator[Finding]:
    """`known`: whether queues are there; the embedded queue manager makes those of the gateway when they are used.
    `coming`: those that the next start makes, of the file `objects`."""
    for rule, name, harm in _named(table):
        if name not in known:
            known[name] = _is_there(there, name)
        if known[name] or (name in coming and not there.running):
            continue
        what = f"rule {rule.name!r}: there is no queue {name!r}: {harm}"
        fix = f"define it (DEFINE QLOCAL('{name}')), or correct the name"
        if name in coming:
            fix = f"{objects} defines it when the gateway starts again: start it again, or run `mqgate mqsc {objects}`"
        yield Finding(rule.file, rule.line, 1, what, fix)


def _named(table: Table) -> Iterator[tuple[Any, str, str]]:
    for route in table.routes:
        spec = route.rule.spec
        if spec.queue and "{" not in spec.queue and not spec.queue_manager:
            yield route.rule, spec.queue, _HARM[spec.on_failure.then]
    for rule in table.outbound:
        name = rule.spec.queue or rule.spec.transmission_queue
        if name and not rule.targets:
            yield rule, name, "nothing comes from it"


def _is_there(there: Reach, name: str) -> bool:
    try:
        there.get(f"/queues/{segment(name)}")
    except Refused as refused:
        if vars(refused).get("exit_code") != 1:
            raise
        return False
    return True

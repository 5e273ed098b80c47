"""Checks whether the queue manager has the queues that rules name, or gets them from the MQSC file of the settings:
`mqgate check --queues`."""

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
    "dead_letter": "its messages are dead-lettered",
    "hold": "its messages are held back",
    "drop": "its messages are lost",
    "disconnect": "devices that publish to it are disconnected",
}


def missing_queues(config: str) -> list[Finding]:
    """Returns a finding for each rule whose queue does not exist, according to the running gateway or its stopped
    store, and is not made by the next start. Queues named by the topic are known only when a publication comes. Raises
    ConfigurationError if the objects of the settings prevent it from starting."""
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
    """Yields the findings. `known`: whether queues exist; the embedded queue manager makes the gateway's own when they
    are used. `coming`: queues that the next start makes from the file `objects`."""
    for rule, name, harm in _named(table):
        if name not in known:
            known[name] = _is_there(there, name)
        if known[name] or (name in coming and not there.running):
            continue
        what = f"rule {rule.name!r}: there is no queue {name!r}: {harm}"
        fix = f"define it (DEFINE QLOCAL('{name}')), or correct the name"
        if name in coming:
            fix = f"{objects} defines it at the next start: restart the gateway, or run `mqgate mqsc {objects}`"
        yield Finding(rule.file, rule.line, 1, what, fix)


def _named(table: Table) -> Iterator[tuple[Any, str, str]]:
    for route in table.routes:
        spec = route.rule.spec
        if spec.queue and "{" not in spec.queue and not spec.queue_manager:
            yield route.rule, spec.queue, _HARM[spec.on_failure.then]
    for rule in table.outbound:
        name = rule.spec.queue or rule.spec.transmission_queue
        if name and not rule.targets:
            yield rule, name, "no messages come from it"


def _is_there(there: Reach, name: str) -> bool:
    try:
        there.get(f"/queues/{segment(name)}")
    except Refused as refused:
        if vars(refused).get("exit_code") != 1:
            raise
        return False
    return True

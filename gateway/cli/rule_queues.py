"""Whether the queue manager has the queues that rules name: `mqgate check --queues`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from gateway.app.mappings import read_table
from gateway.cli.reach import Reach, Refused, reach, segment
from gateway.config.load import load_settings
from gateway.errors import Finding
from gateway.routing.table import Table

_HARM = {
    "dead_letter": "what it takes is dead-lettered",
    "hold": "what it takes is held back",
    "drop": "what it takes is lost",
    "disconnect": "who publishes to it is disconnected",
}


def missing_queues(config: str) -> list[Finding]:
    """A finding for each rule whose queue is not there, as the running gateway says or its stopped store. Queues that
    are named by the topic are known when a publication comes."""
    table = read_table(load_settings(config, os.environ, {}))
    with reach(config, None) as there:
        return list(_missing(table, there))


def _missing(table: Table, there: Reach) -> Iterator[Finding]:
    known: dict[str, bool] = {}
    for rule, name, harm in _named(table):
        if name not in known:
            known[name] = _is_there(there, name)
        if not known[name]:
            what = f"rule {rule.name!r}: there is no queue {name!r}: {harm}"
            yield Finding(rule.file, rule.line, 1, what, f"define it (DEFINE QLOCAL('{name}')), or correct the name")


def _named(table: Table) -> Iterator[tuple[Any, str, str]]:
    for route in table.routes:
        spec = route.rule.spec
        if spec.queue and "{" not in spec.queue and not spec.queue_manager:
            yield route.rule, spec.queue, _HARM[spec.on_failure.then]
    for rule in table.outbound:
        name = rule.spec.queue or rule.spec.transmission_queue
        if name:
            yield rule, name, "nothing comes from it"


def _is_there(there: Reach, name: str) -> bool:
    try:
        there.get(f"/queues/{segment(name)}")
    except Refused as refused:
        if vars(refused).get("exit_code") != 1:
            raise
        return False
    return True

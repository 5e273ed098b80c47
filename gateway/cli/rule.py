"""`mqgate rule`: the rules of a running gateway."""

from __future__ import annotations

import click

from gateway.cli.reach import common, running_gateway, show_json
from gateway.cli.tables import everything, show_table
from gateway.cli.words import Words


@click.group(cls=Words)
def rule() -> None:
    """The rules in force."""


@rule.command("list")
@common
def list_(config: str | None, data: str | None, as_json: bool) -> None:
    """List rules in order, with what each has done since the gateway started."""
    items = everything(running_gateway(config, data), "/rules")
    if as_json:
        show_json(items)
        return
    columns = ("rule", "topic", "queue", "matched", "done", "held", "dead-lettered", "dropped", "place")
    show_table(
        columns,
        [
            (one["name"], one["topic"], one["queue"],
             *(str(one[key]) for key in ("matched", "done", "held", "dead_lettered", "dropped")),
             f"{one['file']}:{one['line']}")
            for one in items
        ],
        first_to_go=("place", "done"),
    )  # fmt: skip

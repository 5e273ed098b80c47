"""`mqgate gateway`: the gateways on one queue manager."""

from __future__ import annotations

import time
from typing import Any

import click

from gateway.cli.reach import common, running_gateway, show_json
from gateway.cli.tables import show_table

COLUMNS = ("gateway", "version", "connections", "sessions", "subscriptions", "received", "sent", "runs for", "heard")


@click.group()
def gateway() -> None:
    """The gateways on one queue manager."""


@gateway.command("list")
@common
def list_(config: str | None, data: str | None, as_json: bool) -> None:
    """All of them, as the running gateway knows them; its own line has a star. Figures are some seconds old."""
    items = running_gateway(config, data).get("/gateways")["items"]
    if as_json:
        show_json(items)
        return
    show_table(COLUMNS, (_row(one, time.time()) for one in items))


def _row(one: dict[str, Any], now: float) -> tuple[str, ...]:
    names = ("connections", "sessions", "subscriptions", "received", "sent")
    figures = ("-" if one[name] is None else str(one[name]) for name in names)
    heard = "*" if one["own"] else _ago(one["heard"], now)
    return one["name"], one["version"], *figures, _ago(one["started"], now), heard


def _ago(then: float | None, now: float) -> str:
    """How long ago, in the largest unit that is whole."""
    if then is None:
        return "-"
    seconds = max(0, int(now - then))
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"

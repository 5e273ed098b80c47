"""`mqgate gateway`: the gateways on one queue manager."""

from __future__ import annotations

import time
from typing import Any

import click

from gateway.cli.reach import common, running_gateway, show_json
from gateway.cli.tables import show_table
from gateway.cli.words import Words

COLUMNS = (
    "gateway", "version", "connections", "sessions", "subscriptions", "in/s", "out/s", "lease",
    "runs for", "heard", "page",
)  # fmt: skip


@click.group(cls=Words)
def gateway() -> None:
    """The gateways on one queue manager."""


@gateway.command("list")
@common
def list_(config: str | None, data: str | None, as_json: bool) -> None:
    """List all gateways as the running gateway knows them; its own line has a star. Figures are some seconds old.
    `lease` is how long the lease of each has been unrenewed."""
    items = running_gateway(config, data).get("/gateways")["items"]
    if as_json:
        show_json(items)
        return
    show_table(COLUMNS, (_row(one, time.time()) for one in items), first_to_go=("page", "subscriptions", "version"))


def _row(one: dict[str, Any], now: float) -> tuple[str, ...]:
    figures = ("-" if one[name] is None else str(one[name]) for name in ("connections", "sessions", "subscriptions"))
    rates = ("-" if one[name] is None else f"{one[name]:.1f}" for name in ("received_rate", "sent_rate"))
    lease = "-" if one["lease_age"] is None else f"{one['lease_age']:.0f} of {one['lease_seconds']:.0f} s"
    heard = "*" if one["own"] else _ago(one["heard"], now)
    runs = _ago(one["started"], now)
    return one["name"], one["version"] or "-", *figures, *rates, lease, runs, heard, one["page"] or "-"


def _ago(then: float | None, now: float) -> str:
    """Returns how long ago a time was, in the largest whole unit."""
    if then is None:
        return "-"
    seconds = max(0, int(now - then))
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"

"""`mqgate client`: devices of a running gateway."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from gateway.cli.examples import examples
from gateway.cli.reach import Refused, common, confirm, reach, running_gateway, segment, show_json
from gateway.cli.tables import everything, show_table
from gateway.cli.words import Words


@click.group(cls=Words)
def client() -> None:
    """Connected and known devices."""


@examples(
    "mqgate client list",
    "mqgate client list pump --state connected",
)
@client.command("list")
@click.argument("search", default="")
@click.option("--state", type=click.Choice(["connected", "disconnected", "held_back"]))
@common
def list_(search: str, state: str | None, config: str | None, data: str | None, as_json: bool) -> None:
    """List devices. SEARCH: part of a client identifier."""
    with reach(config, data) as there:
        items = everything(there, "/clients", search=search or None, state=state)
    if as_json:
        show_json(items)
        return
    columns = ("client", "connected", "protocol", "user", "peer", "in doubt in", "out", "queued", "held back")
    show_table(columns, map(_row, items), first_to_go=("protocol", "out", "user"))
    click.echo(f"{len(items)} in all", err=True)


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    state = "yes" if one["connected"] else "no"
    numbers = (str(one[key]) for key in ("in_doubt_in", "in_doubt_out", "queued"))
    held = "yes" if one["paused"] else ""
    return one["client_id"], state, one["protocol"], one["user"] or "", one["peer"] or "", *numbers, held


@examples(
    "mqgate client show line7 --history",
)
@client.command()
@click.argument("client_id")
@click.option(
    "--history", is_flag=True, help="What has happened to it: connections, refusals, losses; and why it waits."
)
@common
def show(client_id: str, history: bool, config: str | None, data: str | None, as_json: bool) -> None:
    """Show one device: subscriptions, in-doubt messages, will, and why it is held back."""
    with reach(config, data) as there:
        path = f"/clients/{segment(client_id)}"
        if not history:
            show_json(there.get(path))
            return
        events = there.get(f"{path}/history")["items"]
        try:
            now = there.get(path)
        except Refused:  # it never connected, or its session has ended
            now = None
    if as_json:
        show_json({"client": now, "history": events})
        return
    for one in events:
        click.echo(_event(one))
    click.echo(_present(client_id, now))


def _event(one: dict[str, Any]) -> str:
    when = datetime.fromtimestamp(one["last"], UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    times = f" ({one['count']} times since {_clock(one['first'])})" if one["count"] > 1 else ""
    fields = "".join(f"  {name}={value}" for name, value in one["fields"].items())
    return f"{when}  {one['event']:<22} {one['text']}{times}{fields}"


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%SZ")


def _present(client_id: str, now: dict[str, Any] | None) -> str:
    """Returns the state of the device at this moment."""
    if now is None:
        return f"{client_id} has no session"
    state = f"connected from {now['peer']}" if now["connected"] else "away"
    doubt = f"in doubt {now['in_doubt_in']} in, {now['in_doubt_out']} out; {now['queued']} queued"
    held = f"; held back: {now['held_back']}" if now.get("held_back") else ""
    return f"{client_id} is {state}; {doubt}{held}"


@client.command()
@click.argument("client_id")
@common
def kick(client_id: str, config: str | None, data: str | None, as_json: bool) -> None:
    """Disconnect a device; its session stays."""
    del as_json
    with reach(config, data) as there:
        there.delete(f"/clients/{segment(client_id)}/connection")
    click.echo(f"{client_id} is disconnected")


@client.command()
@click.argument("client_id")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@common
def purge(client_id: str, yes: bool, config: str | None, data: str | None, as_json: bool) -> None:
    """Disconnect a device and discard its session: subscriptions, queued messages, will."""
    del as_json
    if not yes:
        confirm(f"Forget everything about {client_id}", config, data)
    with reach(config, data) as there:
        there.delete(f"/clients/{segment(client_id)}")
    click.echo(f"{client_id} is forgotten")


@client.command()
@click.option(
    "--rate", type=click.IntRange(1, 10_000), default=10, show_default=True,
    help="Connections that each gateway hands back per second.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Say what each gateway would hand back, and change nothing.")
@click.option("--stop", is_flag=True, help="Stop handing back connections.")
@common
def rebalance(rate: int, dry_run: bool, stop: bool, config: str | None, data: str | None, as_json: bool) -> None:
    """Distribute connections evenly over the gateways of one queue manager, after an update or when a gateway was
    added.

    Each gateway that has more than its share disconnects devices, a few at a time, and these come back through the load
    balancer. Only devices whose sessions move with them are disconnected, each at most once.
    """
    there = running_gateway(config, data)
    if stop:
        there.delete("/gateways/rebalance")
        click.echo("no more connections are handed back")
        return
    answer = there.post("/gateways/rebalance", {"rate": rate, "dry_run": dry_run})
    if as_json:
        show_json(answer)
        return
    columns = ("gateway", "connections", "can move", "hands back")
    show_table(columns, map(_share, answer["items"]))
    click.echo(_outcome(answer, dry_run=dry_run), err=True)


def _share(one: dict[str, Any]) -> tuple[str, ...]:
    movable = "-" if one["movable"] is None else str(one["movable"])
    return one["name"], str(one["connections"]), movable, str(one["hands_back"])


def _outcome(answer: dict[str, Any], *, dry_run: bool) -> str:
    if not any(one["hands_back"] for one in answer["items"]):
        return f"nothing to do: no gateway has more than {answer['keep']}"
    if dry_run:
        return f"it would take at least {answer['seconds']:g} s at {answer['rate']} per second; nothing was changed"
    return f"begun; takes at least {answer['seconds']:g} s; watch it with mqgate gateway list, end it with --stop"

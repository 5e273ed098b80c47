"""`mqgate client`: devices of a running gateway."""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table

from gateway.cli.reach import common, reach, segment, show_json


@click.group()
def client() -> None:
    """Connected and known devices."""


@client.command("list")
@click.argument("search", default="")
@click.option("--state", type=click.Choice(["connected", "disconnected"]))
@common
def list_(search: str, state: str | None, config: str | None, data: str | None, as_json: bool) -> None:
    """Devices. SEARCH: part of a client identifier."""
    with reach(config, data) as there:
        answer = there.get("/clients", search=search or None, state=state, limit=500)
    if as_json:
        show_json(answer["items"])
        return
    table = Table("client", "connected", "protocol", "user", "peer", "in doubt", "queued")
    for one in answer["items"]:
        doubt = f"{one['in_doubt_in']} in, {one['in_doubt_out']} out"
        table.add_row(
            one["client_id"], "yes" if one["connected"] else "no", one["protocol"], one["user"] or "",
            one["peer"] or "", doubt, str(one["queued"]),
        )  # fmt: skip
    Console().print(table)
    click.echo(f"{answer['total']} in all")


@client.command()
@click.argument("client_id")
@common
def show(client_id: str, config: str | None, data: str | None, as_json: bool) -> None:
    """One device: subscriptions, in-doubt messages, will."""
    del as_json
    with reach(config, data) as there:
        show_json(there.get(f"/clients/{segment(client_id)}"))


@client.command()
@click.argument("client_id")
@common
def kick(client_id: str, config: str | None, data: str | None, as_json: bool) -> None:
    """Disconnect; the session stays."""
    del as_json
    with reach(config, data) as there:
        there.delete(f"/clients/{segment(client_id)}/connection")
    click.echo(f"{client_id} is disconnected")


@client.command()
@click.argument("client_id")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@common
def purge(client_id: str, yes: bool, config: str | None, data: str | None, as_json: bool) -> None:
    """Disconnect and discard the session: subscriptions, queued messages, will."""
    del as_json
    if not yes:
        click.confirm(f"Forget everything of {client_id}?", abort=True)
    with reach(config, data) as there:
        there.delete(f"/clients/{segment(client_id)}")
    click.echo(f"{client_id} is forgotten")

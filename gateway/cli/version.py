"""`mqgate version`."""

from __future__ import annotations

import json
import platform

import click

from gateway.broker.publish.fast import compiled
from gateway.version import VERSION


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def version(as_json: bool) -> None:
    """Show the version."""
    if as_json:
        found = {"mqgate": VERSION, "python": platform.python_version(), "platform": platform.platform()}
        click.echo(json.dumps(found | {"compiled": compiled()}))
    else:
        click.echo(f"mqgate {VERSION}")

"""`mqgate version`."""

from __future__ import annotations

import json
import platform

import click

from gateway.version import VERSION


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def version(as_json: bool) -> None:
    """Show the version."""
    if as_json:
        click.echo(
            json.dumps({"mqgate": VERSION, "python": platform.python_version(), "platform": platform.platform()})
        )
    else:
        click.echo(f"mqgate {VERSION}")

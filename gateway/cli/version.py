"""`mqgate version`."""

from __future__ import annotations

import json
import platform

import click

from gateway.cli.extensions import missing
from gateway.version import VERSION


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Output as JSON.")
def version(as_json: bool) -> None:
    """Show the version, and whether a compiled part was built from other sources than those installed."""
    problem = None
    try:
        compiled = not missing()
    except ImportError as error:
        compiled, problem = False, str(error)
    if as_json:
        found = {"mqgate": VERSION, "python": platform.python_version(), "platform": platform.platform()}
        click.echo(json.dumps(found | {"compiled": compiled} | ({"problem": problem} if problem else {})))
    else:
        click.echo(f"mqgate {VERSION}")
        if problem:
            click.echo(problem, err=True)

"""`mqgate mqi`: the MQI library for programs that use ibmmq or pymqi."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from gateway.mqi.build import BuildFailed, instructions
from gateway.mqi.build import build as built


@click.group()
def mqi() -> None:
    """The MQI library for programs that use ibmmq or pymqi."""


@mqi.command()
@click.option(
    "--out", type=click.Path(file_okay=False), help="Directory for the library; a cache directory unless given."
)
def build(out: str | None) -> None:
    """Compile it with the system's C compiler and say how to use it."""
    try:
        made = built(Path(out) if out else None)
    except BuildFailed as error:
        click.echo(str(error), err=True)
        sys.exit(3)
    click.echo(instructions(made))

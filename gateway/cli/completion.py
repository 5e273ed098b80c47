"""`mqgate completion`: the script by which a shell completes commands, options and their values."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script for SHELL; in its start-up file write: eval "$(mqgate completion bash)"."""
    from gateway.cli.main import main

    made = get_completion_class(shell)
    assert made is not None  # noqa: S101 -- click knows these shells
    click.echo(made(main, {}, "mqgate", "_MQGATE_COMPLETE").source())

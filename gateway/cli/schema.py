"""`mqgate schema`: the JSON Schemas of settings and mappings, for editors and checkers."""

from __future__ import annotations

import json

import click


@click.command()
@click.argument("what", type=click.Choice(["settings", "mappings"]), default="mappings")
def schema(what: str) -> None:
    """Print the JSON Schema (draft-07) of WHAT."""
    if what == "mappings":
        from gateway.rules.schema import mapping_schema as made
    else:
        from gateway.config.schema import settings_schema as made
    click.echo(json.dumps(made(), indent=2, ensure_ascii=False))

"""`mqgate init`: a directory to begin with."""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path

import click

from gateway.app.files.whole_file import written_whole
from gateway.app.mappings import DEFAULT
from gateway.cli.examples import examples
from gateway.config.schema import settings_schema
from gateway.config.starter import starter_settings
from gateway.rules.schema import mapping_schema


@examples(
    "mqgate init /etc/mqgate --data /var/lib/mqgate/mqgate-data",
)
@click.command()
@click.argument("directory", type=click.Path(file_okay=False))
@click.option("--data", type=click.Path(file_okay=False, resolve_path=True), help="Write the directory of "
              "the journal into the settings: then commands find it with -c from everywhere.")  # fmt: skip
def init(directory: str, data: str | None) -> None:
    """Write a commented starter configuration to DIRECTORY: settings, a mapping, and the schemas from which editors
    complete."""
    root = Path(directory)
    (root / "mappings").mkdir(parents=True, exist_ok=True)
    default = files("gateway.rules").joinpath(DEFAULT).read_text(encoding="utf-8")
    wanted = {
        "mqgate.yaml": starter_settings(data=data or ""),
        "mappings/default.yaml": default,
        "mqgate.schema.json": json.dumps(settings_schema(), indent=2) + "\n",
        "mappings/mapping.schema.json": json.dumps(mapping_schema(), indent=2) + "\n",
    }
    there = [name for name in wanted if (root / name).exists()]
    if there:
        click.echo(f"{root} already has {', '.join(there)}: nothing is overwritten", err=True)
        sys.exit(1)
    _write(root, wanted)
    for name in wanted:
        click.echo(root / name)
    click.echo(f"\nmqgate check {root / 'mqgate.yaml'}\nmqgate run -c {root / 'mqgate.yaml'}")


def _write(root: Path, wanted: dict[str, str]) -> None:
    """Write all files, or none: what exists is not overwritten, and files left by a failed attempt would prevent a
    second one."""
    written: list[Path] = []
    try:
        for name, text in wanted.items():
            with written_whole(root / name) as out:
                out.write(text)
            written.append(root / name)
    except OSError:
        for path in written:
            path.unlink()
        raise

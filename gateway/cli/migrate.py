"""`mqgate import`: settings and mappings from another broker's configuration."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from gateway.cli.examples import examples
from gateway.config.counting import counted
from gateway.errors import ConfigurationError
from gateway.migrate.amlen import read_amlen
from gateway.migrate.mosquitto import read_mosquitto
from gateway.migrate.mqxr import read_mqxr
from gateway.migrate.plan import Plan
from gateway.migrate.writer import SETTINGS, write_plan

KINDS = ("mosquitto", "mqxr", "amlen")
STANDARD_INPUT = "-"


@examples(
    "mqgate import /etc/mosquitto/mosquitto.conf -o /etc/mqgate",
)
@click.command(name="import")
@click.argument("words", metavar="[mosquitto|mqxr|amlen] FILE...", nargs=-1, required=True)
@click.option("-o", "--output", default="mqgate-imported", show_default=True, type=click.Path(file_okay=False),
              help="Directory to write to.")  # fmt: skip
def import_(words: tuple[str, ...], output: str) -> None:
    """Make settings and mappings from the configuration of mosquitto (mosquitto.conf with the files it names), MQ
    Telemetry (what DISPLAY CHANNEL(*) CHLTYPE(MQTT) ALL prints, or mqxr_unix.properties) or Amlen (its configuration as
    JSON). `-` is standard input. What has no counterpart is reported line by line, and written to NOTES.txt."""
    kind, files = (words[0], words[1:]) if words[0] in KINDS else ("", words)
    if not files:
        raise click.UsageError(f"name a file, as in: mqgate import {kind} FILE")
    texts = {name: _text(name) for name in files}
    try:
        plan = _plan(kind or _recognized(texts), texts)
        written = write_plan(plan, Path(output))
    except (ConfigurationError, FileExistsError) as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    except OSError as error:
        click.echo(
            f"{error.filename or output} cannot be written: {error.strerror}: name another directory with -o", err=True
        )
        sys.exit(3)
    for note in plan.notes:
        click.echo(str(note), err=True)
    for path in written:
        click.echo(path)
    click.echo(f"\n{counted(len(plan.notes), 'note')} above. Next:  mqgate check {Path(output) / SETTINGS}")


def _plan(kind: str, texts: dict[str, str]) -> Plan:
    if kind == "amlen":
        return read_amlen(texts)
    if kind == "mqxr":
        return read_mqxr(texts)
    if len(texts) > 1:
        raise click.UsageError("give one mosquitto.conf; the files it names are read with it")
    name, text = next(iter(texts.items()))
    beside = Path(name).parent
    return read_mosquitto(
        name,
        text,
        lambda file: _read(beside / file),
        lambda directory: _files(beside, directory),
        str(beside.absolute()),
    )


def _recognized(texts: dict[str, str]) -> str:
    """Returns the broker that the files belong to, judged by their contents."""
    name, text = next(iter(texts.items()))
    if text.lstrip().startswith(("{", "[")):
        return "amlen"
    telemetry = "CHLTYPE(MQTT)" in text or "com.ibm.mq.MQXR" in text or Path(name).name.startswith("mqxr")
    return "mqxr" if telemetry else "mosquitto"


def _text(name: str) -> str:
    try:
        if name == STANDARD_INPUT:
            return sys.stdin.buffer.read().decode("utf-8-sig")
        return Path(name).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        click.echo(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}", err=True)
        sys.exit(3)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _files(beside: Path, directory: str) -> list[tuple[str, str]] | None:
    """Returns all *.conf files of a directory, in mosquitto's order: a before B, and A before a."""
    if not (beside / directory).is_dir():
        return None
    paths = sorted((beside / directory).glob("*.conf"), key=lambda path: (path.name.casefold(), path.name))
    texts = [_read(path) for path in paths]
    if None in texts:
        return None
    return [(f"{directory.rstrip('/')}/{path.name}", text or "") for path, text in zip(paths, texts, strict=True)]

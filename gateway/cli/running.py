"""`mqgate status` and `mqgate reload`: a running gateway as a whole."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from typing import Any

import click

from gateway.cli.reach import common, running_gateway, show_json
from gateway.config.counting import counted
from gateway.errors import Finding, printable


@click.command()
@common
def status(config: str | None, data: str | None, as_json: bool) -> None:
    """Show the state of the running gateway: whether it is ready, since when, connections, dead letters, and what needs
    attention. Exit code 1 if anything does."""
    answer = running_gateway(config, data).get("/overview")
    if as_json:
        show_json(answer)
    else:
        for line in _words(answer):
            click.echo(line)
    sys.exit(0 if answer["ready"] and not answer["problems"] and answer["last_reload"]["ok"] else 1)


def _words(answer: dict[str, Any]) -> list[str]:
    minutes, seconds = divmod(max(0, round(time.time() - answer["started"])), 60)
    state = "draining" if answer["draining"] else "ready" if answer["ready"] else "not ready"
    since = f"{minutes} min" if minutes else f"{seconds} s"
    letters = answer["dead_letters"]
    number = letters.get("depth") if isinstance(letters, dict) else letters
    known = [counted(answer[key], key.removesuffix("s")) for key in ("connections", "sessions", "subscriptions")]
    lines = [f"{state}, mqgate {answer['version']}, for {since}, on {answer['backend']}", ", ".join(known)]
    if number:
        lines.append(f"{counted(number, 'dead letter')}: mqgate dlq list")
    if skipped := answer.get("skipped"):
        lines.append(
            f"{counted(skipped['count'], 'message')} skipped for sessions that were full (mqtt.max_queued), the last "
            f"{datetime.fromtimestamp(skipped['time'], UTC):%Y-%m-%d %H:%M:%SZ} for {printable(skipped['client_id'])}: "
            "mqgate client list shows how many each has queued"
        )
    lines += [f"! {problem}" for problem in answer["problems"]]
    if not answer["last_reload"]["ok"]:
        lines.append("! the last reload was refused; the previous settings are still in force:")
        lines += [f"  {Finding(**one)}" for one in answer["last_reload"]["findings"]]
    return lines + _not_in_force(answer["last_reload"])


def _not_in_force(answer: dict[str, Any]) -> list[str]:
    """Returns settings that were read and wait for a restart."""
    return [f"not in force yet: {change}" for change in answer["waiting"]]


@click.command()
@common
def reload(config: str | None, data: str | None, as_json: bool) -> None:
    """Read settings, mappings and the files they name again, as SIGHUP does. If something is wrong it is reported, and
    the old ones stay in force: exit code 1. Settings that take effect only after a restart are named."""
    answer = running_gateway(config, data).post("/reload", {})
    if as_json:
        show_json(answer)
    else:
        changed = f"; changed: {', '.join(answer['changed'])}" if answer["changed"] else ", none changed"
        click.echo(f"reloaded: {counted(answer['rules'], 'rule')}{changed}")
        for line in _not_in_force(answer):
            click.echo(line)

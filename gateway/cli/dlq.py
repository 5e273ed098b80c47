"""`mqgate dlq`: dead letters, and messages set aside because they met a defect: list by reason, show, replay, export,
purge."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TextIO

import click
from rich.console import Console
from rich.progress import Progress, track

from gateway.app.files.whole_file import written_whole
from gateway.cli.examples import examples
from gateway.cli.numbers import Finite
from gateway.cli.queue import show_message
from gateway.cli.reach import Refused, common, confirm, reach, segment, show_json
from gateway.cli.reason import Reason
from gateway.cli.tables import PAGE, show_table
from gateway.cli.words import Words
from gateway.config.counting import counted
from gateway.errors import printable
from gateway.ports.state_queues import SET_ASIDE

BATCH = 100
set_aside = click.option("--set-aside", is_flag=True, help="What met a defect of the gateway, instead of dead letters.")


@click.group(cls=Words)
def dlq() -> None:
    """Dead letters."""


def selecting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select dead letters."""
    command = set_aside(command)
    command = click.option("--reason", type=Reason(), help="MQRC, MQFB or mqgate's own reason code: number or name.")(
        command
    )
    command = click.option("--destination", help="Queue they were destined for, or a pattern (`TELEMETRY.*`).")(command)
    return click.option("--token", "tokens", multiple=True, help="Only these messages.")(command)


def _selection(
    reason: int | None, destination: str | None, tokens: tuple[str, ...], aside: bool = False
) -> dict[str, Any]:
    chosen: dict[str, Any] = {"queue": SET_ASIDE} if aside else {}
    if reason is not None:
        chosen["reason"] = reason
    if destination is not None:
        chosen["destination"] = destination
    if tokens:
        chosen["tokens"] = list(tokens)
    return chosen


def _behind(chosen: dict[str, Any], failed: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns a selection that continues behind the messages that could not be put back and stay where they are."""
    if not failed:
        return chosen
    if "tokens" in chosen:
        tried = {str(one["token"]) for one in failed}
        return {**chosen, "tokens": [token for token in chosen["tokens"] if token not in tried]}
    return {**chosen, "after": str(failed[-1]["token"])}


def _queue(aside: bool) -> str | None:
    return SET_ASIDE if aside else None


@examples(
    "mqgate dlq list",
    "mqgate dlq list --reason MQRC_Q_FULL",
)
@dlq.command("list")
@click.option("--reason", type=Reason(), help="MQRC, MQFB or mqgate's own reason code: number or name.")
@click.option("--destination", help="Queue they were destined for, or a pattern (`TELEMETRY.*`).")
@click.option("-n", "--number", type=click.IntRange(min=1), default=20, show_default=True, help="Number of messages.")
@set_aside
@common
def list_(
    reason: int | None,
    destination: str | None,
    number: int,
    set_aside: bool,
    config: str | None,
    data: str | None,
    as_json: bool,
) -> None:
    """Count dead letters by reason and destination, and list the first."""
    chosen = {"reason": reason, "destination": destination, "queue": _queue(set_aside)}
    with reach(config, data) as there:
        answer = there.get("/dlq", **chosen, limit=min(number, PAGE))
        while answer["next"] is not None and (left := number - len(answer["items"])) > 0:
            more = there.get("/dlq", **chosen, limit=min(left, PAGE), after=answer["next"], counts="false")
            answer["items"] += more["items"]
            answer["next"] = more["next"]
    if as_json:
        show_json(answer)
        return
    if not answer["total"]:
        click.echo("nothing is set aside" if set_aside else "no dead letters")
        return
    show_table(("reason", "name", "destination", "count"), [
        (str(row["reason"]), row["reason_name"], row["destination"], str(row["count"])) for row in answer["summary"]
    ])  # fmt: skip
    for one in answer["items"]:
        preview, destination = printable(one["preview"]), printable(one["destination"])
        click.echo(f"{one['token']}  {one['reason_name']:<28}  {destination:<24}  {preview}")


@dlq.command()
@click.argument("token")
@set_aside
@common
def show(token: str, set_aside: bool, config: str | None, data: str | None, as_json: bool) -> None:
    """Show one dead letter, decoded."""
    with reach(config, data) as there:
        listing = there.get("/dlq", limit=1, counts="false", queue=_queue(set_aside))
        name = listing["items"][0]["queue"] if listing["items"] else "SYSTEM.DEAD.LETTER.QUEUE"
        message = there.get(f"/queues/{segment(name)}/messages/{token}")
    if as_json:
        show_json(message)
    else:
        show_message(message)


@examples(
    "mqgate dlq replay --reason 2085 --dry-run",
    "mqgate dlq replay --destination TELEMETRY.LIMA",
    "mqgate dlq replay --through-rules --reason schema",
)
@dlq.command()
@selecting
@click.option("--to", help="Put them on this queue instead of the one in the header.")
@click.option(
    "--through-rules", is_flag=True, help="Send them as the publications they were through the rules now in force."
)
@click.option("--all", "everything", is_flag=True, help="Replay all dead letters, as if no selection were given.")
@click.option("--limit", type=click.IntRange(min=1), help="At most this many.")
@click.option("--rate", type=Finite(min=0), default=0.0, help="Messages per second; 0: as fast as possible.")
@click.option("--dry-run", is_flag=True, help="Only show how many match.")
@common
def replay(
    reason: int | None, destination: str | None, tokens: tuple[str, ...], to: str | None, limit: int | None,
    through_rules: bool, everything: bool, rate: float, dry_run: bool, set_aside: bool, config: str | None,
    data: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Put dead letters back on their destination, with their original descriptor. Can be interrupted and repeated."""
    import time

    chosen = _selection(reason, destination, tokens, set_aside)
    if everything and (reason is not None or destination is not None or tokens):
        raise click.UsageError("--all excludes a selection (--reason, --destination, --token): give one of them")
    if to:
        chosen["to"] = to
    if through_rules:
        chosen["through_rules"] = True
    with reach(config, data) as there:
        matched = there.post("/dlq/replay", {**chosen, "dry_run": True, **({"limit": limit} if limit else {})})[
            "matched"
        ]
        if tokens and not matched:
            raise Refused(f"no dead letter has {'this token' if len(tokens) == 1 else 'one of these tokens'}")
        if dry_run:
            if as_json:
                show_json({"matched": matched, "done": 0, "failed": []})
            else:
                click.echo(f"{matched} would be replayed")
            return
        done, at_once = 0, min(BATCH, max(1, int(rate))) if rate else BATCH
        failed: list[dict[str, Any]] = []
        console, hidden = Console(stderr=True), not sys.stderr.isatty()
        for start in track(range(0, matched, at_once), "replaying", console=console, transient=True, disable=hidden):
            if rate and start:
                time.sleep(at_once / rate)
            answer = there.post("/dlq/replay", {**_behind(chosen, failed), "limit": min(at_once, matched - start)})
            done += answer["done"]
            failed += answer["failed"]
    result = {"matched": matched, "done": done, "failed": failed}
    if as_json:
        show_json(result)
    else:
        _show_replayed(result, state=set_aside and not to)
    if failed:
        raise SystemExit(1)


def _show_replayed(result: dict[str, Any], *, state: bool) -> None:
    """Show what was replayed. `state`: some of it may be the gateway's own state."""
    click.echo(f"{result['done']} of {result['matched']} replayed")
    if state and result["done"]:
        click.echo("what was the gateway's own state, such as sessions, is read at its next start", err=True)
    for one in result["failed"]:
        click.echo(f"  {one['token']}: {printable(one['text'])}", err=True)


@examples(
    "mqgate dlq export dead.jsonl",
)
@dlq.command()
@selecting
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@common
def export(
    reason: int | None, destination: str | None, tokens: tuple[str, ...], file: str, set_aside: bool,
    config: str | None, data: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Write dead letters, decoded, to FILE (`-`: standard output) as JSON lines. Removes nothing. FILE appears when all
    of them are in it; an existing one stays until then."""
    del as_json
    output: AbstractContextManager[TextIO] = written_whole(Path(file))
    if file == "-":
        output = nullcontext(sys.stdout)
    count, after = 0, None
    chosen = {"reason": reason, "destination": destination, "queue": _queue(set_aside)}
    with (
        reach(config, data) as there,
        output as out,
        Progress(console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as bars,
    ):
        task = bars.add_task("exporting", total=None)
        if not bars.disable:
            bars.update(task, total=there.get("/dlq", **chosen, limit=1)["total"])
        while True:
            page = there.get(
                "/dlq", **chosen, limit=500, after=after, counts="false", whole="true",
            )  # fmt: skip
            for one in page["items"]:
                if tokens and one["token"] not in tokens:
                    continue
                out.write(json.dumps(one, ensure_ascii=False, default=str) + "\n")
                count += 1
                bars.advance(task)
            after = page["next"]
            if after is None:
                break
        out.flush()  # before success is reported: the disk may be full
    click.echo(f"{counted(count, 'dead letter')} written", err=True)


@dlq.command()
@selecting
@click.option("--all", "everything", is_flag=True, help="Purge all dead letters.")
@click.option("--dry-run", is_flag=True, help="Only show how many match.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@common
def purge(
    reason: int | None, destination: str | None, tokens: tuple[str, ...], everything: bool, dry_run: bool, yes: bool,
    set_aside: bool,
    config: str | None, data: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Remove dead letters for good."""
    chosen = _selection(reason, destination, tokens, set_aside)
    if not (reason is not None or destination is not None or tokens or everything):
        raise click.UsageError("say which (--reason, --destination, --token) or --all")
    if not yes and not dry_run:
        confirm("Remove these dead letters for good", config, data)
    with reach(config, data) as there:
        try:
            answer = there.post("/dlq/purge", {**chosen, "dry_run": dry_run, "limit": 1 << 30})
        except KeyboardInterrupt:
            if there.running and not dry_run:
                click.echo("the gateway is still removing: `mqgate dlq list` shows what is left", err=True)
            raise
    if as_json:
        show_json(answer)
    else:
        click.echo(f"{answer['matched']} would be removed" if dry_run else f"{answer['done']} removed")

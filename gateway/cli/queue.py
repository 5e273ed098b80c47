"""`mqgate queue`: list queues, look at them, put, get and clear; on a running gateway or a stopped one."""

from __future__ import annotations

import base64
import sys
from collections.abc import Generator
from contextlib import closing
from textwrap import indent
from typing import Any

import click

from gateway.cli.examples import examples
from gateway.cli.numbers import Finite
from gateway.cli.reach import Reach, Refused, common, confirm, json_text, reach, segment, show_json
from gateway.cli.tables import everything as all_of
from gateway.cli.tables import pages, show_table
from gateway.cli.words import Words
from gateway.config.counting import counted
from gateway.errors import printable

TAKEN_AT_ONCE = 100
MOST_IN_BASE64 = 4 * -(-(4 << 20) // 3)
"""The longest body in base64 with which a request is no longer than the API accepts."""
COLUMNS = ("queue", "type", "depth", "limit", "oldest", "in/s", "out/s", "put", "get")


@click.group(cls=Words)
def queue() -> None:
    """The queue manager's queues."""


@examples(
    "mqgate queue list",
    "mqgate queue list 'TELEMETRY.*'",
)
@queue.command("list")
@click.argument("pattern", default="")
@click.option("--all", "everything", is_flag=True, help="State and system queues too.")
@common
def list_(pattern: str, everything: bool, config: str | None, data: str | None, as_json: bool) -> None:
    """List names, depths and ages. PATTERN: part of a name, or a generic name (TELEMETRY.*). On IBM MQ only the queues
    that the rules name, and the dead-letter queue, are listed."""
    with reach(config, data) as there:
        items = all_of(there, "/queues", search=pattern or None, all="true" if everything else None)
    if as_json:
        show_json(items)
        return
    show_table(COLUMNS, map(_row, items), first_to_go=("type", "limit", "oldest"))


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    oldest = f"{one['oldest_seconds']:.0f} s" if one["oldest_seconds"] is not None else ""
    put, get = ("yes" if one[f"{what}_allowed"] else "inhibited" for what in ("put", "get"))
    rates = ("" if (rate := one[f"{what}_rate"]) is None else f"{rate:.1f}" for what in ("put", "got"))
    return one["name"], one["type"], _number(one["depth"]), _number(one["max_depth"]), oldest, *rates, put, get


def _number(value: int | None) -> str:
    """Returns a number with separators for people; plain for programs at the other end of a pipe."""
    return "" if value is None else f"{value:,}" if sys.stdout.isatty() else str(value)


@queue.command()
@click.argument("name")
@common
def show(name: str, config: str | None, data: str | None, as_json: bool) -> None:
    """Show one queue with its attributes."""
    with reach(config, data) as there:
        answer = there.get(f"/queues/{segment(name)}")
    if as_json:
        show_json(answer)
        return
    for key, value in answer["attributes"].items():
        click.echo(f"{key}({value})")


@examples(
    "mqgate queue browse TELEMETRY.LIMA -n 3",
    "mqgate queue browse TELEMETRY.LIMA --short",
)
@queue.command()
@click.argument("name")
@click.option("-n", "--number", type=click.IntRange(min=1), default=10, show_default=True, help="Number of messages.")
@click.option("--after", help="Continue after this token.")
@click.option("--short", is_flag=True, help="Show one line per message.")
@common
def browse(
    name: str, number: int, after: str | None, short: bool, config: str | None, data: str | None, as_json: bool
) -> None:
    """Show messages, oldest first, with their header chain decoded. Removes nothing."""
    shown = total = 0
    with reach(config, data) as there:
        asked = {"after": after, "decoded": None if short else "true"}
        for page in pages(there, f"/queues/{segment(name)}/messages", number, **asked):
            total = page["total"]
            for one in page["items"]:
                if as_json:
                    _show_in_list(one, first=not shown)
                elif short:
                    click.echo(f"{one['token']}  {one['put_time']}  {one['length']:>8}  {printable(one['preview'])}")
                else:
                    show_message(one)
                shown += 1
    if as_json:
        click.echo("\n]" if shown else "[]")
    elif not short:
        click.echo(f"{shown} of {counted(total, 'message')}")


def _show_in_list(value: object, *, first: bool) -> None:
    """Write an item of a list in JSON, however many items will follow."""
    click.echo("[\n" if first else ",\n", nl=False)
    click.echo(indent(json_text(value), "  "), nl=False)


def show_message(message: dict[str, Any]) -> None:
    """Show one message in words."""
    descriptor = message["descriptor"]
    click.secho(f"message {message['token']}", bold=True)
    _fields("MQMD", {key: value for key, value in descriptor.items() if _worth(value)})
    for header in message["headers"]:
        _fields(header["structure"], {key: value for key, value in header["fields"].items() if key != "folders"})
    for key, value in message["properties"].items():
        click.echo(f"    {printable(key)} = {_lines(str(value))}")
    body = message["body"]
    shown = body["text"] if body["text"] is not None else base64.b64decode(body["base64"]).hex(" ")
    click.echo(f"  body, {counted(body['length'], 'byte')}{' (cut)' if body['truncated'] else ''}: {_lines(shown)}")
    if message["error"]:
        click.secho(f"  {printable(message['error'])}", fg="red")
    click.echo()


def _lines(text: str) -> str:
    """Returns the text with its lines and columns, and without anything else that a terminal would obey."""
    return "".join(one if one in "\n\t" else printable(one) for one in text)


def _worth(value: object) -> bool:
    return not (isinstance(value, str) and not value.strip("0 ")) and value not in (0, -1)


def _fields(name: str, fields: dict[str, Any]) -> None:
    click.echo(f"  {name}  " + "  ".join(f"{key}={printable(str(value))}" for key, value in fields.items()))


@examples(
    "mqgate queue put COMMANDS open --property site=lima",
    "mqgate queue put COMMANDS --file command.json --format MQSTR",
)
@queue.command()
@click.argument("name")
@click.argument("text", required=False)
@click.option(
    "--file",
    "path",
    type=click.File("rb"),
    help="Read the body from a file; - is standard input. Through a running gateway at most 4 MiB.",
)
@click.option("--format", "form", help="Format of the body (MQSTR for text).")
@click.option("--property", "properties", multiple=True, help="NAME=VALUE, as often as needed.")
@click.option("--not-persistent", is_flag=True, help="Put a non-persistent message.")
@click.option("--priority", type=click.IntRange(0, 9), default=0)
@click.option("--expiry", type=Finite(min=0, min_open=True), help="Expiry in seconds.")
@click.option(
    "--correl-id", metavar="HEX", help="CorrelId; for a reply, the MsgId of the request as `browse` shows it."
)
@click.option("--reply-to", metavar="QUEUE", help="ReplyToQ, which makes the message a request.")
@common
def put(
    name: str, text: str | None, path: Any, form: str | None, properties: tuple[str, ...], not_persistent: bool,
    priority: int, expiry: float | None, correl_id: str | None, reply_to: str | None, config: str | None,
    data: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Put one message: TEXT, or the contents of a file."""
    body: dict[str, Any] = {"persistent": not not_persistent, "priority": priority}
    if path is not None and text is not None:
        raise click.UsageError("TEXT and --file exclude each other: give one of them")
    if path is not None:
        body["base64"] = base64.b64encode(path.read()).decode()
    elif text is not None:
        body["text"] = text
    else:
        raise click.UsageError("give TEXT or --file")
    more = {"format": form, "expiry_seconds": expiry, "correl_id": correl_id, "reply_to": reply_to}
    body.update({key: value for key, value in more.items() if value is not None})
    if properties:
        body["properties"] = dict(_pair(one) for one in properties)
    with reach(config, data) as there:
        if there.running and len(body.get("base64", "")) > MOST_IN_BASE64:
            raise Refused(
                "through a running gateway a message has at most 4 MiB: put it while the gateway is stopped, or with a "
                "program (mqgate mqi build)"
            )
        answer = there.post(f"/queues/{segment(name)}/messages", body)
    if as_json:
        show_json(answer)
    else:
        click.echo(f"put, MsgId {answer['msg_id']}" if answer["msg_id"] else "put")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"{text!r} is not NAME=VALUE")
    return name, value


@examples(
    "mqgate queue get TELEMETRY.LIMA -n 10",
    "mqgate queue get TELEMETRY.LIMA --raw > body.bin",
)
@queue.command()
@click.argument("name")
@click.option("-n", "--number", type=click.IntRange(min=1), default=1, show_default=True, help="Number of messages.")
@click.option("--raw", is_flag=True, help="Only the body, byte for byte.")
@common
def get(name: str, number: int, raw: bool, config: str | None, data: str | None, as_json: bool) -> None:
    """Take messages from the queue. They are removed after they have been written, up to a hundred in one unit of
    work."""
    taken = 0
    with reach(config, data) as there, closing(_taken(there, name, number)) as messages:
        for one in messages:
            if as_json:
                _show_in_list(one, first=not taken)
            elif raw:
                text = one["body"]["text"]
                body = text.encode() if text is not None else base64.b64decode(one["body"]["base64"])
                click.echo(body, nl=False)
            else:
                show_message(one)
            taken += 1
    if not taken:
        raise Refused(f"no message on {name} (MQRC 2033)")
    if as_json:
        click.echo("\n]")


def _taken(there: Reach, name: str, number: int) -> Generator[dict[str, Any], None, None]:
    """Yields the messages, whole. When the next one is asked for, the last one has been written; what could not be
    written is still on the queue."""
    left, after, told = number, None, set[str]()
    path = f"/queues/{segment(name)}"
    while left > 0:
        limit = min(left, TAKEN_AT_ONCE) if after is None else TAKEN_AT_ONCE
        page = there.get(f"{path}/messages", limit=limit, after=after, decoded="true", whole="true")
        damaged = {one["token"]: one["error"] for one in page["items"] if one.get("locked") and one.get("error")}
        for token in damaged.keys() - told:
            click.secho(f"message {token} is {damaged[token]}", fg="red", err=True)
        told |= damaged.keys()
        free = list(filter(_to_be_had, page["items"]))[:left]
        written = list[str]()
        try:
            for one in free:
                yield one
                written.append(one["token"])
        finally:  # also before one that could not be written, or an interruption
            _remove(there, path, written)
        left -= len(free)
        if not free:  # continue behind those that stay
            after = page["next"]
            if after is None:
                return


def _remove(there: Reach, path: str, written: list[str]) -> None:
    removed = there.post(f"{path}/remove", {"tokens": written})["removed"] if written else 0
    if removed < len(written):
        missed = counted(len(written) - removed, "message")
        raise Refused(f"somebody else has taken {missed} of the last {len(written)} messages written above")


def _to_be_had(listed: dict[str, Any]) -> bool:
    """Whether MQGET would return the message: nobody has it in a unit of work, and it has not expired."""
    expires = listed["expiry_seconds"]
    return not listed.get("locked") and (expires is None or expires > 0)


@queue.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@common
def clear(name: str, yes: bool, config: str | None, data: str | None, as_json: bool) -> None:
    """Remove every message from the queue."""
    if not yes:
        confirm(f"Remove every message from {name}", config, data)
    with reach(config, data) as there:
        answer = there.delete(f"/queues/{segment(name)}/messages", confirm=name)
    if as_json:
        show_json(answer)
    else:
        click.echo(f"{counted(answer['removed'], 'message')} removed")

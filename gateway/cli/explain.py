"""`mqgate explain`: shows where a publication would go, and why."""

from __future__ import annotations

import sys
import time
from typing import IO

import click

from gateway.bridge.explain import Explanation, Would
from gateway.bridge.explain import explain as explained
from gateway.bridge.inbound import Origin
from gateway.cli.examples import examples
from gateway.cli.reach import Refused, read_settings, running_gateway, segment, show_json
from gateway.config.counting import counted
from gateway.errors import ConfigurationError
from gateway.mqtt import properties as prop
from gateway.mqtt.packets import Properties
from gateway.mqtt.topics import filter_error, name_error
from gateway.ports.spread import in_words
from gateway.ports.state_queues import DEFAULT
from gateway.routing.table import compile_mappings
from gateway.rules.parse import load_mappings


@examples(
    "mqgate explain plant/lima/line/7/temperature --payload 21.5 -m plant.yaml",
    "mqgate explain plant/lima/x -c mqgate.yaml --client line7 --as alice",
    "mqgate explain 'plant/#' --subscribe -c mqgate.yaml --as alice",
)
@click.command()
@click.argument("topic")
@click.option("--qos", type=click.IntRange(0, 2), default=1, show_default=True)
@click.option("--retain", is_flag=True, help="The publication is to be retained.")
@click.option("--payload", help="Text of the payload.")
@click.option("--payload-file", type=click.File("rb"), help="File with the payload; `-` is the standard input.")
@click.option("--client", default="device", show_default=True, help="Client identifier.")
@click.option("--as", "user", default="", help="User name; with -c its access list is checked too.")
@click.option(
    "--subscribe", is_flag=True, help="TOPIC is a filter: only show whether the client may subscribe to it, and why."
)
@click.option("--listener", default="", help="Listener through which the client connected.")
@click.option("--property", "properties", multiple=True, help="MQTT 5 user property NAME=VALUE.")
@click.option("-m", "--mapping", "files", multiple=True, type=click.Path(), help="Mapping files to use.")
@click.option("-c", "--config", type=click.Path(dir_okay=False), help="File of settings.")
@click.option("--json", "as_json", is_flag=True, help="Output as JSON.")
def explain(
    topic: str, qos: int, retain: bool, payload: str | None, payload_file: IO[bytes] | None, client: str, user: str,
    subscribe: bool, listener: str, properties: tuple[str, ...], files: tuple[str, ...], config: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Show which rule matches TOPIC, why the others don't, the queue, and the MQMD and properties that would be put. If
    the gateway of the settings is running, also show whether the queue exists."""
    wrong = filter_error(topic) if subscribe else name_error(topic)
    if wrong is not None:
        raise click.UsageError(wrong)
    if payload is not None and payload_file is not None:
        raise click.UsageError("--payload and --payload-file exclude each other: give one of them")
    body = payload_file.read() if payload_file is not None else (payload or "").encode()
    if subscribe:
        sys.exit(explain_subscription(config, client, user, topic, listener, as_json))
    access, methods = None, ""
    try:
        if files:
            table = compile_mappings(load_mappings(files))
        else:
            from gateway.app.access import how_users_are_known, why_publish
            from gateway.app.mappings import read_table

            settings = read_settings(config, None)
            table, access = read_table(settings), why_publish(settings, client, user, topic, listener)
            methods = how_users_are_known(settings)
    except ConfigurationError as error:
        for finding in error.findings:
            click.echo(str(finding), err=True)
        sys.exit(1)
    block: Properties = {}
    if properties:
        block[prop.USER_PROPERTY] = [(name, value) for name, _, value in (one.partition("=") for one in properties)]
    origin = Origin(client, user, topic, qos, retain, listener=listener)
    answer = explained(table, origin, block, body, time.time())
    missing = [] if files else _missing(config, answer)
    if as_json:
        decided = {"allowed": access.allowed, "why": access.text} if access is not None else None
        show_json({**answer.as_dict(), "access": decided, "methods": methods, "missing_queues": missing})
    else:
        if access is not None:
            if user:
                click.echo(f"user {user}: whoever authenticates as that user by {methods}")
            click.secho(f"access: {access.text}", fg=None if access.allowed else "red")
        show(answer)
        for name in missing:
            click.secho(f"there is no queue {name} (2085): DEFINE QLOCAL('{name}') makes one", fg="red")
    sys.exit(0 if answer.puts and (access is None or access.allowed) else 1)


def explain_subscription(config: str | None, client: str, user: str, filter_: str, listener: str, as_json: bool) -> int:
    """Show what the access list does with a subscription; returns the exit code."""
    from gateway.app.access import why_subscribe

    try:
        why, checked = why_subscribe(read_settings(config, None), client, user, filter_, listener)
    except ConfigurationError as error:
        for finding in error.findings:
            click.echo(str(finding), err=True)
        return 1
    if as_json:
        show_json({"access": {"allowed": why.allowed, "why": why.text, "deliveries_checked": checked}})
    else:
        click.secho(f"access: {why.text}", fg=None if why.allowed else "red")
        if checked:
            click.echo("not all of it is permitted: each message is checked before it is delivered")
    return 0 if why.allowed else 1


def _missing(config: str | None, answer: Explanation) -> list[str]:
    """Returns the queues to which messages would be put and that do not exist, if the gateway of the settings is
    running."""
    names = [put.queue for put in answer.puts if not put.refused and not put.queue_manager]
    missing = list[str]()
    for name in dict.fromkeys(names):
        if name.startswith("topic://") or name == DEFAULT:  # it is made when it is used
            continue
        try:
            running_gateway(config, None).get(f"/queues/{segment(name)}")
        except Refused as refused:
            if not refused.missing:  # it is not known
                return []
            missing.append(name)
    return missing


def show(answer: Explanation) -> None:
    """Print the explanation as text."""
    for put in answer.puts:
        if put.refused:
            click.secho(f"rule {put.rule}: refused: {put.refused} ({put.refused_as}); then {put.then}", fg="red")
        else:
            show_put(put)
    if answer.unmatched:
        click.echo(answer.unmatched)
    for one in answer.considered:
        if not one.applies:
            click.echo(f"not rule {one.rule} ({one.place}): {one.why}")


def show_put(put: Would) -> None:
    """Print one message that would be put."""
    kept = "persistent" if put.persistent else "not persistent"
    where = f"queue {put.queue} at {in_words(put.queue_manager)}" if put.queue_manager else f"queue {put.queue}"
    if put.queue.startswith("topic://"):
        where = f"MQ topic {put.queue.removeprefix('topic://')}"
    click.secho(f"rule {put.rule}: to {where}", bold=True)
    click.echo(
        f"  {kept}, priority {put.priority}, format {put.format or 'none'}, body {counted(put.body_bytes, 'byte')}"
    )
    syncpoint = "within syncpoint" if put.syncpoint else "out of syncpoint"
    click.echo(f"  {syncpoint}: {put.syncpoint_why}")
    click.echo(f"  if its {counted(put.data_bytes, 'byte is', 'bytes are')} more than the queue takes: {put.too_long}")
    shown = {key: value for key, value in put.descriptor.items() if str(value).strip("0 ") and value != -1}
    click.echo("  MQMD  " + "  ".join(f"{key}={value}" for key, value in shown.items()))
    for key, value in put.properties.items():
        click.echo(f"    {key} = {value!s}")

"""`mqgate pub` and `mqgate sub`: a device for the hand, where no other MQTT client is installed."""

from __future__ import annotations

import secrets
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from gateway.cli.denied import untrusted
from gateway.cli.numbers import PORT, SECONDS
from gateway.cli.versions import LEVELS, done, refused, version_option
from gateway.errors import ProtocolError, printable
from gateway.mqtt import reasons
from gateway.mqtt.topics import filter_error, name_error
from gateway.net.device import Device

FILE = click.Path(exists=True, dir_okay=False)
ANSWER = 10.0
"""Seconds in which a gateway has to answer."""


def connecting(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say where, and as whom."""
    for option in reversed((
        click.option("--host", default="127.0.0.1", show_default=True, help="Address of the gateway."),
        click.option("-p", "--port", type=PORT, default=1883, show_default=True, help="MQTT port."),
        click.option("-i", "--client-id", help="Client identifier; made up unless given."),
        version_option,
        click.option("-u", "--user", help="User name."),
        click.option("--password-file", type=FILE, help="File whose first line is the password."),
        click.option("--ca-file", type=FILE, help="Use TLS; the authority of the gateway's certificate."),
    )):  # fmt: skip
        command = option(command)
    return command


def _context(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise click.UsageError(f"--ca-file: {ca_file} has no certificates in PEM form ({error})") from error


@contextmanager
def device(
    host: str, port: int, client_id: str | None, version: str, user: str | None, password_file: str | None,
    ca_file: str | None, timeout: float,
) -> Iterator[Device]:  # fmt: skip
    """A connected device; what goes wrong ends the command with a sentence."""
    password = Path(password_file).read_bytes().split(b"\n", 1)[0].rstrip(b"\r") if password_file else None
    context = _context(ca_file) if ca_file else None
    name = client_id or f"mqgate-{secrets.token_hex(4)}"
    try:
        with Device(host, port, name, version=LEVELS[version], timeout=timeout, tls=context) as made:
            reason = _answered(made, user, password, plain=context is None)
            if reason:
                click.echo(refused(made.named(reason)), err=True)
                sys.exit(1)
            yield made
    except ProtocolError as error:
        click.echo(f"refused: {error}", err=True)
        sys.exit(1)
    except ssl.SSLError as error:
        click.echo(untrusted(f"{host}:{port}", error), err=True)
        sys.exit(1)
    except TimeoutError:
        click.echo(f"no answer within {timeout:g} s: nothing was acknowledged (mqgate status says why)", err=True)
        sys.exit(1)
    except (OSError, UnicodeError) as error:
        click.echo(f"{host}:{port} is not reached: {error}. Is the gateway running (mqgate run)?", err=True)
        sys.exit(3)


def _answered(made: Device, user: str | None, password: bytes | None, *, plain: bool) -> int:
    """The reason code of the answer to CONNECT."""
    try:
        return made.connect(user, password)
    except (ProtocolError, ConnectionError) as error:
        if not plain:
            raise
        raise ProtocolError(f"{error} instead of an answer; a listener with TLS wants --ca-file") from error


@click.command()
@click.argument("words", metavar="TOPIC [PAYLOAD]", nargs=-1)
@click.option("-t", "--topic", help="Instead of TOPIC.")
@click.option("-m", "--message", help="Instead of PAYLOAD.")
@click.option("-q", "--qos", type=click.IntRange(0, 2), default=1, show_default=True, help="Quality of service.")
@click.option("-r", "--retain", is_flag=True, help="Have it retained.")
@click.option("--timeout", type=SECONDS, default=ANSWER, show_default=True, help="Seconds to wait for each answer.")
@connecting
def pub(
    words: tuple[str, ...], topic: str | None, message: str | None, qos: int, retain: bool, timeout: float, **where: Any
) -> None:
    """Publish PAYLOAD, or what standard input has, to TOPIC and wait for the acknowledgement."""
    topic, payload = _named(words, topic, message)
    if wrong := name_error(topic):
        raise click.UsageError(wrong)
    body = payload.encode() if payload is not None else sys.stdin.buffer.read()
    with device(timeout=timeout, **where) as connected:
        seconds = connected.publish(topic, body, qos, retain=retain)
    click.echo(done(qos, where["version"], seconds), err=True)


def _named(words: tuple[str, ...], topic: str | None, message: str | None) -> tuple[str, str | None]:
    """Topic and payload, as words or as options."""
    left = list(words)
    topic = topic if topic is not None else left.pop(0) if left else None
    if topic is None:
        raise click.UsageError("name the topic, as in: mqgate pub plant/lima/temperature 21.5")
    if left and message is None:
        message = left.pop(0)
    if left:
        raise click.UsageError(f"{left[0]!r} is one word too many: put a payload with spaces into quotes")
    return topic, message


@click.command()
@click.argument("words", metavar="FILTER...", nargs=-1)
@click.option(
    "-t", "--topic", "more", multiple=True, metavar="FILTER", help="Instead of FILTER; may stand several times."
)
@click.option("-q", "--qos", type=click.IntRange(0, 2), default=1, show_default=True, help="Quality of service.")
@click.option("-n", "--number", type=click.IntRange(min=0), default=0, help="End after so many messages; 0: never.")
@click.option("--raw", is_flag=True, help="Write the bytes as they are on a terminal too.")
@click.option(
    "--timeout", type=SECONDS, default=86_400.0, help="End when nothing has come for so many seconds: exit code 1."
)
@connecting
def sub(
    words: tuple[str, ...], more: tuple[str, ...], qos: int, number: int, raw: bool, timeout: float, **where: Any
) -> None:
    """Subscribe, and write what comes as lines: topic, a tab, payload.

    On a terminal characters that it would obey instead of showing them are written as escapes; into a file or a pipe
    the bytes go as they are.
    """
    topics = (*words, *more)
    if not topics:
        raise click.UsageError("name a topic filter, as in: mqgate sub 'plant/#'")
    if wrong := next(filter(None, map(filter_error, topics)), None):
        raise click.UsageError(wrong)
    escaped = sys.stdout.isatty() and not raw
    for topic, payload in _received(topics, qos, number, timeout, where):
        if escaped:
            click.echo(f"{printable(topic)}\t{printable(payload.decode('utf-8', 'backslashreplace'))}")
        else:
            click.echo(b"%b\t%b" % (topic.encode(), payload))


def _received(
    topics: tuple[str, ...], qos: int, number: int, timeout: float, where: dict[str, Any]
) -> Iterator[tuple[str, bytes]]:
    """So many messages, one at a time."""
    with device(timeout=min(timeout, ANSWER), **where) as connected:
        for one in topics:
            granted = connected.subscribe(one, qos)
            if granted >= 0x80:
                click.echo(f"the gateway refuses the subscription to {one}: {reasons.name(granted)}", err=True)
                sys.exit(1)
        taken = 0
        while not number or taken < number:
            try:
                received = connected.receive(timeout)
            except TimeoutError:
                click.echo(f"nothing came within {timeout:g} s", err=True)
                sys.exit(1)
            yield received
            taken += 1

"""`mqgate pub` and `mqgate sub`: a device to use by hand, where no other MQTT client is installed."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from gateway.cli.connection import Connecting, Where, connecting, untrusted
from gateway.cli.examples import examples
from gateway.cli.numbers import SECONDS
from gateway.cli.versions import done, refused
from gateway.errors import ProtocolError, printable
from gateway.mqtt import reasons
from gateway.mqtt.topics import filter_error, name_error
from gateway.net.device import Device

ANSWER = 10.0
"""Seconds within which a gateway has to answer."""


@contextmanager
def device(where: Where, timeout: float) -> Iterator[Device]:
    """Yields a connected device. What goes wrong ends the command with a sentence."""
    at, password = f"{where.host}:{where.port}", where.password
    try:
        with where.opened("mqgate", timeout) as made:
            with where.before_the_answer():
                reason = made.connect(where.user, password)
            if reason:
                click.echo(refused(made.named(reason)), err=True)
                sys.exit(1)
            yield made
    except ProtocolError as error:
        click.echo(f"refused: {error}", err=True)
        sys.exit(1)
    except ssl.SSLError as error:
        click.echo(untrusted(at, error), err=True)
        sys.exit(1)
    except TimeoutError:
        click.echo(f"no answer within {timeout:g} s: nothing was acknowledged (mqgate status says why)", err=True)
        sys.exit(1)
    except (OSError, UnicodeError) as error:
        click.echo(f"{at} is not reached: {error}. Is the gateway running (mqgate run)?", err=True)
        sys.exit(3)


@examples(
    "mqgate pub plant/lima/temperature 21.5",
    "mqgate pub -q 2 -r plant/lima/mode auto",
    "mqgate pub --host gateway.example -p 8883 --ca-file ca.pem -u alice --password-file alice.pw plant/x < body.json",
)
@click.command(cls=Connecting)
@click.argument("words", metavar="TOPIC [PAYLOAD]", nargs=-1)
@click.option("-t", "--topic", help="Instead of TOPIC.")
@click.option("-m", "--message", help="Instead of PAYLOAD.")
@click.option("-q", "--qos", type=click.IntRange(0, 2), default=1, show_default=True, help="Quality of service.")
@click.option("-r", "--retain", is_flag=True, help="Publish it as a retained message.")
@click.option("--timeout", type=SECONDS, default=ANSWER, show_default=True, help="Seconds to wait for each answer.")
@connecting
def pub(
    words: tuple[str, ...], topic: str | None, message: str | None, qos: int, retain: bool, timeout: float,
    **options: Any,
) -> None:  # fmt: skip
    """Publish PAYLOAD, or what is on standard input, to TOPIC and wait for the acknowledgement."""
    topic, payload = _named(words, topic, message)
    if wrong := name_error(topic):
        raise click.UsageError(wrong)
    body = payload.encode() if payload is not None else sys.stdin.buffer.read()
    where = Where(**options)
    with device(where, timeout) as connected:
        seconds = connected.publish(topic, body, qos, retain=retain)
    click.echo(done(qos, where.version, seconds), err=True)


def _named(words: tuple[str, ...], topic: str | None, message: str | None) -> tuple[str, str | None]:
    """Returns topic and payload, given as words or as options."""
    left = list(words)
    topic = topic if topic is not None else left.pop(0) if left else None
    if topic is None:
        raise click.UsageError("name the topic, as in: mqgate pub plant/lima/temperature 21.5")
    if left and message is None:
        message = left.pop(0)
    if left:
        raise click.UsageError(f"{left[0]!r} is one word too many: put a payload with spaces in quotes")
    return topic, message


@examples(
    "mqgate sub 'plant/#'",
    "mqgate sub -n 1 --timeout 5 'plant/+/cmd'",
)
@click.command(cls=Connecting)
@click.argument("words", metavar="FILTER...", nargs=-1)
@click.option(
    "-t", "--topic", "more", multiple=True, metavar="FILTER", help="Instead of FILTER; may be given several times."
)
@click.option("-q", "--qos", type=click.IntRange(0, 2), default=1, show_default=True, help="Quality of service.")
@click.option("-n", "--number", type=click.IntRange(min=0), default=0, help="End after this many messages; 0: never.")
@click.option("--raw", is_flag=True, help="Write the bytes unchanged even to a terminal.")
@click.option(
    "--timeout", type=SECONDS, default=86_400.0, help="End with exit code 1 if nothing arrives for this many seconds."
)
@connecting
def sub(
    words: tuple[str, ...], more: tuple[str, ...], qos: int, number: int, raw: bool, timeout: float,
    **options: Any,
) -> None:  # fmt: skip
    """Subscribe, and write each message that arrives as a line: topic, a tab, payload.

    On a terminal, control characters are written as escapes; into a file or a pipe the bytes go unchanged.
    """
    topics = (*words, *more)
    if not topics:
        raise click.UsageError("name a topic filter, as in: mqgate sub 'plant/#'")
    if wrong := next(filter(None, map(filter_error, topics)), None):
        raise click.UsageError(wrong)
    escaped = sys.stdout.isatty() and not raw
    for topic, payload in _received(topics, qos, number, timeout, Where(**options)):
        if escaped:
            click.echo(f"{printable(topic)}\t{printable(payload.decode('utf-8', 'backslashreplace'))}")
        else:
            click.echo(b"%b\t%b" % (topic.encode(), payload))


def _received(
    topics: tuple[str, ...], qos: int, number: int, timeout: float, where: Where
) -> Iterator[tuple[str, bytes]]:
    """Yields this many messages, one at a time."""
    with device(where, min(timeout, ANSWER)) as connected:
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
                click.echo(f"nothing arrived within {timeout:g} s", err=True)
                sys.exit(1)
            yield received
            taken += 1

"""`mqgate probe`: connect, publish and wait for the acknowledgement; a health check from outside."""

from __future__ import annotations

import json
import ssl
import sys
from typing import Any

import click

from gateway.cli.connection import Connecting, Where, connecting, untrusted
from gateway.cli.examples import examples
from gateway.cli.numbers import SECONDS
from gateway.cli.versions import done, refused
from gateway.errors import ProtocolError
from gateway.net.device import Device


@examples(
    "mqgate probe",
    "mqgate probe --host gateway.example -p 8883 --tls -u alice --password-file alice.pw",
)
@click.command(cls=Connecting)
@click.option("-t", "--topic", default="mqgate/probe", show_default=True, help="Topic to publish to.")
@click.option("-q", "--qos", type=click.IntRange(0, 2), default=1, show_default=True, help="Quality of service.")
@click.option("--timeout", type=SECONDS, default=10.0, show_default=True, help="Seconds to wait for each answer.")
@click.option("--json", "as_json", is_flag=True, help="Output as JSON.")
@connecting
def probe(topic: str, qos: int, timeout: float, as_json: bool, **options: Any) -> None:
    """CONNECT, PUBLISH, and wait for the acknowledgement. Exit code 0: committed; 1: refused; 3: not reached."""
    where = Where(**options)
    at, password = f"{where.host}:{where.port}", where.password
    try:
        with where.opened("probe", timeout) as device:
            with where.before_the_answer():
                reason = _connected(device, where.user, password, timeout)
            if reason:
                click.echo(refused(device.named(reason)), err=True)
                sys.exit(1)
            seconds = _published(device, topic, qos, timeout)
    except ProtocolError as error:
        click.echo(f"refused: {error}", err=True)
        sys.exit(1)
    except ssl.SSLError as error:
        click.echo(untrusted(at, error), err=True)
        sys.exit(1)
    except (OSError, UnicodeError) as error:
        click.echo(f"{at} is not reached: {error}. Is the gateway running (mqgate run)?", err=True)
        sys.exit(3)
    if as_json:
        click.echo(json.dumps({"ok": True, "qos": qos, "seconds": round(seconds, 6)}))
    else:
        click.echo(done(qos, where.version, seconds, f", topic {topic}"))


def _connected(device: Device, user: str | None, password: bytes | None, timeout: float) -> int:
    try:
        return device.connect(user, password)
    except TimeoutError:
        click.echo(
            f"the port is open, but no CONNACK came within {timeout:g} s: the gateway cannot commit (its disk is full, "
            "or the queue manager is away), or it is not a gateway; /readyz says which",
            err=True,
        )
        sys.exit(1)


def _published(device: Device, topic: str, qos: int, timeout: float) -> float:
    try:
        return device.publish(topic, b"probe", qos)
    except TimeoutError:
        click.echo(
            f"connected, but no acknowledgement within {timeout:g} s: what was published is not committed. The queue "
            "refuses and its rule holds the message, or the queue manager is away: the admin page says which",
            err=True,
        )
        sys.exit(1)

"""`mqgate probe`: connect, publish, wait for the acknowledgement: a health check from outside."""

from __future__ import annotations

import json
import secrets
import ssl
import sys
from pathlib import Path

import click

from gateway.cli.denied import untrusted
from gateway.cli.numbers import PORT, SECONDS
from gateway.cli.versions import LEVELS, done, refused, version_option
from gateway.errors import ProtocolError
from gateway.net.device import Device


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of the gateway.")
@click.option("--port", type=PORT, default=1883, show_default=True, help="MQTT port.")
@click.option("--topic", default="mqgate/probe", show_default=True, help="Topic to publish to.")
@click.option("--qos", type=click.IntRange(0, 2), default=1, show_default=True, help="Quality of service.")
@version_option
@click.option("--user", help="User name.")
@click.option(
    "--password-file", type=click.Path(exists=True, dir_okay=False), help="File with the password in its first line."
)
@click.option("--tls", is_flag=True, help="Use TLS, with the system's authorities unless --ca-file is given.")
@click.option("--ca-file", type=click.Path(exists=True, dir_okay=False), help="Authority of the gateway's certificate.")
@click.option("--server-name", help="Name in the certificate, if it is not --host.")
@click.option("--certificate", type=click.Path(exists=True, dir_okay=False), help="Client certificate, with its key.")
@click.option("--key", type=click.Path(exists=True, dir_okay=False), help="Its key, if it is in a file of its own.")
@click.option("--timeout", type=SECONDS, default=10.0, show_default=True, help="Seconds to wait for each answer.")
@click.option("--json", "as_json", is_flag=True, help="Output as JSON.")
def probe(
    host: str, port: int, topic: str, qos: int, version: str, user: str | None, password_file: str | None,
    tls: bool, ca_file: str | None, server_name: str | None, certificate: str | None, key: str | None,
    timeout: float, as_json: bool,
) -> None:  # fmt: skip
    """CONNECT, PUBLISH, wait for the acknowledgement. Exit code 0: committed; 1: refused; 3: not reached."""
    password = Path(password_file).read_bytes().split(b"\n", 1)[0].rstrip(b"\r") if password_file else None
    try:
        context = _context(ca_file, certificate, key) if tls or ca_file or certificate else None
        name = f"probe-{secrets.token_hex(4)}"
        with Device(
            host, port, name, version=LEVELS[version], timeout=timeout, tls=context, server_name=server_name
        ) as device:
            reason = _connected(device, user, password, timeout)
            if reason:
                click.echo(refused(device.named(reason)), err=True)
                sys.exit(1)
            seconds = _published(device, topic, qos, timeout)
    except ProtocolError as error:
        click.echo(f"refused: {error}", err=True)
        sys.exit(1)
    except ssl.SSLError as error:
        click.echo(untrusted(f"{host}:{port}", error), err=True)
        sys.exit(1)
    except (OSError, UnicodeError) as error:
        click.echo(f"{host}:{port} is not reached: {error}. Is the gateway running (mqgate run)?", err=True)
        sys.exit(3)
    if as_json:
        click.echo(json.dumps({"ok": True, "qos": qos, "seconds": round(seconds, 6)}))
    else:
        click.echo(done(qos, version, seconds, f", topic {topic}"))


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


def _context(ca_file: str | None, certificate: str | None, key: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca_file)
    if certificate:
        context.load_cert_chain(certificate, key)
    return context

"""The options of commands that connect as a device does, and the connection that is made from them."""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import click

from gateway.cli.numbers import PORT
from gateway.cli.versions import LEVELS, version_option
from gateway.errors import ProtocolError
from gateway.net.device import Device

FILE = click.Path(exists=True, dir_okay=False)


class Where(NamedTuple):
    """Where a device connects, and as which user: the values of the options."""

    host: str
    port: int
    client_id: str | None
    version: str
    user: str | None
    password_file: str | None
    tls: bool
    ca_file: str | None
    server_name: str | None
    certificate: str | None
    key: str | None

    @property
    def plain(self) -> bool:
        """Whether the connection is without TLS."""
        return not (self.tls or self.ca_file or self.certificate)

    @property
    def password(self) -> bytes | None:
        """The password: the first line of its file."""
        if not self.password_file:
            return None
        return Path(self.password_file).read_bytes().split(b"\n", 1)[0].rstrip(b"\r")

    def opened(self, kind: str, timeout: float) -> Device:
        """Returns a device whose socket is open and that has not sent CONNECT yet."""
        context = None if self.plain else self._context()
        client_id = f"{kind}-{secrets.token_hex(4)}" if self.client_id is None else self.client_id
        return Device(
            self.host, self.port, client_id, version=LEVELS[self.version], timeout=timeout, tls=context,
            server_name=self.server_name,
        )  # fmt: skip

    @contextmanager
    def before_the_answer(self) -> Iterator[None]:
        """Explain failures until CONNACK. A client that speaks plainly to a TLS listener, or shows no certificate where
        one is required, has its connection closed instead; what a gateway says before it closes is lost if the close
        arrives as a reset."""
        try:
            yield
        except (ProtocolError, ConnectionError) as error:
            if self.certificate:
                raise
            wanted = (
                "TLS needs --ca-file or --tls" if self.plain else "client certificates needs --certificate and --key"
            )
            raise ProtocolError(f"{error} instead of an answer; a listener with {wanted}") from error

    def _context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ssl.SSLError) as error:
            what = f"--ca-file: {self.ca_file} has no certificates in PEM form ({error})"
            raise click.UsageError(what) from error
        try:
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            what = f"--certificate, --key: not a certificate in PEM form and its key ({error})"
            raise click.UsageError(what) from error
        return context


class Connecting(click.Command):
    """A command that connects. `-h` followed by a word is the host, as for the clients of mosquitto."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Returns the words behind the command."""
        hosts = (
            "--host" if one == "-h" and following and not following.startswith("-") else one
            for one, following in pairwise([*args, ""])
        )
        return super().parse_args(ctx, list(hosts))


def connecting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where to connect, and as which user."""
    for option in reversed((
        click.option("--host", default="127.0.0.1", show_default=True, help="Address of the gateway."),
        click.option("-p", "--port", type=PORT, default=1883, show_default=True, help="MQTT port."),
        click.option("-i", "--client-id", help="Client identifier; generated unless given."),
        version_option,
        click.option("-u", "--user", help="User name."),
        click.option("--password-file", type=FILE, help="File whose first line is the password."),
        click.option("--tls", is_flag=True, help="Use TLS, with the system's authorities unless --ca-file is given."),
        click.option("--ca-file", type=FILE, help="Use TLS; authority (PEM) of the gateway's certificate."),
        click.option("--server-name", help="Name in the gateway's certificate, if it is not --host."),
        click.option("--certificate", type=FILE, help="Client certificate, with its key unless --key is given."),
        click.option("--key", type=FILE, help="Key of the client certificate."),
    )):  # fmt: skip
        command = option(command)
    return command


_NO_TLS = {"UNEXPECTED_EOF_WHILE_READING", "WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"}
"""What OpenSSL reports when the other side does not begin TLS at all; the third from 3.2 on, instead of the second."""


def untrusted(where: str, error: ssl.SSLError) -> str:
    """Returns why there is no TLS with the other side."""
    if error.reason in _NO_TLS or isinstance(error, ssl.SSLZeroReturnError):  # the latter from the Python of Debian 12
        return f"{where} does not seem to speak TLS: leave out --ca-file for a plain listener ({error})"
    if error.reason == "TLSV13_ALERT_CERTIFICATE_REQUIRED":
        return f"{where} requires a client certificate: --certificate and --key ({error})"
    if isinstance(error, ssl.SSLEOFError):  # what it said before it closed is lost then
        return f"{where} ended the connection; it may require a client certificate: --certificate and --key ({error})"
    return f"{where} and this side do not trust each other: {error}"

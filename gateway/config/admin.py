"""The settings of the admin port.

A part of the field list in `gateway.config.model`. Opens no file and knows no environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from gateway.config.findings import Part, contradictions
from gateway.config.limits import Port
from gateway.config.people import Oidc, PeopleLdap
from gateway.config.tls import Tls
from gateway.config.units import Duration, Wrong


def _address(text: str | None) -> str | None:
    """An address as browsers use it, or None. Raises Wrong."""
    if text is not None and not re.fullmatch(r"https?://[^\s/]+(/\S*)?", text):
        raise Wrong(f"{text!r} is not the address of a page", "write it as https://gate1.example:9160/admin/")
    return text


class Admin(Part):
    """The administration listener: metrics, probes, API and dashboard."""

    port: Port | None = Field(default=9160, description="TCP port; 0 takes a free one, null switches it off.")
    bind: str = Field(default="127.0.0.1", description="Address to listen on.")
    tls: Tls | None = Field(default=None, description="TLS, with the options of a listener's.")
    insecure: bool = Field(
        default=False,
        description="Whether other hosts may reach the port without TLS. Tokens, and what the page shows, can "
        "then be read on the way: only for a network in which nobody else can listen.",
    )
    token_file: str | None = Field(default=None, description="File with the administrator's token.")
    read_token_file: str | None = Field(default=None, description="File with a viewer's token.")
    users_file: str | None = Field(
        default=None,
        description="File of users, which `mqgate admin user` writes. Without it `admin.users` in the data directory.",
    )
    page: Annotated[str | None, AfterValidator(_address)] = Field(
        default=None,
        description="Address at which browsers reach this gateway's page, as https://gate1.example:9160/admin/: the "
        "pages of the other gateways on its queue manager link to it. Without it, made from `bind` or the host's name.",
    )
    audit_keep: Duration = Field(
        default=7776000.0,
        le=99999999,
        description="How long the records of what people do stay on the queue MQGATE.AUDIT. 0: only the log has them.",
    )
    oidc: Oidc | None = Field(default=None, description="Sign-in with an OpenID provider.")
    ldap: PeopleLdap | None = Field(default=None, description="People of a directory sign in with their passwords.")
    session_idle: Duration = Field(
        default=1800.0, ge=60, description="People who have signed in are signed out after this time without a request."
    )
    session_length: Duration = Field(
        default=43200.0, ge=60, description="People who have signed in are signed out after this time in any case."
    )
    hosts: list[str] = Field(default=[], description="Further values of the Host header that are accepted.")
    answer_timeout: Duration = Field(
        default=10.0,
        gt=0,
        description="Page and API report it when IBM MQ has not answered a question about its queues for this long.",
    )

    @property
    def local(self) -> bool:
        """Whether only programs of this host can reach it."""
        return self.bind in {"localhost", "::1"} or self.bind.startswith("127.")

    @property
    def scheme(self) -> str:
        """The URL scheme of its addresses."""
        return "http" if self.tls is None else "https"

    @contradictions
    def _unprotected(self) -> Iterator[Wrong]:
        if self.port is not None and not self.local and self.tls is None and not self.insecure:
            yield Wrong(
                f"other hosts reach the admin port on {self.bind}, and its tokens are not encrypted",
                "give `tls` with certificate and key, bind it to 127.0.0.1, or write `insecure: true`",
            )

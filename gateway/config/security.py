"""The settings of identity and authority: users, tokens, access control lists.

A part of the field list in `gateway.config.model`. Opens no file and knows no environment.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr, model_validator

from gateway.config.findings import Part
from gateway.config.units import Duration, Wrong


class Password(Part):
    """Where a password comes from. Never write one into a file of settings."""

    password_file: str | None = Field(default=None, description="File whose first line is the password.")
    password: SecretStr | None = Field(default=None, description="From the environment only.")


class Jwt(Part):
    """JSON Web Tokens in the password of CONNECT."""

    jwks_file: str = Field(description="File with the public keys.")
    audience: str | None = Field(default=None, description="Audience that a token must name.")
    issuer: str | None = Field(default=None, description="Issuer that a token must name.")
    user_claim: str = Field(default="sub", description="Claim that is the user name.")
    leeway: Duration = Field(default=10.0, description="Tolerated difference of clocks.")


class AclEntry(Part):
    """Who may do what; the first entry that says something about an action decides."""

    user: str | None = Field(default=None, description="User names (`*` and `?`); anonymous clients have none.")
    client: str | None = Field(default=None, description="Client identifiers (`*` and `?`).")
    listener: str | None = Field(default=None, description="Listener.")
    anonymous: bool | None = Field(default=None, description="Whether the client is anonymous.")
    publish: list[str] = Field(default=[], description="Filters that may be published to; `{client}`, `{user}`.")
    subscribe: list[str] = Field(default=[], description="Filters that may be subscribed to.")
    allow: list[str] = Field(default=[], description="Filters that may be published and subscribed to.")
    deny_publish: list[str] = Field(default=[], description="Filters that may not be published to.")
    deny_subscribe: list[str] = Field(default=[], description="Filters that may not be subscribed to.")
    deny: list[str] = Field(default=[], description="Filters that may be neither published nor subscribed to.")

    @model_validator(mode="after")
    def _filters(self) -> AclEntry:
        _check_filters(self)
        return self


def _check_filters(entry: AclEntry) -> None:
    lists = (entry.publish, entry.subscribe, entry.allow, entry.deny_publish, entry.deny_subscribe, entry.deny)
    for filter_ in (one for some in lists for one in some):
        *parents, last = filter_.split("/")
        mixed = any("#" in level or ("+" in level and level != "+") for level in parents)
        if not filter_ or mixed or ("#" in last and last != "#") or ("+" in last and last != "+"):
            raise Wrong(f"`{filter_}` is not a topic filter", "`+` is a whole level, `#` the whole last level")
        if "{" in filter_.replace("{client}", "").replace("{user}", ""):
            raise Wrong(f"`{filter_}` has an unknown placeholder", "write {client} or {user}")


class Security(Part):
    """Who may connect, and what they may do."""

    anonymous: bool = Field(
        default=True,
        description="Whether clients may connect without credentials. Unless it is written, only on listeners that are "
        "bound to this host (loopback, Unix socket).",
    )
    users: dict[str, Password] = Field(default={}, description="Users with their password files.")
    password_file: str | None = Field(default=None, description="File in the format of mosquitto_passwd.")
    certificate_user: Literal["common_name", "subject", "none"] = Field(
        default="common_name", description="What of a client certificate is the user name."
    )
    certificate_client_id: bool = Field(
        default=False,
        description="Whether the certificate's name is the client identifier too: an empty one becomes it, another is "
        "refused.",
    )
    jwt: Jwt | None = Field(default=None, description="JSON Web Tokens.")
    acl: list[AclEntry] | str | None = Field(
        default=None, description="Access control list, or the file with one; without it everything is allowed."
    )
    authenticator: str | None = Field(default=None, description="The operator's own check, as `module:function`.")

    @property
    def checks(self) -> bool:
        """Whether there is anything to check a user's password or token with."""
        return bool(self.users or self.password_file or self.jwt or self.authenticator)

    @model_validator(mode="after")
    def _someone(self) -> Security:
        if not self.anonymous and not self.checks and self.certificate_user == "none":
            raise Wrong("nobody could connect", "give `users`, `password_file`, `jwt`, or allow `anonymous`")
        return self

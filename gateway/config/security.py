"""The settings of identity and authority: users, tokens, access control lists.

A part of the field list in `gateway.config.model`. Opens no file and knows no environment.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

from pydantic import Field, SecretStr

from gateway.config.filters import check_filter
from gateway.config.findings import Part, contradictions, wrong_of
from gateway.config.identity import Jwt, Ldap, Webhook
from gateway.config.units import Count, Duration, Wrong

MethodName = Literal["jwt", "users", "password_file", "managed", "ldap", "webhook", "authenticator"]
"""The methods that can identify a user, named like the keys of their settings."""
ClientIds = Literal["any", "user_prefix", "equals_user"]


class Password(Part):
    """Where a password comes from. Never write one into a file of settings."""

    password_file: str | None = Field(default=None, description="File whose first line is the password.")
    password: SecretStr | None = Field(default=None, description="From the environment only.")


class AclEntry(Part):
    """Who may do what; the first entry that applies to an action decides."""

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

    @contradictions
    def _unfit(self) -> Iterator[Wrong]:
        yield from _unfit_filters(self)
        if self.user is not None and self.anonymous:
            yield Wrong(
                "an entry for a user and anonymous clients fits nobody",
                "make two entries: anonymous clients have no user",
            )


def _unfit_filters(entry: AclEntry) -> Iterator[Wrong]:
    lists = (entry.publish, entry.subscribe, entry.allow, entry.deny_publish, entry.deny_subscribe, entry.deny)
    for filter_ in (one for some in lists for one in some):
        yield from wrong_of(check_filter, filter_)


class Guessing(Part):
    """How many wrong passwords are checked; what is used up comes back evenly within `within`."""

    per_user: Count = Field(
        default=20,
        description="Different wrong passwords of one user; 0: no limit. Beyond it CONNECT is refused (0x9F).",
    )
    per_address: Count = Field(
        default=200,
        description="The same from one address (IPv6: /64); for its users that have logged in from there ten times as "
        "many. 0: no limit.",
    )
    within: Duration = Field(default=600.0, gt=0, description="Time after which all of them are available again.")


class Security(Part):
    """Who may connect, and what they may do."""

    anonymous: bool = Field(
        default=True,
        description="Whether clients may connect without credentials. Unless it is written, only on listeners that are "
        "bound to this host (loopback, Unix socket).",
    )
    users: dict[str, Password] = Field(default={}, description="Users with their password files.")
    password_file: str | None = Field(default=None, description="File in the format of mosquitto_passwd.")
    managed: bool = Field(
        default=False,
        description="Whether users and roles are managed while the gateway runs (`mqgate user`), and kept on the queue "
        "MQGATE.USERS.",
    )
    certificate_user: Literal["common_name", "subject", "dns", "email", "uri", "none"] = Field(
        default="common_name",
        description="What of a client certificate is the user name. `dns`, `email`, `uri`: the only name of that kind "
        "under `subjectAltName`.",
    )
    certificate_client_id: bool = Field(
        default=False,
        description="Whether the certificate's name is the client identifier too: an empty one becomes it, another is "
        "refused.",
    )
    jwt: Jwt | list[Jwt] | None = Field(default=None, description="JSON Web Tokens; a list for several issuers.")
    ldap: Ldap | None = Field(default=None, description="A directory.")
    webhook: Webhook | None = Field(default=None, description="A service of your own, asked over HTTP.")
    methods: list[MethodName] = Field(
        default=[],
        description="The order in which those that are set are asked about user and password; the first that accepts "
        "decides. Tokens are looked at first, wherever `jwt` stands. Left out: in the order given here.",
    )
    client_ids: ClientIds = Field(
        default="any",
        description="Which client identifiers a user may have. `equals_user`: his name; `user_prefix`: his name, alone "
        "or with more behind a character that is neither letter nor digit. An empty one becomes such a one; clients "
        "without a user have to leave theirs empty. Others are refused (0x85).",
    )
    guesses: Guessing = Field(default_factory=Guessing, description="Bounds for guessing passwords.")
    acl: list[AclEntry] | str | None = Field(
        default=None, description="Access control list, or the file with one; without it everything is allowed."
    )
    wide_subscriptions: Literal["refuse", "filter"] = Field(
        default="refuse",
        description="What becomes of a subscription of which `acl` permits only a part, as `#` of a client that may "
        "read `plant/#`. `refuse`: 0x87 in SUBACK. `filter`: it is granted, and brings what may be read.",
    )
    authenticator: str | None = Field(default=None, description="The operator's own check, as `module:function`.")

    @property
    def issuers(self) -> list[tuple[str, Jwt]]:
        """The issuers of tokens with their keys in the settings."""
        if isinstance(self.jwt, Jwt):
            return [("security.jwt", self.jwt)]
        return [(f"security.jwt.{index}", one) for index, one in enumerate(self.jwt or [])]

    @property
    def checks(self) -> bool:
        """Whether there is anything to check a user's password or token against."""
        return bool(self.configured)

    @property
    def configured(self) -> list[MethodName]:
        """The methods that have settings."""
        return [one for one in get_args(MethodName) if getattr(self, one)]

    @property
    def in_order(self) -> list[MethodName]:
        """The methods in the order in which they are asked."""
        return self.methods or self.configured

    @contradictions
    def _unfit(self) -> Iterator[Wrong]:
        if self.methods and sorted(self.methods) != sorted(self.configured):
            missing = [one for one in self.methods if one not in self.configured]
            what = f"`{missing[0]}` has no settings" if missing else "`methods` does not name every method once"
            yield Wrong(what, f"write those that are set, in your order: {', '.join(self.configured) or 'none is'}")
        names = [one.issuer for _, one in self.issuers]
        if len(names) > 1 and (None in names or len(set(names)) < len(names)):
            yield Wrong("tokens could be of either issuer", "give each entry of `jwt` its own `issuer`")
        if not self.anonymous and not self.checks and self.certificate_user == "none":
            yield Wrong("nobody could connect", "give `users`, `password_file`, `jwt`, or allow `anonymous`")

"""The settings of what identifies devices elsewhere: issuers of tokens, directories, a service of the operator.

A part of the field list in `gateway.config.model`. Opens no file and knows no environment.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr

from gateway.config.filters import check_filter
from gateway.config.findings import Part, contradictions, wrong_of
from gateway.config.units import Duration, Wrong

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


class Web(Part):
    """How a provider is asked over HTTP."""

    timeout: Duration = Field(
        default=5.0, gt=0, le=60, description="Longest time of a request, from name to last byte."
    )
    ca: str | None = Field(
        default=None, description="File with the authorities that may have issued its certificate; without it those of "
        "the system.",
    )  # fmt: skip
    private_addresses: bool = Field(
        default=False,
        description="Whether it may have an address of a private network. Loopback is allowed where the URL names it.",
    )


class Topics(Part):
    """What a login lets its client publish and subscribe to."""

    publish: list[str] = Field(default=[], description="Filters that may be published to.")
    subscribe: list[str] = Field(default=[], description="Filters that may be subscribed to.")


class Jwt(Web):
    """JSON Web Tokens in the password of CONNECT. The keys are in `jwks_file`, at `jwks_url`, or where `issuer` says
    that they are (OpenID Connect discovery)."""

    jwks_file: str | None = Field(default=None, description="File with the public keys.")
    jwks_url: str | None = Field(default=None, description="Where the public keys are: https, or http on loopback.")
    issuer: str | None = Field(
        default=None,
        description="Issuer that a token must name. Without file and URL its keys are found by its "
        "`/.well-known/openid-configuration`.",
    )
    audience: str | None = Field(default=None, description="Audience that a token must name.")
    user_claim: str = Field(
        default="sub", min_length=1,
        description="Claim that is the user name, or a template of claims: `{tenant}-{sub}`. With dots a claim within "
        "claims.",
    )  # fmt: skip
    client_id_claim: str | None = Field(
        default=None, min_length=1,
        description="Claim that is the client identifier: an empty one becomes it, another is refused (0x85). A "
        "template as `user_claim`.",
    )  # fmt: skip
    topics_claim: str | None = Field(
        default=None, min_length=1,
        description="Claim that says what its bearer may do: a list of filters, or an object with lists `publish` and "
        "`subscribe`. It counts where `acl` says nothing. A token without it gives nothing.",
    )  # fmt: skip
    topics: Topics | None = Field(
        default=None,
        description="The same, made of claims: `plant/{tenant}/#`; `{client}` and `{user}` are the client's. A filter "
        "whose claim is missing, or has `/`, `+` or `#` in it, is left out.",
    )
    leeway: Duration = Field(default=10.0, description="Tolerated difference of clocks.")
    refresh: Duration = Field(
        default=900.0, ge=60,
        description="How long keys from a URL are good before they are fetched again; less if the answer says so "
        "(`Cache-Control: max-age`), but at least a minute. They are fetched when four fifths of it are over, and when "
        "a token names a key that is not known: at most every five seconds, once a minute for the same key.",
    )  # fmt: skip
    keep: Duration = Field(
        default=86400.0,
        description="How long keys from a URL are still accepted if they cannot be fetched again.",
    )
    redirects: bool = Field(default=False, description="Whether redirects are followed, to https only, three at most.")

    @contradictions
    def _unfit(self) -> Iterator[Wrong]:
        yield from self._unfit_keys()
        for template in filter(None, (self.user_claim, self.client_id_claim)):
            yield from wrong_of(_check_template, template)
        if self.topics is not None and self.topics_claim is not None:
            yield Wrong("`topics` and `topics_claim` both say what a bearer may do", "keep one of them")
        for filter_ in (*self.topics.publish, *self.topics.subscribe) if self.topics is not None else ():
            yield from wrong_of(_check_template, filter_) or wrong_of(check_filter, _PLACEHOLDER.sub("x", filter_))

    def _unfit_keys(self) -> Iterator[Wrong]:
        if self.jwks_file is not None and self.jwks_url is not None:
            yield Wrong("`jwks_file` and `jwks_url` both say where the keys are", "keep one of them")
        if self.jwks_url is not None:
            yield from wrong_of(check_url, self.jwks_url)
        elif self.jwks_file is None and self.issuer is None:
            yield Wrong("nothing says where the keys are", "give `jwks_url`, `jwks_file`, or `issuer`")
        elif self.jwks_file is None and self.issuer is not None:
            unfit = wrong_of(check_url, self.issuer)
            yield from unfit
            if not unfit and (urlsplit(self.issuer).query or urlsplit(self.issuer).fragment):
                yield Wrong("an issuer has neither query nor fragment", "write the issuer as it is in its tokens")


def _check_template(template: str) -> None:
    rest = _PLACEHOLDER.sub("", template)
    if "{" in rest or "}" in rest or "" in _PLACEHOLDER.findall(template):
        raise Wrong(f"`{template}` is not a template of claims", "write the name of a claim, or {claim} within text")


class Webhook(Web):
    """A service that is asked over HTTP who a client is and what it may do."""

    url: str = Field(description="Where it is asked: https, or http on loopback.")
    token_file: str | None = Field(
        default=None, description="File whose first line is sent to it as `Authorization: Bearer`."
    )
    cache: Duration = Field(
        default=300.0,
        description="How long a login holds without being asked about again, unless the answer gives less.",
    )
    fail: Literal["closed", "open"] = Field(
        default="closed",
        description="What happens while it does not answer as it should. `closed`: clients are told to try again. "
        "`open`: a client that gives a user name is let in under it, without proof, and may do what `acl` allows.",
    )

    @contradictions
    def _unfit(self) -> Iterator[Wrong]:
        yield from wrong_of(check_url, self.url)


def check_url(url: str) -> None:
    """Raise Wrong unless this is a URL that may be asked."""
    try:
        place = urlsplit(url)
        host, _ = place.hostname, place.port
    except ValueError as error:
        raise Wrong(f"`{url}` is not an address", "write https://HOST/PATH") from error
    printable = url.isascii() and url.isprintable() and " " not in url
    if place.scheme not in {"http", "https"} or not host or place.username is not None or not printable:
        raise Wrong(f"`{url}` is not an address that can be asked", "write https://HOST/PATH")
    if place.scheme == "http" and not is_loopback(host):
        raise Wrong(f"`{url}` is not protected on its way", "write https; http is for loopback only")


def is_loopback(host: str) -> bool:
    """Whether a host name means this machine, without being looked up."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Role(Part):
    """A group of the directory, and what its members are here."""

    group: str = Field(min_length=1, description="Distinguished name of the group.")
    role: str = Field(min_length=1, description="What stands for `{role}` in `user`.")


class Ldap(Part):
    """Users of a directory (LDAP, Active Directory); needs the extra `ldap`."""

    servers: list[str] = Field(
        min_length=1, description="`ldaps://HOST` or `ldap://HOST`, with `:PORT` if it is not the usual one. The first "
        "that answers is asked.",
    )  # fmt: skip
    start_tls: bool = Field(
        default=True, description="Whether `ldap://` is protected by StartTLS before anything is said. Without it only "
        "on loopback.",
    )  # fmt: skip
    ca: str | None = Field(
        default=None,
        description="File with the authorities that may have issued the servers' certificates; without it those of the "
        "system.",
    )
    timeout: Duration = Field(
        default=5.0, gt=0, le=60, description="Longest time to connect, and to wait for an answer."
    )
    cache: Duration = Field(
        default=300.0,
        description="How long a login holds without the directory being asked again. A user who is removed from "
        "it can still log in for this long.",
    )
    bind_as: str | None = Field(
        default=None,
        description="Name to bind with, made from the user name: `uid={user},ou=devices,dc=example,dc=com`, or "
        "`{user}@example.com`. User names must then be in lower case.",
    )
    search_base: str | None = Field(default=None, description="Where users are searched for, instead of `bind_as`.")
    search_filter: str = Field(default="(uid={user})", description="Filter that finds the one entry of a user.")
    name_attribute: str = Field(
        default="uid", min_length=1, description="Attribute of the entry that is the user name here, whatever case it "
        "was given in.",
    )  # fmt: skip
    bind_dn: str | None = Field(default=None, description="Who searches; without it the search is anonymous.")
    password_file: str | None = Field(default=None, description="File whose first line is the password of `bind_dn`.")
    password: SecretStr | None = Field(default=None, description="From the environment only.")
    roles: list[Role] = Field(
        default=[], description="Groups in the order in which they count: the first that a user is in is his role. A "
        "user who is in none is refused.",
    )  # fmt: skip
    group_attribute: str = Field(default="memberOf", description="Attribute of the entry that names its groups.")
    group_filter: str | None = Field(
        default=None, description="Filter that finds the groups of a user, as `(member={dn})`, besides the attribute."
    )
    group_base: str | None = Field(
        default=None, description="Where groups are searched for; without it in `search_base`."
    )
    user: str = Field(
        default="{user}",
        description="What the user is called here: `{user}`, `{role}`. Access lists can name a role by it, as in "
        "`{role}:{user}` with `user: operators:*`.",
    )

    @contradictions
    def _unfit(self) -> Iterator[Wrong]:
        for url in self.servers:
            yield from wrong_of(_check_server, url, start_tls=self.start_tls)
        if (self.bind_as is None) == (self.search_base is None):
            yield Wrong(
                "users are either searched for, or bound with a name made from theirs",
                "give `search_base` or `bind_as`",
            )
        if self.bind_as is not None and (self.roles or "{user}" not in self.bind_as):
            yield Wrong("`bind_as` has to contain {user}, and `roles` need a search", "add it, or give `search_base`")
        if self.search_base is not None and "{user}" not in self.search_filter:
            yield Wrong("the filter finds the same for everybody", "write {user} in `search_filter`, as (uid={user})")
        if self.bind_dn is not None and self.password_file is None and self.password is None:
            yield Wrong(
                "`bind_dn` has no password, so that a server would take the bind for an anonymous one",
                "name its file in `password_file`",
            )
        if "{user}" not in self.user or ("{role}" in self.user) != bool(self.roles):
            yield Wrong("`user` has to contain {user}, and {role} if there are `roles`", 'write "{role}:{user}"')
        if self.group_filter is not None and "{dn}" not in self.group_filter:
            yield Wrong("the filter finds the same groups for everybody", "write {dn} in it, as (member={dn})")


def _check_server(url: str, *, start_tls: bool) -> None:
    try:
        place = urlsplit(url)
        host, _ = place.hostname, place.port
    except ValueError as error:
        raise Wrong(f"`{url}` is no server", "write ldaps://HOST") from error
    if place.scheme not in {"ldap", "ldaps"} or not host or place.path.strip("/") or place.query:
        raise Wrong(f"`{url}` is no server", "write ldaps://HOST or ldap://HOST")
    if place.scheme == "ldap" and not start_tls and not is_loopback(host):
        raise Wrong(f"passwords would go to `{url}` unprotected", "write ldaps, or `start_tls: true`")

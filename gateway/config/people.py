"""The settings of what identifies people elsewhere: an OpenID provider, a directory.

A part of the field list in `gateway.config.model`. Opens no file and knows no environment.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from pydantic import Field, SecretStr

from gateway.config.findings import Part, contradictions, wrong_of
from gateway.config.identity import Ldap, Web, check_url
from gateway.config.units import Duration, Wrong
from gateway.ports.people import ROLES, RoleName

_NAMED = "{role}:{user}"


class ClaimedRole(Part):
    """A value of the claim, and the role of those who have it."""

    value: str = Field(min_length=1, description="As it is in the claim: a role, a group.")
    role: RoleName = Field(description="What they may do.")


class Oidc(Web):
    """Sign-in with an OpenID provider (authorization code with PKCE)."""

    name: str = Field(default="OpenID", min_length=1, max_length=40, description="What the page calls it.")
    issuer: str = Field(description="Its address, as its tokens have it; the rest is found by discovery.")
    client_id: str = Field(min_length=1, description="Name of the gateway there.")
    client_secret_file: str | None = Field(
        default=None, description="File whose first line is the secret of `client_id`; without it PKCE alone protects."
    )
    client_secret: SecretStr | None = Field(default=None, description="From the environment only.")
    gateway_url: str = Field(
        description="How browsers reach the admin port, as https://gateway.example:9160. At the provider "
        "`GATEWAY_URL/api/v1/sign-in/answer` is the redirect address.",
    )
    scopes: list[str] = Field(default=["openid", "profile"], description="What is asked for.")
    user_claim: str = Field(default="preferred_username", min_length=1, description="Claim that is the user's name.")
    roles_claim: str = Field(
        default="groups", min_length=1, description="Claim with a list of roles or groups; with dots one within claims."
    )
    roles: list[ClaimedRole] = Field(
        min_length=1,
        description="Which value means which role. Of several the highest counts; people without one are refused.",
    )
    leeway: Duration = Field(default=10.0, le=120, description="Tolerated difference of clocks.")

    @contradictions
    def _unfit(self) -> Iterator[Wrong]:
        yield from wrong_of(check_url, self.issuer)
        unfit = wrong_of(check_url, self.gateway_url)
        yield from unfit
        place = urlsplit("" if unfit else self.gateway_url)
        if place.path.strip("/") or place.query or place.fragment:
            yield Wrong(f"`{self.gateway_url}` has more than a host", "write it as https://gateway.example:9160")
        if "openid" not in self.scopes:
            yield Wrong("without the scope `openid` a provider does not say who signs in", "add it to `scopes`")


class PeopleLdap(Ldap):
    """People of a directory; `roles` says which group may do what. Needs the extra `ldap`."""

    user: str = Field(default=_NAMED, description="As it is: people have the name that the directory has for them.")

    @contradictions
    def _unfit_roles(self) -> Iterator[Wrong]:
        if not self.roles or any(one.role not in ROLES for one in self.roles) or self.user != _NAMED:
            yield Wrong(
                "the directory does not say what people may do",
                f"give `roles` with groups whose role is {', '.join(ROLES)}, and leave out `user`",
            )

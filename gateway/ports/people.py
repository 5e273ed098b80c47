"""Who uses the admin port, and what each role may do there."""

from __future__ import annotations

from typing import Literal, NamedTuple

RoleName = Literal["viewer", "operator", "administrator"]
VIEWER: RoleName = "viewer"
"""Looks."""
OPERATOR: RoleName = "operator"
"""May also replay, purge and disconnect, put and remove messages, and reload."""
ADMINISTRATOR: RoleName = "administrator"
"""May also change users, objects and settings, read the audit trail, and end the gateway."""
PUBLIC = ""
"""What operations need that anybody may ask for, such as signing in."""
ROLES: tuple[RoleName, ...] = (VIEWER, OPERATOR, ADMINISTRATOR)
"""Each may do what those before it may do."""


def allows(role: str, needed: str) -> bool:
    """Whether somebody with this role may do what needs the other one."""
    return needed == PUBLIC or (role in ROLES and ROLES.index(role) >= ROLES.index(needed))


class Caller(NamedTuple):
    """Who makes a request, and how that is known."""

    user: str
    method: str
    """`token file`, `token`, `password`, `ldap`, `oidc`."""
    role: str
    form_token: str = ""
    """A value that a request that changes something has to repeat, if it is a cookie that says who makes it."""
    session: str = ""
    """The key by which the session is found that the cookie stands for."""


NOBODY = Caller("", "", "")

"""Who uses the admin port, and what each role may do there."""

from __future__ import annotations

from typing import Literal, NamedTuple

RoleName = Literal["viewer", "operator", "administrator"]
VIEWER: RoleName = "viewer"
"""Looks."""
OPERATOR: RoleName = "operator"
"""Also replays, purges, disconnects, puts and removes messages, reloads."""
ADMINISTRATOR: RoleName = "administrator"
"""Also changes users, objects and settings, reads the audit trail, and ends the gateway."""
PUBLIC = ""
"""What an operation needs that anybody may ask for: those by which one signs in."""
ROLES: tuple[RoleName, ...] = (VIEWER, OPERATOR, ADMINISTRATOR)
"""Each may what those before it may."""


def allows(role: str, needed: str) -> bool:
    """Whether who has this role may do what needs that one."""
    return needed == PUBLIC or (role in ROLES and ROLES.index(role) >= ROLES.index(needed))


class Caller(NamedTuple):
    """Who asks, and how that is known."""

    user: str
    method: str
    """`token file`, `token`, `password`, `ldap`, `oidc`."""
    role: str
    form_token: str = ""
    """What a request that changes something has to repeat, where a cookie says who asks."""
    session: str = ""
    """By which the session is found that the cookie names."""


NOBODY = Caller("", "", "")

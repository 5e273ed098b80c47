"""`mqgate admin`: who may use the admin port of a running gateway."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

import click

from gateway.cli.reach import common, running_gateway, segment, show_json
from gateway.cli.tables import show_table
from gateway.cli.words import Words
from gateway.ports.people import ROLES

ROLE = click.Choice(list(ROLES))


@click.group(cls=Words)
def admin() -> None:
    """Users of the admin port, their roles and tokens. Needs a running gateway, whose own token is used."""


@admin.group()
def user() -> None:
    """Users: list, add, change, disable, enable, remove."""


@admin.group()
def token() -> None:
    """Tokens of users, for programs: add, remove."""


@user.command("list")
@common
def list_(config: str | None, data: str | None, as_json: bool) -> None:
    """List users with their roles and tokens."""
    found = running_gateway(config, data).get("/users")
    if as_json:
        show_json(found)
        return
    rows = [(one["name"], one["role"], _state(one), "", "", "") for one in found["items"]]
    rows += [
        (one["name"], one["role"], _state(one), each["id"], each["scope"], _end(each))
        for one in found["items"]
        for each in one["tokens"]
    ]
    show_table(("user", "role", "state", "token", "its scope", "ends"), sorted(rows))


@user.command()
@click.argument("name")
@click.option("--role", type=ROLE, default="viewer", show_default=True, help="What the user may do.")
@click.option("--tokens-only", is_flag=True, help="No password: the user signs in with tokens only, as programs do.")
@common
def add(name: str, role: str, tokens_only: bool, config: str | None, data: str | None, as_json: bool) -> None:
    """Add user NAME. Asks for the password, or reads it from standard input."""
    there = running_gateway(config, data)
    body = {"name": name, "role": role} | ({} if tokens_only else {"password": _password()})
    _said(there.post("/users", body), as_json, f"{name} is {role}")


@user.command()
@click.argument("name")
@click.option("--role", type=ROLE, help="The new role.")
@click.option("--password", is_flag=True, help="Set a new password: asks for it, or reads it from standard input.")
@common
def change(name: str, role: str | None, password: bool, config: str | None, data: str | None, as_json: bool) -> None:
    """Change role or password of NAME, which signs NAME out."""
    if role is None and not password:
        raise click.UsageError("say what to change: --role or --password")
    there = running_gateway(config, data)
    body: dict[str, Any] = {} if role is None else {"role": role}
    if password:
        body["password"] = _password()
    _said(there.put(f"/users/{segment(name)}", body), as_json, f"{name} is changed")


@user.command()
@click.argument("name")
@common
def disable(name: str, config: str | None, data: str | None, as_json: bool) -> None:
    """Sign NAME out, and accept neither password nor tokens until `enable`."""
    _said(
        running_gateway(config, data).put(f"/users/{segment(name)}", {"disabled": True}), as_json, f"{name} is disabled"
    )


@user.command()
@click.argument("name")
@common
def enable(name: str, config: str | None, data: str | None, as_json: bool) -> None:
    """Let NAME sign in again."""
    _said(
        running_gateway(config, data).put(f"/users/{segment(name)}", {"disabled": False}), as_json, f"{name} is enabled"
    )


@user.command()
@click.argument("name")
@common
def remove(name: str, config: str | None, data: str | None, as_json: bool) -> None:
    """Remove NAME and all its tokens."""
    running_gateway(config, data).delete(f"/users/{segment(name)}")
    _said({"removed": name}, as_json, f"{name} is removed")


@token.command("add")
@click.argument("name")
@click.option("--scope", type=ROLE, default="viewer", show_default=True, help="The most that the token may do.")
@click.option(
    "--days", type=click.FloatRange(0, 366, min_open=True), default=90, show_default=True, help="Days until it expires."
)
@click.option("--note", default="", help="What the token is for.")
@common
def add_token(
    name: str, scope: str, days: float, note: str, config: str | None, data: str | None, as_json: bool
) -> None:
    """Make a token for user NAME and print it: it cannot be shown again."""
    body = {"scope": scope, "days": days, "note": note}
    made = running_gateway(config, data).post(f"/users/{segment(name)}/tokens", body)
    _said(made, as_json, made["token"])


@token.command("remove")
@click.argument("name")
@click.argument("identifier")
@common
def remove_token(name: str, identifier: str, config: str | None, data: str | None, as_json: bool) -> None:
    """Revoke the token IDENTIFIER of user NAME."""
    running_gateway(config, data).delete(f"/users/{segment(name)}/tokens/{segment(identifier)}")
    _said({"removed": identifier}, as_json, f"{identifier} is revoked")


def _password() -> str:
    if sys.stdin.isatty():
        return str(click.prompt("Password", hide_input=True, confirmation_prompt=True))
    return sys.stdin.readline().rstrip("\r\n")


def _said(found: object, as_json: bool, text: str) -> None:
    if as_json:
        show_json(found)
    else:
        click.echo(text)


def _state(one: dict[str, Any]) -> str:
    return "disabled" if one["disabled"] else "password" if one["password"] else "tokens only"


def _end(each: dict[str, Any]) -> str:
    day = datetime.fromtimestamp(each["ends"], UTC).strftime("%Y-%m-%d")
    return f"{day} (over)" if each["over"] else day

"""`mqgate user`: users and roles that a running gateway manages."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import click

from gateway.access.passwords import hash_password
from gateway.cli.examples import examples
from gateway.cli.reach import common, running_gateway, segment, show_json
from gateway.cli.tables import everything, show_table
from gateway.cli.text_file import TextFile
from gateway.cli.words import Words
from gateway.config.counting import counted

CHUNK = 100
"""The number of users in one request, which takes some milliseconds of the reactor's time."""
COLUMNS = ("user", "password", "hash", "role", "client_id", "fingerprint", "enabled")


@click.group(cls=Words)
def user() -> None:
    """Users and roles that are managed while the gateway runs (`security.managed`)."""


def _chosen(password_file: str | None) -> dict[str, str]:
    if password_file is None:
        return {}
    from_input = password_file == "-"  # noqa: S105 -- a name
    content = sys.stdin.buffer.readline() if from_input else Path(password_file).read_bytes()
    password = content.split(b"\n", 1)[0].rstrip(b"\r")  # any bytes, as in CONNECT
    if not password:
        raise click.UsageError("the password is empty")
    return {"hash": hash_password(password)}


def _given(**values: object) -> dict[str, object]:
    return {key: value for key, value in values.items() if value is not None}


def _changed(config: str | None, data: str | None, mode: str, users: list[dict[str, Any]]) -> list[dict[str, str]]:
    items: list[dict[str, str]] = running_gateway(config, data).post("/device-users", {"mode": mode, "users": users})[
        "items"
    ]
    return items


def _say(items: Iterable[dict[str, str]], what: str, *, as_json: bool) -> None:
    if as_json:
        show_json(list(items))
        return
    for one in items:
        secret = next((f"; its {key}, shown once: {one[key]}" for key in ("password", "token") if key in one), "")
        click.echo(f"{one['user']} {what}{secret}")


def _say_of_role(role: str | None, config: str | None, data: str | None) -> None:
    """Warn about a role that does not exist: it may be made after its users, but a misspelt one never is."""
    if role and all(one["role"] != role for one in running_gateway(config, data).get("/device-roles")["items"]):
        text = "until `mqgate user role` makes it, its users may do only what the access list allows"
        click.echo(f"there is no role {role}: {text}", err=True)


@examples(
    "mqgate user add line7 --role lines",
    "mqgate user add line8 --token",
)
@user.command()
@click.argument("name")
@click.option("--role", help="Role; its topic lists apply to the user.")
@click.option("--client-id", help="The only client identifier it may have.")
@click.option("--fingerprint", help="SHA-256 of the certificate it must have; no password is generated then.")
@click.option(
    "--password-file", help="File whose first line is its password; - reads standard input. Default: one is generated."
)
@click.option("--token", is_flag=True, help="Generate a token instead, with which the device sets its password once.")
@common
def add(
    name: str, role: str | None, client_id: str | None, fingerprint: str | None, password_file: str | None, token: bool,
    config: str | None, data: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Add a user. Its password is generated and shown, unless one is given."""
    given = _given(
        user=name, role=role, client_id=client_id, fingerprint=fingerprint, secret="token" if token else None
    )
    _say(_changed(config, data, "add", [given | _chosen(password_file)]), "is added", as_json=as_json)
    _say_of_role(role, config, data)


@examples(
    "mqgate user import fleet.csv --secrets made.csv",
)
@user.command("import")
@click.argument("text", metavar="FILE", type=TextFile())
@click.option("--replace", is_flag=True, help="Also change users that exist already.")
@click.option("--token", is_flag=True, help="For users without a password, generate a token instead of a password.")
@click.option(
    "--secrets", "output", type=click.File("w"), help="Write what is generated here (user,password or user,token)."
)
@common
def import_(
    text: str, replace: bool, token: bool, output: Any, config: str | None, data: str | None, as_json: bool
) -> None:
    """Add the users of a CSV FILE. Its first line names its columns: user, and any of password, hash, role, client_id,
    fingerprint, enabled."""
    rows = list(_rows(StringIO(text), token=token))
    if output is not None and output.name != "-":
        Path(output.name).open("a").close()  # found out before users exist whose passwords it should receive
    there, made, written = running_gateway(config, data), csv.writer(output) if output else None, 0
    with click.progressbar(length=len(rows), label="users", file=sys.stderr) as bar:
        for begin in range(0, len(rows), CHUNK):
            chunk = [_hashed(one) for one in rows[begin : begin + CHUNK]]
            items = there.post("/device-users", {"mode": "set" if replace else "add", "users": chunk})["items"]
            for one in items:
                if made is not None and len(one) > 1:
                    made.writerow(one.values())
                    written += 1
            if output is not None:
                output.flush()  # after each chunk: passwords that could not be written are lost
            bar.update(len(chunk))
    if as_json:
        show_json({"users": len(rows), "secrets": written})
        return
    kept = f"; {counted(written, 'secret')} in {output.name}" if output else ""
    click.echo(f"{counted(len(rows), 'user')} imported{kept}")


def _rows(file: Iterable[str], *, token: bool) -> Iterator[dict[str, Any]]:
    reader = csv.DictReader(file)
    unknown = set(reader.fieldnames or []) - set(COLUMNS)
    if unknown or "user" not in (reader.fieldnames or []):
        raise click.UsageError(f"the first line names the columns: user, and any of {', '.join(COLUMNS[1:])}")
    for row in reader:
        if None in row or not row["user"]:
            raise click.UsageError(f"line {reader.line_num}: no user, or more values than columns")
        found: dict[str, Any] = {key: value for key, value in row.items() if value}
        if "enabled" in found:
            found["enabled"] = str(found["enabled"]).lower() in {"true", "yes", "1"}
        if token and not {"password", "hash", "fingerprint"} & found.keys():
            found["secret"] = "token"  # noqa: S105 -- a word
        yield found


def _hashed(row: dict[str, Any]) -> dict[str, Any]:
    """Hash a password that somebody has chosen, here, where it does not keep anybody waiting. Returns the row."""
    password = row.pop("password", None)
    return row if password is None else row | {"hash": hash_password(str(password).encode())}


@user.command("list")
@click.argument("search", default="")
@common
def list_(search: str, config: str | None, data: str | None, as_json: bool) -> None:
    """List users. SEARCH: part of a name."""
    items = everything(running_gateway(config, data), "/device-users", search=search or None)
    if as_json:
        show_json(items)
        return
    columns = ("user", "enabled", "role", "client", "certificate")
    show_table(columns, ((one["user"], "yes" if one["enabled"] else "no", one["role"] or "", one["client_id"] or "",
                          (one["fingerprint"] or "")[:16]) for one in items))  # fmt: skip
    click.echo(f"{len(items)} in all", err=True)


@user.command()
@click.argument("name")
@common
def show(name: str, config: str | None, data: str | None, as_json: bool) -> None:
    """Show one user, without its password."""
    del as_json
    show_json(running_gateway(config, data).get(f"/device-users/{segment(name)}"))


@user.command()
@click.argument("name")
@common
def enable(name: str, config: str | None, data: str | None, as_json: bool) -> None:
    """Let a user in again."""
    _say(_changed(config, data, "change", [{"user": name, "enabled": True}]), "is enabled", as_json=as_json)


@user.command()
@click.argument("name")
@common
def disable(name: str, config: str | None, data: str | None, as_json: bool) -> None:
    """Refuse a user, and disconnect its devices (0x87)."""
    _say(_changed(config, data, "change", [{"user": name, "enabled": False}]), "is disabled", as_json=as_json)


@user.command()
@click.argument("name")
@click.option("--password-file", help="File whose first line is the new password; - reads standard input.")
@click.option("--token", is_flag=True, help="Generate a token with which the device sets its password once.")
@common
def rotate(
    name: str, password_file: str | None, token: bool, config: str | None, data: str | None, as_json: bool
) -> None:
    """Set a new password; the old one is void from now on. Connected devices stay connected."""
    given = {"user": name, "secret": "token" if token else "make"} | _chosen(password_file)
    _say(_changed(config, data, "change", [given]), "has a new secret", as_json=as_json)


@user.command("set")
@click.argument("name")
@click.option("--role", help="Role; empty: none.")
@click.option("--client-id", help="The only client identifier it may have; empty: any.")
@click.option("--fingerprint", help="SHA-256 of the certificate it must have; empty: any.")
@click.option("--password-file", help="File whose first line is its new password, as for `rotate`.")
@common
def set_(
    name: str, role: str | None, client_id: str | None, fingerprint: str | None, password_file: str | None,
    config: str | None, data: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Change a user; the new rights apply to its connected devices at once."""
    changes = _given(role=role, client_id=client_id, fingerprint=fingerprint) | _chosen(password_file)
    if not changes:
        raise click.UsageError("say what to change: --role, --client-id, --fingerprint or --password-file")
    given = {"user": name, **changes}
    _say(_changed(config, data, "change", [given]), "is changed", as_json=as_json)
    _say_of_role(role, config, data)


@user.command()
@click.argument("name")
@common
def delete(name: str, config: str | None, data: str | None, as_json: bool) -> None:
    """Remove a user, and disconnect its devices (0x87)."""
    del as_json
    running_gateway(config, data).delete(f"/device-users/{segment(name)}")
    click.echo(f"{name} is removed")


def _filters(given: tuple[str, ...]) -> list[str]:
    return [one for one in given if one]


@examples(
    "mqgate user role lines --publish 'plant/{client}/#' --subscribe 'plant/{client}/cmd/#'",
    "mqgate user role lines",
)
@user.command()
@click.argument("name", default="")
@click.option(
    "--publish",
    multiple=True,
    help="A filter its users may publish to; it may contain {client} and {user}. Empty: none.",
)
@click.option("--subscribe", multiple=True, help="A filter its users may subscribe to. Empty: none.")
@click.option("-D", "--delete", "gone", is_flag=True, help="Remove the role.")
@common
def role(
    name: str, publish: tuple[str, ...], subscribe: tuple[str, ...], gone: bool, config: str | None, data: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Without NAME: list the roles. With NAME: show that role; with filters make it, or change it to these; -D removes
    it."""
    there = running_gateway(config, data)
    if not (name and (gone or publish or subscribe)):
        items = [one for one in there.get("/device-roles")["items"] if name in {"", one["role"]}]
        if name and not items:
            raise click.ClickException(f"there is no role {name}: --publish FILTER or --subscribe FILTER makes it")
        if as_json:
            show_json(items)
        else:
            rows = ((one["role"], " ".join(one["publish"]), " ".join(one["subscribe"])) for one in items)
            show_table(("role", "publish", "subscribe"), rows)
    elif gone:
        there.delete(f"/device-roles/{segment(name)}")
        click.echo(f"{name} is removed")
    else:
        made = there.put(
            f"/device-roles/{segment(name)}", {"publish": _filters(publish), "subscribe": _filters(subscribe)}
        )
        click.echo(json.dumps(made) if as_json else f"{name} is set")

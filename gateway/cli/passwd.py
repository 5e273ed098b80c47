"""`mqgate passwd`: users of a password file."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from gateway.access.passwords import hash_password, read_password_file, write_password_file
from gateway.cli.examples import examples
from gateway.errors import ConfigurationError


@examples(
    "mqgate passwd users alice",
    "mqgate passwd users alice < alice.pw",
    "mqgate passwd -D users alice",
)
@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.argument("user")
@click.option("-D", "--delete", is_flag=True, help="Remove the user.")
@click.option("-b", "--batch", "password", help="Give the password on the command line, where others can see it.")
@click.option("--pbkdf2", is_flag=True, help="Use a hash that mosquitto can also read, instead of Argon2id.")
def passwd(file: str, user: str, delete: bool, password: str | None, pbkdf2: bool) -> None:
    """Add USER to the password FILE, or change or remove it. Asks for the password, or reads it from standard input."""
    path = Path(file)
    if not user or ":" in user or "\n" in user:
        raise click.UsageError("a user name has at least one character and no colon")
    try:
        users = read_password_file(path).users if path.exists() else {}
    except ConfigurationError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    if delete:
        if users.pop(user, None) is None:
            click.echo(f"there is no user {user}", err=True)
            sys.exit(1)
    else:
        if password is None:
            if sys.stdin.isatty():
                password = click.prompt("Password", hide_input=True, confirmation_prompt=True)
            else:
                password = sys.stdin.readline().rstrip("\r\n")
        if not password:
            raise click.UsageError("the password is empty: nothing was changed")
        users[user] = hash_password(str(password).encode(), pbkdf2=pbkdf2)
    write_password_file(path, users)
    click.echo(f"{user} is {'removed from' if delete else 'in'} {file}")

"""`mqgate check`: settings and mappings, every error at once, and the tests beside the rules."""

from __future__ import annotations

import os
import sys
from itertools import filterfalse
from pathlib import Path
from typing import IO

import click

from gateway.bridge.rehearsal import run_tests
from gateway.cli.reach import LocalClock, show_json
from gateway.config.counting import counted
from gateway.config.load import examine_settings
from gateway.config.model import Settings
from gateway.errors import ConfigurationError, Finding
from gateway.rules.mappings import Mappings
from gateway.rules.parse import load_mappings


@click.command()
@click.argument("files", nargs=-1, type=click.Path())
@click.option("-c", "--config", type=click.Path(dir_okay=False), help="File of settings, as for `run`: another FILE.")
@click.option(
    "--ask", "user", metavar="USER", help="Also try each method that knows users, in its order, with this user."
)
@click.option(
    "--password-file",
    type=click.File("rb"),
    help="File whose first line is the password, or the token, for --ask; "
    "`-` is the standard input. Without it the password is asked for.",
)
@click.option(
    "--queues",
    is_flag=True,
    help="Also ask the queue manager, running or stopped, and the MQSC file of the settings for the queues that the "
    "rules of settings name.",
)
@click.option("--json", "as_json", is_flag=True, help="Output as JSON.")
def check(
    files: tuple[str, ...],
    config: str | None,
    user: str | None,
    password_file: IO[bytes] | None,
    queues: bool,
    as_json: bool,
) -> None:
    """Validate settings and mapping FILES, look at every file that settings name, and run the mappings' own tests. Exit
    code 1 when something is wrong, or when nothing lets the user of --ask in."""
    files = files if config is None else (config, *files)
    if not files:
        raise click.UsageError("name a file of settings or of mappings: `mqgate check mqgate.yaml`")
    findings = _jobs(files)
    warnings: list[Finding] = []
    tests = 0
    mappings, given, logins = [], list[Settings](), list[tuple[str, str, bool]]()
    password = _password(user, password_file)
    for name in filterfalse(_is_job, files):
        if is_mapping(name):
            mappings.append(name)
            continue
        settings, found = examine_settings(name, os.environ, {})
        findings += found
        if settings is not None:
            whole = not found
            given += [settings] if whole else []
            wrong, doubtful, named, asked = _settings(
                name, settings, queues and whole, user if whole else None, password
            )
            findings += wrong
            warnings += doubtful if whole else []
            mappings += named
            logins += asked
    if mappings:
        try:
            made = load_mappings(dict.fromkeys(mappings))
            tests = len(made.tests)
            wrong, doubtful = _looked_at(made, given)
            findings += wrong
            warnings += doubtful
        except ConfigurationError as error:
            findings += error.findings
    refused = user is not None and not any(let for _, _, let in logins)
    if as_json:
        show_json({"ok": not findings, "tests": tests, "findings": [str(one) for one in findings],
                   "warnings": [str(one) for one in warnings],
                   **({"methods": [{"method": name, "says": says, "lets_in": let} for name, says, let in logins]}
                      if user is not None else {})})  # fmt: skip
    else:
        for warning in warnings:
            click.echo(f"{warning} (warning)", err=True)
        for finding in findings:
            click.echo(str(finding), err=True)
        if user is not None and not findings:
            _show_logins(logins)
        if not findings:
            how = f"nobody lets in {user or 'this client'}" if refused else "all is well"
            click.echo(f"{how}: {counted(len(files), 'file')}, {counted(tests, 'test')} passed")
    sys.exit(1 if findings or refused else 0)


def _looked_at(made: Mappings, given: list[Settings]) -> tuple[list[Finding], list[Finding]]:
    """What is wrong with rules that can be read, and what is probably not meant."""
    from gateway.app.listener_names import unmet_rules
    from gateway.app.queue_managers.target_names import doubtful_targets, unknown_targets

    wrong = [finding for settings in given for finding in unknown_targets(made, settings)]
    doubtful = [finding for settings in given for finding in doubtful_targets(made, settings)]
    unmet = [finding for settings in given for finding in unmet_rules(made, settings)]
    return wrong + run_tests(made), [*made.warnings, *doubtful, *unmet]


def _settings(
    name: str, settings: Settings, queues: bool, user: str | None, password: bytes
) -> tuple[list[Finding], list[Finding], list[str], list[tuple[str, str, bool]]]:
    """What is wrong with a file of settings and what it names, what of it is probably not meant, its mapping files, and
    which methods let the user in."""
    from gateway.app.files.named_files import wrong_files
    from gateway.app.listener_names import unmet_entries
    from gateway.app.mappings import look_for_mappings
    from gateway.app.queue_managers.embedded import wrong_objects

    findings = [*wrong_files(settings), *wrong_objects(settings, LocalClock())]
    doubtful = [] if findings else list(unmet_entries(settings))
    mappings, missing = look_for_mappings(settings)
    findings += missing
    logins = _ask(settings, user, password) if user is not None and not findings else []
    if queues and not findings:
        from gateway.cli.rule_queues import missing_queues

        findings += missing_queues(name)
    return findings, doubtful, mappings, logins


def _show_logins(logins: list[tuple[str, str, bool]]) -> None:
    for method, says, let in logins:
        click.secho(f"{method}: {says}", fg="green" if let else None)
    if not logins:
        click.echo("no method knows users: `security` has none")


def _password(user: str | None, file: IO[bytes] | None) -> bytes:
    if user is None:
        return b""
    if file is not None:
        return file.readline().rstrip(b"\r\n")
    return str(click.prompt(f"Password of {user}", hide_input=True, err=True)).encode()


def _ask(settings: Settings, user: str, password: bytes) -> list[tuple[str, str, bool]]:
    from gateway.access.logins import Credentials
    from gateway.app.access import ask_each

    return list(ask_each(settings, Credentials("mqgate-check", user, password)))


def is_mapping(name: str) -> bool:
    """Mapping files say `to_mq`, `to_mqtt`, `tests` or `unmatched` at the top; settings never do."""
    lines = _lines(name)
    return lines is None or any(line.startswith(_OF_MAPPINGS) for line in lines)


def _jobs(files: tuple[str, ...]) -> list[Finding]:
    """Jobs of the pipeline, which another command checks."""
    return [Finding(name, 1, 1, "a job of the pipeline", f"mqgate pipeline check {name}")
            for name in filter(_is_job, files)]  # fmt: skip


def _is_job(name: str) -> bool:
    return any(line.startswith("warehouse:") for line in _lines(name) or ())


_OF_MAPPINGS = ("to_mq", "to_mqtt", "tests:", "unmatched:", "version:")


def _lines(name: str) -> list[str] | None:
    """None: it cannot be read, or is no text."""
    try:
        return Path(name).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None

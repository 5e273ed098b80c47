"""`mqgate check`: settings and mappings, with all errors at once, and the tests beside the rules."""

from __future__ import annotations

import os
import sys
from itertools import filterfalse
from pathlib import Path
from typing import IO

import click

from gateway.bridge.rehearsal import run_tests
from gateway.cli.examples import examples
from gateway.cli.reach import LocalClock, show_json
from gateway.config.counting import counted
from gateway.config.load import examine_settings
from gateway.config.model import Settings
from gateway.errors import ConfigurationError, Finding
from gateway.rules.parse import load_mappings


@examples(
    "mqgate check mqgate.yaml",
    "mqgate check mappings/*.yaml",
    "mqgate check mqgate.yaml --queues",
    "mqgate check mqgate.yaml --ask alice",
)
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
    "`-` is the standard input. Without it the password is asked for, or read from a pipe.",
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
    """Validate settings and mapping FILES, check every file that the settings name, and run the mappings' own tests.
    Exit code 1 if something is wrong, or if nothing lets the user of --ask in."""
    files = files if config is None else (config, *files)
    if not files:
        raise click.UsageError("name a file of settings or of mappings: `mqgate check mqgate.yaml`")
    found = _Found(queues, user, _password(user, password_file))
    found.findings += _jobs(files)
    for name in filterfalse(_is_job, files):
        if is_mapping(name):
            found.mappings.append(name)
        else:
            found.of_settings(name)
    found.of_mappings()
    found.warnings += filter(None, map(_without_content, files))
    (_show_json if as_json else _show)(found, len(files))
    sys.exit(1 if found.findings or found.refused else 0)


class _Found:
    """What was found in all files."""

    def __init__(self, queues: bool, user: str | None, password: bytes) -> None:
        self._queues = queues
        self.user = user
        self._password = password
        self.findings: list[Finding] = []
        self.warnings: list[Finding] = []
        self.mappings: list[str] = []
        """Files of rules: those given, and those that the settings name."""
        self._settings: list[Settings] = []
        self.logins: list[tuple[str, str, bool]] = []
        self.tests = 0

    @property
    def refused(self) -> bool:
        """Whether no method lets in the user of --ask."""
        return self.user is not None and not any(lets_in for _, _, lets_in in self.logins)

    def of_settings(self, name: str) -> None:
        """Check a file of settings and what it names, and find which methods let the user in."""
        settings, wrong = examine_settings(name, os.environ, {})
        if settings is None:
            self.findings += wrong
            return
        from gateway.app.files.named_files import wrong_files
        from gateway.app.listener_names import unmet_entries
        from gateway.app.mappings import look_for_mappings
        from gateway.app.queue_managers.embedded import wrong_objects

        right = not wrong
        wrong += [*wrong_files(settings), *wrong_objects(settings, LocalClock())]
        self.warnings += [] if wrong else unmet_entries(settings)
        mappings, missing = look_for_mappings(settings)
        self.mappings += mappings
        wrong += missing
        if right:
            self._settings.append(settings)
        if self.user is not None and not wrong:
            self.logins += _ask(settings, self.user, self._password)
        if self._queues and not wrong:
            wrong += _missing_queues(name)
        self.findings += wrong

    def of_mappings(self) -> None:
        """Check the rules, and warn of what in them is probably not meant."""
        from gateway.app.listener_names import unmet_rules
        from gateway.app.queue_managers.target_names import doubtful_targets, unknown_targets

        if not self.mappings:
            return
        try:
            made = load_mappings(dict.fromkeys(self.mappings))
        except ConfigurationError as error:
            self.findings += error.findings
            return
        self.tests = len(made.tests)
        self.findings += [one for settings in self._settings for one in unknown_targets(made, settings)]
        self.findings += run_tests(made)
        self.warnings += [*made.warnings, *(_says_nothing(name, "it has no rules") for name in made.empty)]
        for doubts in (doubtful_targets, unmet_rules):
            self.warnings += [one for settings in self._settings for one in doubts(made, settings)]


def _missing_queues(name: str) -> list[Finding]:
    from gateway.cli.rule_queues import missing_queues

    try:
        return missing_queues(name)
    except ConfigurationError as error:
        return error.findings


def _show_json(found: _Found, files: int) -> None:
    del files
    logins = [{"method": name, "says": says, "lets_in": lets_in} for name, says, lets_in in found.logins]
    show_json({
        "ok": not found.findings, "tests": found.tests, "findings": [str(one) for one in found.findings],
        "warnings": [str(one) for one in found.warnings], **({"methods": logins} if found.user is not None else {}),
    })  # fmt: skip


def _show(found: _Found, files: int) -> None:
    for warning in found.warnings:
        click.echo(f"{warning} (warning)", err=True)
    for finding in found.findings:
        click.echo(str(finding), err=True)
    if found.findings:
        return
    if found.user is not None:
        _show_logins(found.logins)
    how = f"nobody lets in {found.user or 'this client'}" if found.refused else "all is well"
    click.echo(f"{how}: {counted(files, 'file')}, {counted(found.tests, 'test')} passed")


def _show_logins(logins: list[tuple[str, str, bool]]) -> None:
    for method, says, let in logins:
        click.secho(f"{method}: {says}", fg="green" if let else None)
    if not logins:
        click.echo("no authentication method is configured in `security`")


def _password(user: str | None, file: IO[bytes] | None) -> bytes:
    if user is None:
        return b""
    if file is not None:
        return file.readline().rstrip(b"\r\n")
    if sys.stdin.isatty():
        return str(click.prompt(f"Password of {user}", hide_input=True, err=True)).encode()
    return sys.stdin.buffer.readline().rstrip(b"\r\n")


def _ask(settings: Settings, user: str, password: bytes) -> list[tuple[str, str, bool]]:
    from gateway.access.logins import Credentials
    from gateway.app.access import ask_each

    return list(ask_each(settings, Credentials("mqgate-check", user, password)))


def is_mapping(name: str) -> bool:
    """Whether a file is a mapping: mapping files have `to_mq`, `to_mqtt`, `tests` or `unmatched` at the top level;
    settings never do."""
    lines = _lines(name)
    return lines is None or any(line.startswith(_OF_MAPPINGS) for line in lines)


def _jobs(files: tuple[str, ...]) -> list[Finding]:
    """Returns a finding for each job of the pipeline, which another command checks."""
    return [Finding(name, 1, 1, "a job of the pipeline", f"mqgate pipeline check {name}")
            for name in filter(_is_job, files)]  # fmt: skip


def _is_job(name: str) -> bool:
    return any(line.startswith("warehouse:") for line in _lines(name) or ())


def _without_content(name: str) -> Finding | None:
    """A warning about a file that says nothing, which is allowed and more often an accident."""
    lines = _lines(name)
    if lines is None or any(line.strip() and not line.lstrip().startswith("#") for line in lines):
        return None
    return _says_nothing(name, "all settings are as by default")


def _says_nothing(name: str, so: str) -> Finding:
    return Finding(name, 1, 1, f"the file says nothing, so {so}", "restore it if something has cut it off")


_OF_MAPPINGS = ("to_mq", "to_mqtt", "tests:", "unmatched:", "version:")


def _lines(name: str) -> list[str] | None:
    """Returns the lines of a file; None if it cannot be read, or is not text."""
    try:
        return Path(name).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None

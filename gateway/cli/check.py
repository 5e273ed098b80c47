"""`mqgate check`: settings and mappings, every error at once, and the tests beside the rules."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from gateway.bridge.rehearsal import run_tests
from gateway.cli.reach import show_json
from gateway.config.counting import counted
from gateway.config.load import load_settings
from gateway.errors import ConfigurationError, Finding
from gateway.rules.parse import load_mappings


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Output as JSON.")
def check(files: tuple[str, ...], as_json: bool) -> None:
    """Validate settings and mapping FILES and run the mappings' own tests. Exit code 1 when something is wrong."""
    findings: list[Finding] = []
    warnings: list[Finding] = []
    tests = 0
    mappings = []
    for name in files:
        try:
            if is_mapping(name):
                mappings.append(name)
            else:
                from gateway.app.mappings import mapping_files

                mappings += mapping_files(load_settings(name, os.environ, {}))
        except ConfigurationError as error:
            findings += error.findings
    if mappings:
        try:
            made = load_mappings(dict.fromkeys(mappings))
            warnings += made.warnings
            tests = len(made.tests)
            findings += run_tests(made)
        except ConfigurationError as error:
            findings += error.findings
    if as_json:
        show_json({"ok": not findings, "tests": tests, "findings": [str(one) for one in findings],
                   "warnings": [str(one) for one in warnings]})  # fmt: skip
    else:
        for warning in warnings:
            click.echo(f"{warning} (warning)", err=True)
        for finding in findings:
            click.echo(str(finding), err=True)
        if not findings:
            click.echo(f"all is well: {counted(len(files), 'file')}, {counted(tests, 'test')} passed")
    sys.exit(1 if findings else 0)


def is_mapping(name: str) -> bool:
    """Mapping files say `to_mq`, `to_mqtt`, `tests` or `unmatched` at the top; settings never do."""
    try:
        lines = Path(name).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return True
    return any(line.startswith(("to_mq", "to_mqtt", "tests:", "unmatched:", "version:")) for line in lines)

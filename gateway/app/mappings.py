"""The mapping files of a process, and the table made of them."""

from __future__ import annotations

import hashlib
import socket
from importlib.resources import files
from pathlib import Path

from gateway.app.queue_managers.target_names import unknown_targets
from gateway.config.model import Settings
from gateway.errors import ConfigurationError, Finding
from gateway.routing.table import Table, compile_mappings
from gateway.rules.mappings import Mappings
from gateway.rules.parse import load_mappings, parse_mappings

DEFAULT = "default.yaml"


def mapping_files(settings: Settings) -> list[str]:
    """The files the settings name, patterns expanded, in order."""
    found, findings = look_for_mappings(settings)
    if findings:
        raise ConfigurationError(findings)
    return found


def look_for_mappings(settings: Settings) -> tuple[list[str], list[Finding]]:
    """Those that there are, and which are named and are not there."""
    found: list[str] = []
    findings: list[Finding] = []
    for index, name in enumerate(settings.mappings):
        key = f"mappings.{index}"
        path = Path(settings.resolve(name, key))
        matches = _matching(path)
        if not matches:
            findings.append(settings.finding(key, f"there is no mapping file {path}", "write it, or correct the name"))
        found += matches
    return found, findings


def _matching(pattern: Path) -> list[str]:
    try:
        return sorted(map(str, pattern.parent.glob(pattern.name)))
    except (OSError, ValueError):  # a name that is too long; `**` within a name, or no name
        return []


def read_mappings(settings: Settings) -> Mappings:
    """The rules of this process; without any file the shipped default mapping."""
    names = mapping_files(settings)
    if names:
        return checked_with(settings, load_mappings(names))
    text = files("gateway.rules").joinpath(DEFAULT).read_text(encoding="utf-8")
    return parse_mappings([(DEFAULT, text)])


def wrong_mappings(settings: Settings) -> list[Finding]:
    """What is wrong with the files of rules; the text of each that there is."""
    names, findings = look_for_mappings(settings)
    try:
        findings += unknown_targets(load_mappings(names), settings)
    except ConfigurationError as error:
        findings += error.findings
    return findings


def checked_with(settings: Settings, mappings: Mappings) -> Mappings:
    """The same, if the settings have all targets that they name."""
    unknown = unknown_targets(mappings, settings)
    if unknown:
        raise ConfigurationError(unknown)
    return mappings


def read_table(settings: Settings) -> Table:
    """Read, check and compile: all findings at once, or a table."""
    return compile_mappings(read_mappings(settings), gateway_name(settings))


def gateway_name(settings: Settings) -> str:
    """The name of this gateway among those on one queue manager: of the settings, or made from host and directory,
    which a restart does not change."""
    if settings.process.name:
        return settings.process.name
    where = Path(settings.resolve(".", "process.name")).resolve()
    return f"{socket.gethostname()}-{hashlib.sha256(str(where).encode()).hexdigest()[:6]}"

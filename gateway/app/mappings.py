"""Which mapping files a process uses, and the table made of them."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from gateway.config.model import Settings
from gateway.errors import ConfigurationError, Finding
from gateway.routing.table import Table, compile_mappings
from gateway.rules.mappings import Mappings
from gateway.rules.parse import load_mappings, parse_mappings

DEFAULT = "default.yaml"


def mapping_files(settings: Settings) -> list[str]:
    """The files the settings name, patterns expanded, in order."""
    found: list[str] = []
    findings: list[Finding] = []
    for index, name in enumerate(settings.mappings):
        path = Path(settings.resolve(name, f"mappings.{index}"))
        matches = sorted(map(str, path.parent.glob(path.name)))
        if not matches:
            findings.append(Finding(str(path), 1, 1, "no such mapping file", "check `mappings` in the settings"))
        found += matches
    if findings:
        raise ConfigurationError(findings)
    return found


def read_mappings(settings: Settings) -> Mappings:
    """The rules of this process; without any file the shipped default mapping."""
    names = mapping_files(settings)
    if names:
        return usable(load_mappings(names))
    text = files("gateway.rules").joinpath(DEFAULT).read_text(encoding="utf-8")
    return parse_mappings([(DEFAULT, text)])


def usable(mappings: Mappings) -> Mappings:
    """Refuse what this version reads but does not do."""
    what = "a rule that subscribes to an MQ topic is not offered in this version"
    fix = "define a subscription to a queue (DEFINE SUB ... DEST) and name that queue"
    rules = [rule for rule in mappings.to_mqtt if rule.spec.mq_topic is not None]
    if rules:
        raise ConfigurationError([Finding(rule.file, rule.line, 1, f"{rule.name}: {what}", fix) for rule in rules])
    return mappings


def read_table(settings: Settings) -> Table:
    """Read, check and compile: all findings at once, or a table."""
    return compile_mappings(read_mappings(settings))

"""Turns mapping files into checked rules. Every error in every file is reported at once, with its place and what to
write.

This module opens no file except the JSON Schemas that rules name, through `load`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path as FilePath
from typing import TypeVar

from pydantic import ValidationError

from gateway.config.findings import Part, describe, left_out, wrong_paths
from gateway.config.source import Document, Path, read_yaml, unread
from gateway.config.units import Wrong
from gateway.errors import ConfigurationError, Finding
from gateway.rules.check import check_inbound, check_outbound, check_test
from gateway.rules.mappings import InboundRule, Mappings, OutboundRule, PlacedTest
from gateway.rules.model import MappingFile, ToMq, ToMqtt
from gateway.rules.payload_schema import compile_schema
from gateway.rules.shadow import shadowed, shadowed_sources
from gateway.rules.trials import Test

Load = Callable[[str], str]


def load_text(path: str) -> str:
    """The text of a file."""
    return FilePath(path).read_text(encoding="utf-8")


def load_mappings(paths: Iterable[str]) -> Mappings:
    """Read and parse mapping files. A file that cannot be read is a finding like any other. Raises ConfigurationError
    with all findings."""
    sources, findings = [], []
    for path in paths:
        try:
            sources.append((path, load_text(path)))
        except (OSError, UnicodeDecodeError) as error:
            findings.append(unread(path, error, "check the name and who may read it"))
    try:
        mappings = parse_mappings(sources)
    except ConfigurationError as error:
        raise ConfigurationError(findings + error.findings) from None
    if findings:
        raise ConfigurationError(findings)
    return mappings


def parse_mappings(sources: Iterable[tuple[str, str]], load: Load = load_text) -> Mappings:
    """Parse pairs of name and text, in order, into one set of rules. Raises ConfigurationError with all findings."""
    reading = _Reading(load)
    for name, text in sources:
        reading.read(name, text)
    return reading.result()


class _Reading:
    """The rules and the findings so far."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.findings: list[Finding] = []
        self.inbound: list[InboundRule] = []
        self.outbound: list[OutboundRule] = []
        self.tests: list[PlacedTest] = []
        self.dead_letter_unmatched = False
        self.names: dict[str, str] = {}
        self.empty: list[str] = []

    def read(self, name: str, text: str) -> None:
        document = read_yaml(name, text)
        self.findings += document.findings
        if document.findings:
            return
        if document.value is None:
            self.empty.append(name)
            return
        try:
            file = MappingFile.model_validate(document.value)
            self.dead_letter_unmatched |= file.unmatched == "dead_letter"
            self._rules(document, {"to_mq": file.to_mq, "to_mqtt": file.to_mqtt, "tests": file.tests})
        except ValidationError as error:
            self.findings += describe(error, document, MappingFile)
            if isinstance(document.value, dict):
                self._rules(document, document.value)

    def _rules(self, document: Document, value: Mapping[str, object]) -> None:
        """Check each rule by itself, so that a wrong one does not hide the errors of the others."""
        for index, raw in enumerate(_list(value, "to_mq")):
            self._inbound(document, ("to_mq", index), raw)
        for index, raw in enumerate(_list(value, "to_mqtt")):
            self._outbound(document, ("to_mqtt", index), raw)
        for index, raw in enumerate(_list(value, "tests")):
            self._test(document, ("tests", index), raw)

    def _inbound(self, document: Document, path: Path, raw: object) -> None:
        spec, whole = _spec(ToMq, raw)
        if spec is None:
            return
        self._name(document, path, spec.name)
        line = document.values[path][0]
        schema = self._schema(document, path, spec)
        manager_at = document.values.get((*path, "queue_manager"), (line, 1))
        rule, problems = check_inbound(spec, len(self.inbound), document.name, line, schema, manager_at)
        self._report(document, path, problems if whole else [one for one in problems if one[0]])
        if rule is not None:
            self.inbound.append(rule)

    def _outbound(self, document: Document, path: Path, raw: object) -> None:
        spec, whole = _spec(ToMqtt, raw)
        if spec is None:
            return
        self._name(document, path, spec.name)
        line = document.values[path][0]
        manager_at = document.values.get((*path, "queue_manager"), (line, 1))
        rule, problems = check_outbound(spec, len(self.outbound), document.name, line, manager_at)
        self._report(document, path, problems if whole else [one for one in problems if one[0]])
        if rule is not None:
            self.outbound.append(rule)

    def _test(self, document: Document, path: Path, raw: object) -> None:
        try:
            test = raw if isinstance(raw, Test) else Test.model_validate(raw)
        except ValidationError:
            return
        self._report(document, path, check_test(test))
        line, column = document.values[path]
        self.tests.append(PlacedTest(document.name, line, column, test))

    def _name(self, document: Document, path: Path, name: str) -> None:
        here = (*path, "name")
        line, _ = document.values[here]
        first = self.names.setdefault(name, f"{document.name}:{line}")
        if first != f"{document.name}:{line}":
            fix = "give each rule its own name: metrics and dead letters are counted by it"
            self.findings.append(document.finding(here, f"the name `{name}` is already taken at {first}", fix))

    def _schema(self, document: Document, path: Path, spec: ToMq) -> str | None:
        if spec.payload.schema_file is None:
            return None
        where = FilePath(document.name).parent / spec.payload.schema_file
        here = (*path, "payload", "schema")
        try:
            text = self.load(str(where))
            compile_schema(text)
        except (OSError, UnicodeDecodeError) as error:
            fix = "name a file relative to this one"
            self.findings.append(document.finding(here, f"the JSON Schema cannot be read: {error}", fix))
        except Wrong as wrong:
            self.findings.append(document.finding(here, f"`{where}` is {wrong.what}", wrong.fix))
        else:
            return text
        return None

    def _report(self, document: Document, path: Path, problems: list[tuple[Path, Wrong]]) -> None:
        self.findings += [document.finding(path + below, wrong.what, wrong.fix) for below, wrong in problems]

    def result(self) -> Mappings:
        if self.findings:
            raise ConfigurationError(sorted(self.findings, key=lambda one: (one.file, one.line, one.column)))
        hidden: list[tuple[AnyRule, AnyRule]] = [*shadowed(self.inbound), *shadowed_sources(self.outbound)]
        warnings = tuple(
            Finding(rule.file, rule.line, 1, f"rule `{rule.name}` is never reached: `{first.name}` "
                    f"({first.file}:{first.line}) takes all it matches", "move it before that rule, or remove it")
            for rule, first in hidden
        )  # fmt: skip
        return Mappings(
            tuple(self.inbound), tuple(self.outbound), tuple(self.tests), self.dead_letter_unmatched, warnings,
            tuple(self.empty), {rule.name: first.name for rule, first in hidden},
        )  # fmt: skip


AnyRule = InboundRule | OutboundRule
M = TypeVar("M", bound=Part)


def _spec(model: type[M], raw: object) -> tuple[M | None, bool]:
    """The rule without its wrong parts, which the check of the whole file reports, and whether it is complete."""
    if isinstance(raw, model):
        return raw, True
    try:
        return model.model_validate(raw), True
    except ValidationError as error:
        left = left_out(raw, map(_whole_list, wrong_paths(error, raw)))
    try:
        return model.model_validate(left), False
    except ValidationError:
        return None, False


def _whole_list(path: Path) -> Path:
    """The path of a wrong value, or of the list it is in."""
    return tuple(itertools.takewhile(lambda step: isinstance(step, str), path))


def _list(value: Mapping[str, object], key: str) -> list[object]:
    items = value.get(key)
    return items if isinstance(items, list) else []

"""Settings from a file, the environment and the command line, in rising order; every wrong value is reported at once.

Environment: `MQGATE_MQTT__MAX_PACKET=2MiB`, `MQGATE_LISTENERS__0__PORT=1884`; values are YAML. Relative file names in a
file of settings are relative to that file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any, get_origin

from pydantic import BaseModel, SecretStr

from gateway.config.examine import examine
from gateway.config.findings import Part, did_you_mean, models_in
from gateway.config.model import Settings
from gateway.config.security import AclEntry
from gateway.config.source import Document, Path, read_scalar, read_yaml, unread
from gateway.errors import ConfigurationError, Finding

PREFIX = "MQGATE_"
MASK = "********"
_SECRET = "password"  # noqa: S105 - the key that holds one


def load_settings(
    path: str | FilePath | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Settings:
    """The settings. `overrides`: dotted keys from the command line. Raises ConfigurationError with every finding."""
    settings, findings = examine_settings(path, environ, overrides)
    if findings or settings is None:
        raise ConfigurationError(findings)
    return settings


def examine_settings(
    path: str | FilePath | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> tuple[Settings | None, list[Finding]]:
    """The settings, and what is wrong with them. Wrong values are left out, so that the files which other values name
    can be examined too. None instead of settings: the text cannot be read as settings at all."""
    document = _read(path)
    findings = list(document.findings)
    empty = path is not None and document.value is None
    value: Any = {} if document.value is None else document.value
    if not isinstance(value, dict):
        fix = "write `listeners:`, `mqtt:` ..., and in a file of rules `to_mq:`, `to_mqtt:`"
        findings.append(document.finding((), "settings are a mapping (key: value)", fix))
        value = {}
    readable = not findings
    findings += list(_secrets_in(document, value, ()))
    marks = {".".join(map(str, key)): mark for key, mark in document.values.items() if key}
    origins = {key: f"{document.name}:{line}" for key, (line, _) in marks.items()}
    for key, new, origin in _environment(environ or {}, findings) + _flags(overrides or {}):
        key = _place(value, key, new, origin, findings)
        document.elsewhere[key] = origin
        origins[".".join(map(str, key))] = origin
    document.value = value
    settings, wrong = examine(document, Settings)
    findings += wrong
    if settings is None or not readable:
        return None, findings
    base, source = ("", None) if path is None else (str(FilePath(path).parent), str(path))
    settings.set_origins(origins, base, source, {key: column for key, (_, column) in marks.items()}, empty=empty)
    return settings, findings


def _read(path: str | FilePath | None, fix: str = "check the name, or run without a file for the defaults") -> Document:
    if path is None:
        return Document("defaults")
    try:
        return read_yaml(str(path), FilePath(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        return Document(str(path), findings=[unread(str(path), error, fix)])


Given = tuple[Path, object, str]


def _step(text: str) -> str | int:
    """One step of a dotted path: a key, or the index of a list."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text


def _environment(environ: Mapping[str, str], findings: list[Finding]) -> list[Given]:
    """The settings in the environment. Only names that begin with a known section, or look like a misspelt setting,
    count, because Kubernetes sets MQGATE_SERVICE_HOST and the like by itself."""
    placed: list[Given] = []
    for name in sorted(environ):
        if not name.startswith(PREFIX):
            continue
        steps = name[len(PREFIX) :].lower().split("__")
        if steps[0] in Settings.model_fields:
            key = tuple(map(_step, steps))
            placed.append((key, read_scalar(environ[name]), f"environment {name}"))
        elif len(steps) > 1:
            fix = did_you_mean(steps[0], Settings.model_fields)
            findings.append(Finding(f"environment {name}", 0, 0, f"`{steps[0]}` is not a section of the settings", fix))
        elif (meant := _meant(Settings, steps[0])) and not environ[name].startswith(_ADDRESSES):
            fix = f"write {PREFIX}{meant.upper()}, with two underscores between section and key"
            findings.append(Finding(f"environment {name}", 0, 0, "no setting has this name", fix))
    return placed


_ADDRESSES = ("tcp://", "udp://", "sctp://")
"""How the variables begin that Kubernetes sets for a service `mqgate-admin`, such as
MQGATE_ADMIN_PORT=tcp://10.0.0.1:9160."""


def _meant(model: type[BaseModel], words: str) -> str | None:
    """The setting that a name with single underscores means: `log_level` is `log__level`."""
    for name, field in model.model_fields.items():
        key = field.alias or name
        place = re.fullmatch(rf"{key}_((?:\d+_)?)(.+)", words)
        if place is None:
            continue
        number, rest = place.groups()
        number = number or ("0_" if get_origin(field.annotation) is list else "")  # of the first listener
        for inner in models_in(field.annotation):
            known = {one.alias or other for other, one in inner.model_fields.items()}
            found = rest if rest in known else _meant(inner, rest)
            if found:
                return f"{key}__{number.replace('_', '__')}{found}"
    return None


def _flags(overrides: Mapping[str, object]) -> list[Given]:
    return [(tuple(map(_step, key.split("."))), value, f"option {key}") for key, value in overrides.items()]


def _place(root: dict[str, Any], key: Path, value: object, origin: str, findings: list[Finding]) -> Path:
    """Set one nested value, and create the mappings above it; returns its path, in which keys are spelled as in the
    file."""
    here: Any = root
    path: list[str | int] = []
    for index, step in enumerate(key):
        following = key[index + 1] if index + 1 < len(key) else None
        if isinstance(here, dict):
            step = _existing(here, str(step))
            if following is not None and not isinstance(here.get(step), dict | list):
                here[step] = _empty(step, index, following)
        elif not isinstance(here, list) or not isinstance(step, int) or step > len(here):
            what = f"there is no `{'.'.join(map(str, key[: index + 1]))}` to set"
            findings.append(Finding(origin, 0, 0, what, "count the entries of a list from 0, without gaps"))
            break
        elif step == len(here):
            here.append({})
        path.append(step)
        if following is None:
            here[step] = value
        here = here[step]
    return tuple(path)


def _existing(mapping: dict[str, Any], step: str) -> str:
    """The key as the file spells it: names in the environment are in upper case."""
    return next((key for key in mapping if key.lower() == step), step)


def _empty(step: str, depth: int, following: str | int) -> Any:
    """The container to create for a key that the file lacks. An override of one value of the default listener keeps
    that listener's other defaults."""
    if not depth and step == "listeners":
        return [{"name": "plain", "port": 1883}]
    return [] if isinstance(following, int) else {}


def _secrets_in(document: Document, value: object, path: Path) -> Iterator[Finding]:
    if isinstance(value, dict):
        for key, inner in value.items():
            here = (*path, key)
            if key == _SECRET and not isinstance(inner, dict):
                fix = "put it into a file of its own and name that in `password_file`"
                yield document.finding(here, "a file of settings contains a password", fix, at_key=True)
            yield from _secrets_in(document, inner, here)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _secrets_in(document, item, (*path, index))


class _AclFile(Part):
    """A file with an access control list."""

    acl: list[AclEntry]


def load_acl(settings: Settings) -> list[AclEntry] | None:
    """The access control list, from its own file if it has one; None: there is no list. Raises ConfigurationError."""
    named = settings.security.acl
    if not isinstance(named, str):
        return named
    document = _acl_document(settings, named)
    file, findings = examine(document, _AclFile)
    if findings or file is None:
        raise ConfigurationError(findings)
    return file.acl


def acl_finding(settings: Settings, entry: int, key: str, what: str, fix: str) -> Finding:
    """A finding at a key of an entry of the access list, which is in the settings or in a file of its own."""
    named = settings.security.acl
    if not isinstance(named, str):
        return settings.finding(f"security.acl.{entry}.{key}", what, fix)
    return _acl_document(settings, named).finding(("acl", entry, key), what, fix)


def _acl_document(settings: Settings, named: str) -> Document:
    document = _read(settings.resolve(named, "security.acl"), "check the name")
    if document.findings:
        raise ConfigurationError(document.findings)
    if isinstance(document.value, list):  # the list alone is as good as a mapping with the list in it
        document.keys = {("acl", *path): mark for path, mark in document.keys.items()}
        document.values = {("acl", *path): mark for path, mark in document.values.items()}
        document.value = {"acl": document.value}
    if not isinstance(document.value, dict):
        raise ConfigurationError([document.finding((), "not a list of entries", "write a list, or `acl:` with one")])
    return document


def display(settings: Settings, *, secrets: bool = False) -> Iterator[tuple[str, object, str]]:
    """(key, value, origin) of every setting, as `mqgate check --settings` shows them. Secrets are masked; with
    `secrets` they are objects that do not reveal their value."""
    yield from _display(settings, settings.model_dump(), "", secrets=secrets)


def _display(settings: Settings, value: object, key: str, *, secrets: bool) -> Iterator[tuple[str, object, str]]:
    if isinstance(value, dict | list) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for name, inner in items:
            yield from _display(settings, inner, f"{key}.{name}" if key else str(name), secrets=secrets)
    else:
        masked = isinstance(value, SecretStr) and not secrets
        yield key, MASK if masked else value, settings.said_by(key)

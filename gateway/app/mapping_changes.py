"""Changes of mapping files from the administration page: checked, written, put into force, and the last twenty kept so
that they can be taken back."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from gateway.app.files.whole_file import written_whole
from gateway.app.mappings import checked_with, gateway_name, mapping_files
from gateway.bridge.rehearsal import run_tests
from gateway.config.model import Settings
from gateway.errors import ConfigurationError, Finding
from gateway.routing.table import Table, compile_mappings
from gateway.rules.mappings import Mappings
from gateway.rules.parse import parse_mappings

KEPT = 20


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one file."""

    number: int
    time: float
    who: str
    file: str
    what: str
    before: str
    after: str


def texts_of(settings: Settings) -> dict[str, str]:
    """The mapping files in their order; without any, there is nothing to change."""
    return {name: Path(name).read_text(encoding="utf-8") for name in mapping_files(settings)}


def parsed_with(settings: Settings, file: str, text: str) -> Mappings:
    """The rules with another text for one of the files. ConfigurationError with every finding."""
    texts = texts_of(settings)
    if file not in texts:
        known = ", ".join(texts) or "none: `mappings` in the settings names them"
        raise ConfigurationError([Finding(file, 1, 1, "is no mapping file of this gateway", f"files: {known}")])
    return checked_with(settings, parse_mappings(list({**texts, file: text}.items())))


def table_with(settings: Settings, file: str, text: str) -> Table:
    """The compiled rules with another text for one of the files."""
    return compile_mappings(parsed_with(settings, file, text), gateway_name(settings))


def check(settings: Settings, file: str, text: str) -> list[Finding]:
    """What is wrong with a text for a file, tests beside the rules included."""
    try:
        return run_tests(parsed_with(settings, file, text))
    except ConfigurationError as error:
        return error.findings


class ChangeHistory:
    """The last changes, a file each in a directory of the data directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "mapping-history"

    def all(self) -> list[Change]:
        """Newest first. A file that is not whole is left out."""
        found = []
        for path in sorted(self._directory.glob("*.json"), reverse=True):
            with suppress(OSError, ValueError, TypeError):
                found.append(Change(**json.loads(path.read_text(encoding="utf-8"))))
        return found

    def add(self, change: Change) -> None:
        """Keep a change; the oldest beyond twenty goes."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        written(self._file(change), json.dumps(asdict(change)))
        for path in sorted(self._directory.glob("*.json"), reverse=True)[KEPT:]:
            path.unlink(missing_ok=True)

    def forget(self, change: Change) -> None:
        """It has never been in force."""
        with suppress(OSError):
            self._file(change).unlink()

    def _file(self, change: Change) -> Path:
        return self._directory / f"{change.number:08}.json"


def written(path: Path, text: str) -> None:
    """Write a file whole or not at all, with the rights that it has."""
    with written_whole(path) as file:
        file.write(text)


def write(settings: Settings, history: ChangeHistory, file: str, text: str, who: str, what: str) -> Change:
    """Check, keep what was, write. ConfigurationError: nothing has changed; OSError: the file cannot be written, and
    nothing has changed either."""
    findings = check(settings, file, text)
    if findings:
        raise ConfigurationError(findings)
    before = Path(file).read_text(encoding="utf-8")
    number = max((one.number for one in history.all()), default=0) + 1
    change = Change(number, time.time(), who, file, what, before, text)
    written(Path(file), text)
    try:
        history.add(change)
    except OSError:
        take_back(history, change)
        raise
    return change


def take_back(history: ChangeHistory, change: Change) -> None:
    """It is not put into force: the file as it was, unless somebody else has written it since."""
    file = Path(change.file)
    if file.read_text(encoding="utf-8") == change.after:
        written(file, change.before)
    history.forget(change)

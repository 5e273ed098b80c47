"""The mapping files: shown, checked as they are typed, put into force, taken back."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from gateway.app.files.reader import Reader
from gateway.app.mapping_changes import Change, ChangeHistory, check, take_back, texts_of, write
from gateway.app.parts import Parts
from gateway.errors import ConfigurationError, Finding
from gateway.net.calls import VIEWER, Answered, Call, Endpoint, Later, Problem, endpoint
from gateway.ports.people import ADMINISTRATOR

MOST = 1 << 20
Reload = Callable[[Callable[[Exception | None], None]], None]
"""Reads all files again, and tells when they are in force, or why they are not."""


def mapping_endpoints(parts: Parts, reload: Reload) -> list[Endpoint]:
    """The endpoints of this module."""
    views = MappingViews(parts, reload)
    return [
        endpoint("GET", "/mapping", VIEWER, views.show),
        endpoint("PUT", "/mapping", ADMINISTRATOR, views.change, most=MOST),
        endpoint("POST", "/mapping/check", VIEWER, views.check, most=MOST),
        endpoint("POST", "/mapping/undo", ADMINISTRATOR, views.undo),
    ]


def finding(one: Finding) -> dict[str, object]:
    """A finding as the API shows it."""
    return {"file": one.file, "line": one.line, "column": one.column, "what": one.what, "fix": one.fix}


def check_reader(reader: Reader) -> None:
    """Problem where so much is asked of it that this has to wait for who asks next."""
    if reader.is_busy:
        raise Problem(503, "Not now", "others have their mappings looked at: try again in some seconds")


class MappingViews:
    """The files of the mapping and their last changes."""

    def __init__(self, parts: Parts, reload: Reload) -> None:
        self._parts = parts
        self._reload = reload
        self._history = ChangeHistory(parts.directory)
        self._under_way = False

    def show(self, call: Call) -> tuple[int, object]:
        """GET /mapping."""
        del call
        return 200, self._read(lambda: (200, self._shown()))

    def _read(self, question: Callable[[], tuple[int, object]]) -> Later:
        check_reader(self._parts.reader)
        return Later(lambda answered: self._parts.reader.ask(question, answered))

    def _shown(self) -> object:
        try:
            texts = texts_of(self._parts.settings)
        except (ConfigurationError, OSError, UnicodeDecodeError) as error:
            raise Problem(409, "Cannot be read", f"the mapping files cannot be read: {error}") from error
        files = [
            {"file": name, "text": text, "writable": os.access(Path(name).parent, os.W_OK)}
            for name, text in texts.items()
        ]
        return {"files": files, "history": [_shown(one) for one in self._history.all()]}

    def check(self, call: Call) -> tuple[int, object]:
        """POST /mapping/check."""
        settings, file, text = self._parts.settings, str(call.body["file"]), str(call.body["text"])
        return 200, self._read(lambda: (200, {"findings": [finding(one) for one in check(settings, file, text)]}))

    def change(self, call: Call) -> tuple[int, object]:
        """PUT /mapping: answered when what the rules consume is open."""
        file, text, what = str(call.body["file"]), str(call.body["text"]), str(call.body.get("what", ""))
        return self._changed(call, lambda: (file, text, what))

    def undo(self, call: Call) -> tuple[int, object]:
        """POST /mapping/undo: the text that a file had before a change."""
        number = call.body["number"]

        def back() -> tuple[str, str, str]:
            change = next((one for one in self._history.all() if one.number == number), None)
            if change is None:
                raise Problem(404, "Not found", "the last twenty changes are kept: there is none with this number")
            return change.file, change.before, f"takes change {change.number} back"

        return self._changed(call, back)

    def _changed(self, call: Call, wanted: Callable[[], tuple[str, str, str]]) -> tuple[int, object]:
        """The file, its new text and why: checked and written by the reader, put into force, and taken back where that
        is refused. One at a time, so that none takes another one's text back."""
        if self._under_way:
            raise Problem(409, "Not now", "another change is just being put into force: look at it, and try again")
        settings, who, reader = self._parts.settings, call.caller.user or call.role, self._parts.reader

        def begin(answered: Answered) -> None:
            self._under_way = True

            def over(answer: tuple[int, object] | Exception) -> None:
                self._under_way = False
                answered(_problem(answer) if isinstance(answer, Exception) else answer)

            def is_written(change: Change | Exception) -> None:
                if isinstance(change, Exception):
                    over(change)
                else:
                    self._reload(lambda error: in_force(change, error))

            def in_force(change: Change, error: Exception | None) -> None:
                if error is not None:
                    reader.ask(lambda: take_back(self._history, change), lambda failed: over(failed or error))
                else:
                    self._parts.consumers.when_open(lambda: over((200, _shown(change))))

            reader.ask(lambda: write(settings, self._history, *_in_order(who, *wanted())), is_written)

        return 200, Later(begin)


def _in_order(who: str, file: str, text: str, what: str) -> tuple[str, str, str, str]:
    return file, text, who, what


def _problem(error: Exception) -> Exception:
    """What was wrong, as it is answered."""
    if isinstance(error, ConfigurationError):
        findings = [finding(one) for one in error.findings]
        return Problem(422, "Not changed", "the old rules stay in force", findings=findings)
    if isinstance(error, OSError):
        why = f"{error.filename or 'the file'}: {error.strerror}: change it where it comes from, and reload"
        return Problem(409, "Cannot be written", why)
    return error


def _shown(one: Change) -> dict[str, object]:
    return {"number": one.number, "time": one.time, "who": one.who, "file": one.file, "what": one.what}

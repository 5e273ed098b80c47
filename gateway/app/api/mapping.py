"""The mapping files: shown, checked as they are typed, put into force, taken back."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from gateway.app.mapping_changes import Change, ChangeHistory, apply, check, texts_of
from gateway.app.parts import Parts
from gateway.errors import ConfigurationError, Finding
from gateway.net.calls import VIEWER, Call, Endpoint, Later, Problem, endpoint
from gateway.ports.people import ADMINISTRATOR

MOST = 1 << 20


def mapping_endpoints(parts: Parts, reload: Callable[[], None]) -> list[Endpoint]:
    """The endpoints of this module."""
    views = MappingViews(parts, reload)
    return [
        endpoint("GET", "/mapping", VIEWER, views.show),
        endpoint("PUT", "/mapping", ADMINISTRATOR, views.change, most=MOST),
        endpoint("POST", "/mapping/check", VIEWER, views.check, most=MOST),
        endpoint("POST", "/mapping/undo", ADMINISTRATOR, views.undo),
    ]


def when_consumed(parts: Parts, answer: object) -> Later:
    """An answer that comes when what new rules consume is open: what is published on it from then on reaches them."""
    return Later(lambda answered: parts.consumers.when_open(lambda: answered((200, answer))))


def finding(one: Finding) -> dict[str, object]:
    """A finding as the API shows it."""
    return {"file": one.file, "line": one.line, "column": one.column, "what": one.what, "fix": one.fix}


class MappingViews:
    """The files of the mapping and their last changes."""

    def __init__(self, parts: Parts, reload: Callable[[], None]) -> None:
        self._parts = parts
        self._reload = reload
        self._history = ChangeHistory(parts.directory)

    def show(self, call: Call) -> tuple[int, object]:
        """GET /mapping."""
        del call
        try:
            texts = texts_of(self._parts.settings)
        except (ConfigurationError, OSError, UnicodeDecodeError) as error:
            raise Problem(409, "Cannot be read", f"the mapping files cannot be read: {error}") from error
        files = [
            {"file": name, "text": text, "writable": os.access(Path(name).parent, os.W_OK)}
            for name, text in texts.items()
        ]
        return 200, {"files": files, "history": [_shown(one) for one in self._history.all()]}

    def check(self, call: Call) -> tuple[int, object]:
        """POST /mapping/check."""
        found = check(self._parts.settings, str(call.body["file"]), str(call.body["text"]))
        return 200, {"findings": [finding(one) for one in found]}

    def change(self, call: Call) -> tuple[int, object]:
        """PUT /mapping: answered when what the rules consume is open."""
        file, text = str(call.body["file"]), str(call.body["text"])
        change = self._apply(call, file, text, str(call.body.get("what", "")))
        return 200, when_consumed(self._parts, _shown(change))

    def undo(self, call: Call) -> tuple[int, object]:
        """POST /mapping/undo: the text that a file had before a change."""
        change = next((one for one in self._history.all() if one.number == call.body["number"]), None)
        if change is None:
            raise Problem(404, "Not found", "the last twenty changes are kept: there is none with this number")
        back = self._apply(call, change.file, change.before, f"takes change {change.number} back")
        return 200, when_consumed(self._parts, _shown(back))

    def _apply(self, call: Call, file: str, text: str, what: str) -> Change:
        try:
            return apply(
                self._parts.settings, self._history, file, text, call.caller.user or call.role, what, self._reload
            )
        except ConfigurationError as error:
            findings = [finding(one) for one in error.findings]
            raise Problem(422, "Not changed", "the old rules stay in force", findings=findings) from error
        except OSError as error:
            why = f"{error.filename or file}: {error.strerror}: change it where it comes from, and reload"
            raise Problem(409, "Cannot be written", why) from error


def _shown(one: Change) -> dict[str, object]:
    return {"number": one.number, "time": one.time, "who": one.who, "file": one.file, "what": one.what}

"""The answer to a text of MQSC commands, with the closing lines of runmqsc. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class MqscReport:
    """The outcome of a text of commands."""

    lines: list[str] = field(default_factory=list)
    read: int = 0
    syntax_errors: int = 0
    failed: int = 0
    problems: list[tuple[int, str]] = field(default_factory=list)
    """Errors, each with the line on which its command begins."""
    most: int = 0
    """The most characters of all lines together; 0: no limit."""
    characters: int = 0
    left_out: int = 0
    """The number of lines that did not fit."""

    def say(self, *lines: str) -> None:
        """Add lines while there is room; count the others."""
        for line in lines:
            self.characters += len(line)
            if self.most and self.characters > self.most:
                self.left_out += 1
            else:
                self.lines.append(line)

    def continued(self) -> MqscReport:
        """Returns a report of the commands that follow, numbered as they will be here."""
        return MqscReport(read=self.read, most=self.most, characters=self.characters, left_out=self.left_out)

    def take(self, more: MqscReport) -> None:
        """Add such a report."""
        self.lines += more.lines
        self.problems += more.problems
        self.syntax_errors += more.syntax_errors
        self.failed += more.failed
        self.read, self.characters, self.left_out = more.read, more.characters, more.left_out

    @property
    def ok(self) -> bool:
        """Whether every command was carried out."""
        return not self.syntax_errors and not self.failed

    def summary(self) -> list[str]:
        """Returns the closing lines of runmqsc."""
        count = "No MQSC commands read." if not self.read else f"{_counted(self.read, 'MQSC command')} read."
        syntax = "No commands have a syntax error."
        if self.syntax_errors:
            verb = "has" if self.syntax_errors == 1 else "have"
            syntax = f"{_counted(self.syntax_errors, 'command')} {verb} a syntax error."
        done = "All valid MQSC commands were processed."
        if self.failed:
            done = f"{_counted(self.failed, 'valid MQSC command')} could not be processed."
        return [count, syntax, done]


def _counted(number: int, what: str) -> str:
    return f"One {what}" if number == 1 else f"{number} {what}s"

"""Parses MQSC text into commands: lines, continuations, comments, quotes. Pure.

A line that ends with `+` continues at the first non-blank character of the next line, one that ends with `-` in its
first column. A `*` in the first column begins a comment. Names are folded to upper case unless they are in quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from gateway.errors import MqgateError


class MqscSyntaxError(MqgateError):
    """A command that cannot be parsed: the line it begins on, its text up to the error, and what is wrong."""

    def __init__(self, line: int, text: str, what: str) -> None:
        super().__init__(
            f"line {line}: AMQ8405I: Syntax error detected at or near end of command segment below:- {text} ({what})"
        )
        self.line = line
        self.text = text
        self.what = what


@dataclass(slots=True)
class Parameter:
    """`KEYWORD`, `KEYWORD(value)` or `KEYWORD(value,value)`; `values` is None where there were no parentheses."""

    keyword: str
    values: list[str] | None = None


@dataclass(slots=True)
class Command:
    """`VERB OBJECT(name) parameters`."""

    line: int
    text: str
    verb: str
    object: str
    name: str
    parameters: list[Parameter] = field(default_factory=list)


ENDS = frozenset({"END", "QUIT", "EXIT"})
"""The last line of a script: what follows is not read."""
_WORD = re.compile(r"\s*([A-Za-z0-9_.$#@%/-]+)")
_OPEN = re.compile(r"\s*\(")
_SPACE = re.compile(r"[\s,]*")
_QUOTED = re.compile(r"'((?:[^']|'')*)'|\"((?:[^\"]|\"\")*)\"")


MOST_CHARACTERS = 32_762
"""The longest command."""


def commands(text: str) -> Iterator[tuple[int, str]]:
    """Yields whole commands, each with the line on which it begins."""
    return (found for found in by_line(text) if found is not None)


_LINE_END = re.compile(r"\r\n?|\n")
"""The only line ends: other characters that end a line elsewhere may occur in a value."""


def by_line(text: str) -> Iterator[tuple[int, str] | None]:
    """The same, with None for each line that does not end a command."""
    begin, parts, fold = 0, "", False
    for number, raw in enumerate(_LINE_END.split(text), 1):
        if _is_comment(raw, parts) or (not parts and not raw.strip()):
            yield None
            continue
        line = raw.lstrip() if fold or not parts else raw
        if not parts:
            begin = number
        line = line.rstrip()
        fold = line.endswith("+")
        if fold or line.endswith("-"):
            parts += line[:-1]
            yield None
            continue
        parts += line
        if parts.strip().rstrip(";").strip().upper() in ENDS:
            return
        if parts.strip().rstrip(";").strip():
            yield begin, parts.strip().rstrip(";").rstrip()
        parts = ""
    if parts.strip() and parts.strip().rstrip(";").strip().upper() not in ENDS:
        yield begin, parts.strip().rstrip(";").rstrip()


def _is_comment(line: str, begun: str) -> bool:
    """Whether a line is a comment. `begun` is the part of a command on the lines before it."""
    if not line.startswith("*") and line.lstrip().startswith("*") and len(begun) <= MOST_CHARACTERS:
        outside = _QUOTED.sub("", begun)
        return outside.count("(") <= outside.count(")") and not set(outside) & {"'", '"'}
    return line.startswith("*")


def parse(line: int, text: str) -> Command:
    """Parse one command. Raises MqscSyntaxError."""
    if len(text) > MOST_CHARACTERS:
        raise MqscSyntaxError(line, text[:80], f"a command has at most {MOST_CHARACTERS} characters")
    reader = _Reader(line, text)
    verb = reader.word("a command").upper()
    kind = reader.word("a type of object", optional=True).upper()
    values = reader.values()
    if values is not None and len(values) > 1:
        raise reader.wrong("one name is expected")
    command = Command(line, text, verb, kind, values[0] if values else "")
    while not reader.at_end():
        keyword = reader.word("a keyword").upper()
        if any(keyword == earlier.keyword for earlier in command.parameters):
            raise reader.wrong(f"{keyword} is given twice")
        command.parameters.append(Parameter(keyword, reader.values(filter_text=keyword == "WHERE")))
    return command


class _Reader:
    """A position in the text of one command."""

    def __init__(self, line: int, text: str) -> None:
        self._line = line
        self._text = text
        self._at = 0

    def wrong(self, what: str) -> MqscSyntaxError:
        """Returns an error at the current position."""
        return MqscSyntaxError(self._line, self._text[: self._at + 20], what)

    def at_end(self) -> bool:
        """Whether only blanks are left."""
        match = _SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return self._at >= len(self._text)

    def word(self, what: str, *, optional: bool = False) -> str:
        """Returns the next keyword; `what` names it if it is missing."""
        match = _WORD.match(self._text, self._at)
        if match is None:
            if optional and self.at_end():
                return ""
            raise self.wrong(f"{what} is expected")
        self._at = match.end()
        return match.group(1)

    def values(self, *, filter_text: bool = False) -> list[str] | None:
        """Returns the values in parentheses; None without parentheses."""
        match = _OPEN.match(self._text, self._at)
        if match is None:
            return None
        self._at = match.end()
        values: list[str] = []
        while True:
            self.at_end()
            if self._text.startswith(")", self._at):
                self._at += 1
                return values
            values.append(self._value(keep_case=filter_text))

    def _value(self, *, keep_case: bool) -> str:
        quoted = _QUOTED.match(self._text, self._at)
        if quoted is not None:
            self._at = quoted.end()
            single, double = quoted.groups()
            inner = single.replace("''", "'") if single is not None else double.replace('""', '"')
            return inner if inner.strip() else ""
        value = self._bare()
        return value if keep_case else value.upper()

    def _bare(self) -> str:
        """Returns an unquoted value; parentheses inside belong to it when they match, as in CONNAME(host(1414))."""
        begin, depth = self._at, 0
        while self._at < len(self._text):
            character = self._text[self._at]
            if character == "(":
                depth += 1
            elif character == ")":
                if not depth:
                    break
                depth -= 1
            elif (character in ", \t\n" and not depth) or character == "'":
                break
            self._at += 1
        if self._at == begin or depth or self._at >= len(self._text):
            raise self.wrong("a closing parenthesis is expected")
        return self._text[begin : self._at]

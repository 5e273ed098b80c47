"""How much a `pattern` of a JSON Schema may cost. Pure.

Matching takes time in proportion to the length of the string and to the number of places in the pattern that may be
looked for at once: `(a{1,500}){1,100}b` has 50,000, and 100 KB take it minutes. The matcher writes counted repetitions
out, so that nested ones multiply.
"""

from __future__ import annotations

import re
from typing import Any

from gateway.config.units import Wrong

MOST = 10_000
"""How many places a pattern may have."""
FREE = 100
"""This many places cost nothing worth mentioning."""
BUDGET = 10_000_000
"""Places times characters; takes about a second at most."""
_COUNTED = re.compile(r"\{(\d+)(,?)(\d*)\}")
_NAMED = re.compile(r"\\[pPxu]\{[^}]*\}")
_DATA = frozenset({"const", "default", "enum", "examples"})
"""Keywords whose values are not schemas."""


class _Group:
    __slots__ = ("counted", "places")

    def __init__(self) -> None:
        self.places = self.counted = 0


def weight(pattern: str) -> int:
    """How many places a pattern has, with counted repetitions written out; 0 if at most one of these is followed at
    once, as in `^.{1,5000}$`."""
    groups = [_Group()]
    last, last_counted, at, nested, repetitions = 0, 0, 0, False, 0
    while at < len(pattern):
        one, here = pattern[at], groups[-1]
        found = _COUNTED.match(pattern, at)
        if found is not None:
            times = max(1, int(found[1][:9]), int(found[3][:9] or 0))
            nested = nested or last_counted > 0
            here.places += last * (times - 1)
            here.counted += 1
            repetitions += 1
            last = last * times
            at = found.end()
            continue
        at = _end_of_atom(pattern, at)
        if one == "(":
            groups.append(_Group())
        elif one == ")" and len(groups) > 1:
            groups.pop()
            last, last_counted = max(here.places, 1), here.counted
            groups[-1].places += last
            groups[-1].counted += last_counted
        elif one in "*+":
            nested = nested or last_counted > 0
        elif one not in "?|^$":
            last, last_counted = 1, 0
            here.places += 1
    simple = pattern.startswith("^") and "|" not in pattern and repetitions <= 1 and not nested
    return 0 if simple else sum(group.places for group in groups)


def _end_of_atom(pattern: str, at: int) -> int:
    """The offset after a character, an escape sequence or a character class."""
    if pattern[at] == "\\":
        named = _NAMED.match(pattern, at)
        return named.end() if named is not None else at + 2
    if pattern[at] != "[":
        return at + 1
    depth, end = 0, at
    while end < len(pattern):
        if pattern[end] == "\\":
            end += 1
        elif pattern[end] == "[":
            depth += 1
        elif pattern[end] == "]" and end > at + 1:
            depth -= 1
            if not depth:
                return end + 1
        end += 1
    return len(pattern)


def bounded(schema: Any) -> Any:
    """The schema, changed so that the length of strings is checked before a costly pattern. Raises Wrong if a pattern
    is too costly in any case."""
    if isinstance(schema, list):
        return [bounded(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: value if key in _DATA else bounded(value) for key, value in schema.items()}
    names = schema.get("patternProperties")
    for name in names if isinstance(names, dict) else ():
        if weight(name) > FREE:
            raise _too_much(name)
    pattern = schema.get("pattern")
    places = weight(pattern) if isinstance(pattern, str) else 0
    if places > MOST:
        raise _too_much(str(pattern))
    if places > FREE:
        first = made.get("allOf")
        made["allOf"] = [
            *(first if isinstance(first, list) else ()),
            {"maxLength": BUDGET // places},
            {"pattern": pattern},
        ]
        del made["pattern"]
    return made


def _too_much(pattern: str) -> Wrong:
    return Wrong(
        f"the pattern {pattern[:80]!r} nests large repetitions: a long string would take minutes to match",
        "use smaller counts in it, or limit the length by maxLength instead",
    )

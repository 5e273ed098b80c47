"""Values that people write with a unit, durations (`10s`, `5m`, `7d`) and sizes (`1MiB`), and the error about a wrong
value.

Durations become seconds as floats, sizes whole bytes. Nothing else is interpreted here.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_BYTES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BYTES |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40, "K": 2**10, "M": 2**20, "G": 2**30}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")

LARGEST = 10**18
"""The largest count or number of bytes: counters have 64 bits, and limits are added up."""
LONGEST = 100 * 366 * 86400.0
"""The longest duration: it is added to the time of the clock."""

DURATION_PATTERN = r"^(\d+(\.\d+)?\s*(ms|s|m|h|d|w)\s*)+$"
SIZE_PATTERN = r"^\d+(\.\d+)?\s*([Bb]|[KMGTkmgt][Ii]?[Bb]|[KMGkmg])?$"


class Wrong(ValueError):
    """A wrong value: what is wrong, and what to write instead."""

    def __init__(
        self, what: str, fix: str = "", at: tuple[str | int, ...] = (), *, reads: tuple[str, ...] = ()
    ) -> None:
        """`at`: the path that leads to the value from where the error was found; `reads`: the other keys there that it
        was concluded from."""
        super().__init__(f"{what}: {fix}" if fix else what)
        self.at = at
        self.reads = reads
        self.what = what
        self.fix = fix


class Contradictions(ValueError):
    """Values that are right by themselves, but contradict each other."""

    def __init__(self, found: list[Wrong]) -> None:
        super().__init__("; ".join(map(str, found)))
        self.found = found


def parse_duration(value: object) -> float:
    """`1h30m` to 5400.0; a bare number is in seconds. Raises Wrong."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
        return _not_longer(value)
    text = value.strip() if isinstance(value, str) else ""
    parts = _DURATION.findall(text)
    if not parts or _DURATION.sub("", text).strip():
        raise Wrong(f"{value!r} is not a duration", "write a number and ms, s, m, h, d or w, as in 10s, 1h30m or 7d")
    return _not_longer(sum(float(number) * _SECONDS[unit] for number, unit in parts))


def _not_longer(seconds: float) -> float:
    if seconds > LONGEST:
        raise Wrong("the duration is too long", f"write at most {show_duration(LONGEST)}")
    return float(seconds)


def parse_size(value: object) -> int:
    """`1MiB` to 1048576; a bare number is in bytes. Raises Wrong."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return _not_larger(value)
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    unit = _BYTES.get(match[2].upper()) if match else None
    if match is None or unit is None:
        raise Wrong(f"{value!r} is not a size", "write a number of bytes, or KiB, MiB, GiB as in 1MiB")
    size = float(match[1]) * unit
    return _not_larger(int(min(size, 2.0 * LARGEST)))


def _not_larger(number: int) -> int:
    if number > LARGEST:
        raise Wrong("the number is too large", f"write at most {LARGEST}")
    return number


def show_duration(seconds: float) -> str:
    """The shortest way to write a duration."""
    for unit in ("w", "d", "h", "m"):
        if seconds and not seconds % _SECONDS[unit]:
            return f"{int(seconds // _SECONDS[unit])}{unit}"
    if seconds == int(seconds):
        return f"{int(seconds)}s"
    return f"{seconds * 1000:.15g}ms"


def show_size(size: int) -> str:
    """The shortest exact way to write a size."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size and not size % factor:
            return f"{size // factor}{unit}"
    return str(size)


def _one_of(pattern: str, number: str, what: str) -> WithJsonSchema:
    choices = [{"type": "string", "pattern": pattern}, {"type": number, "minimum": 0}]
    return WithJsonSchema({"anyOf": choices, "description": what})


Duration = Annotated[
    float, BeforeValidator(parse_duration), _one_of(DURATION_PATTERN, "number", "a duration: 10s, 5m, 1h30m, 7d")
]
Positive = Annotated[int, Field(ge=1), AfterValidator(_not_larger)]
Count = Annotated[int, Field(ge=0), AfterValidator(_not_larger)]
Size = Annotated[int, BeforeValidator(parse_size), _one_of(SIZE_PATTERN, "integer", "a size: 64KiB, 1MiB, 2GiB")]

"""What all of Amlen's objects have in common: objects by kind and name, lists as text with commas, sizes."""

from __future__ import annotations

from typing import Any

Objects = dict[str, Any]
_UNITS = {"KB": 2**10, "K": 2**10, "MB": 2**20, "M": 2**20}


def of_kind(found: Objects, kind: str) -> dict[str, dict[str, Any]]:
    """Returns the objects of a kind by name; lists are written with commas, as Amlen writes them."""
    value = found.get(kind)
    if not isinstance(value, dict):
        return {}
    objects = {name: one for name, one in value.items() if isinstance(one, dict)}
    return {name: {key: _plain(each) for key, each in one.items()} for name, one in objects.items()}


def _plain(value: object) -> object:
    return ",".join(map(str, value)) if isinstance(value, (list, dict)) else value


def number_of(value: object) -> int | None:
    """Returns a number, or the text of one."""
    text = str(value).strip()
    return int(text) if text.isascii() and text.isdigit() else None


def words(value: object) -> list[str]:
    """Returns the parts of a list that is written with commas; empty and missing filters have none."""
    return [one.strip() for one in str(value or "").split(",") if one.strip()]


def size_of(value: object) -> int | None:
    """Returns a size such as `4MB` or `1024KB` in bytes."""
    text = str(value or "").strip().upper()
    for unit, factor in _UNITS.items():
        if text.endswith(unit) and text.removesuffix(unit).strip().isdigit():
            return int(text.removesuffix(unit)) * factor
    return int(text) if text.isdigit() and int(text) else None

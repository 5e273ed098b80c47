"""Converts mosquitto's access list to entries of `security.acl`.

There, what no line mentions is denied; a user's denials, then his permissions, then the patterns decide. Here, the
first entry that says anything about an action decides, and within it denials come first. One entry for each user, then
one for the patterns, is therefore the same.
"""

from __future__ import annotations

from typing import Any

from gateway.migrate.plan import DENY_ALL, Plan

_KEYS = {"read": "subscribe", "write": "publish", "readwrite": "allow", "deny": "deny"}


def read_acl(plan: Plan, file: str, text: str) -> list[dict[str, Any]]:
    """Returns the entries of an access list, never empty."""
    anonymous: dict[str, Any] = {"anonymous": True}
    users: dict[str, dict[str, Any]] = {}
    patterns: dict[str, Any] = {}
    current: dict[str, Any] | None = anonymous
    for number, line in enumerate(text.splitlines(), 1):
        word, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        if not word or word.startswith("#"):
            continue
        if word == "user":
            current = _user(plan, users, file, number, rest)
        elif word in {"topic", "pattern"}:
            entry = patterns if word == "pattern" else current
            if entry is not None:
                _add(plan, entry, file, number, rest, pattern=word == "pattern")
        else:
            plan.say(file, number, f"{word}: not a line of an access list")
    found = [anonymous, *users.values(), patterns]
    said = set(_KEYS.values())
    return [entry for entry in found if said & set(entry)] or [DENY_ALL]


def _user(plan: Plan, users: dict[str, dict[str, Any]], file: str, number: int, name: str) -> dict[str, Any] | None:
    """Returns the entry of a user. Names with * and ? would match more than one user here."""
    if "*" in name or "?" in name:
        plan.say(file, number, f"user {name}: * and ? stand for any characters here; the user's lines are left out")
        return None
    return users.setdefault(name, {"user": name})


def _add(plan: Plan, entry: dict[str, Any], file: str, number: int, rest: str, *, pattern: bool) -> None:
    access, _, topic = rest.partition(" ")
    if access not in _KEYS:
        access, topic = "readwrite", rest
    filter_ = topic.strip()
    if pattern:
        filter_ = filter_.replace("%c", "\0c").replace("%u", "\0u")
    if "{" in filter_ or "}" in filter_:
        if access != "deny":
            plan.say(file, number, f"{rest}: braces cannot be written in a filter here; the line is left out")
            return
        filter_ = "/".join("+" if "{" in level or "}" in level else level for level in filter_.split("/"))
        plan.say(file, number, f"{rest}: braces cannot be written in a filter here; {filter_} is denied")
    filter_ = filter_.replace("\0c", "{client}").replace("\0u", "{user}")
    if not _valid(filter_):
        plan.say(file, number, f"{rest}: not a topic filter; the line is left out")
        return
    found = entry.setdefault(_KEYS[access], [])
    if filter_ not in found:
        found.append(filter_)


def _valid(filter_: str) -> bool:
    *parents, last = filter_.split("/")
    return bool(filter_) and not (
        any("#" in level or ("+" in level and level != "+") for level in parents)
        or ("#" in last and last != "#")
        or ("+" in last and last != "+")
    )

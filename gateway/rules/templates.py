"""Templates: text with `{placeholders}`, and the names that may be made from them.

A template is parsed once into literal parts and slots; rendering asks a scope for each slot's value. Queue names are
confined: what a hostile topic level could produce (a name that MQ does not allow, another name component, a system
queue) is refused, never repaired.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from gateway.config.findings import did_you_mean
from gateway.config.units import Wrong
from gateway.errors import Refused
from gateway.mqtt.topics import NOBODYS
from gateway.ports import state_queues
from gateway.rules.feedback import Feedback

Value = str | int | float | bool | bytes | None
Scope = Callable[["Slot"], Value]

PLAIN = ("client", "user", "user_or_client", "topic", "qos", "retained", "listener", "received_at", "packet_id")
FOLDERS = ("property", "json")
OUTBOUND_PLAIN = ("queue",)
OUTBOUND_FOLDERS = ("usr", "mqps", "mqtt", "mcd", "jms", "md", "xqh", "json")
FIELDS = {
    "md": (
        "MsgId", "CorrelId", "CorrelIdText", "GroupId", "ReplyToQ", "ReplyToQMgr", "UserIdentifier", "Format",
        "ApplIdentityData", "PutApplName", "PutDate", "PutTime", "Priority", "Feedback", "MsgType", "Persistence",
        "BackoutCount", "MsgSeqNumber", "MsgFlags", "Report",
    ),
    "xqh": ("RemoteQName", "RemoteQMgrName"),
}  # fmt: skip
"""Folders that MQ defines: their names are fixed."""
PER_MESSAGE = {"received_at", "packet_id", "json"}
"""Slots whose value differs between two publications with the same topic, client, flags and properties."""
TYPES = ("string", "int", "float", "bool", "bytes")
CASES = ("asis", "upper", "lower", "safe")

_SLOT = re.compile(r"\{([^{}]*)\}")
_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_LEVEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_COMPONENT = re.compile(r"[A-Za-z0-9_%]+\Z")
_NAME = re.compile(r"[A-Za-z0-9./_%]{1,48}\Z")
RESERVED = ("SYSTEM.", state_queues.PREFIX, "AMQ.")


@dataclass(frozen=True, slots=True)
class Slot:
    """One placeholder: the kind of its source (`kind`), the name of its value there (`name`), and how the value is
    written."""

    kind: str
    name: str = ""
    type: str = ""
    case: str = ""

    def __str__(self) -> str:
        if self.kind in ("level", "rest"):
            return self.name
        return f"{self.kind}.{self.name}" if self.name else self.kind


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template. `constant` is its text if it has no slots."""

    text: str
    parts: tuple[str | Slot, ...]
    slots: tuple[Slot, ...] = field(init=False, repr=False, compare=False)
    per_message: bool = field(init=False, repr=False, compare=False)
    """Whether the value of a slot differs between publications of one origin."""

    def __post_init__(self) -> None:
        slots = tuple(part for part in self.parts if isinstance(part, Slot))
        object.__setattr__(self, "slots", slots)
        object.__setattr__(self, "per_message", any(slot.kind in PER_MESSAGE for slot in slots))

    @property
    def constant(self) -> str | None:
        return "".join(map(str, self.parts)) if not self.slots else None


def parse_template(
    text: str, levels: Sequence[str] = (), plain: Sequence[str] = PLAIN, folders: Sequence[str] = FOLDERS
) -> Template:
    """Parse `text`; `levels` are the names that the topic pattern of its rule captures (`rest*` with its star). Raises
    Wrong."""
    return _parsed(text, tuple(levels), tuple(plain), tuple(folders))


@lru_cache(maxsize=16384)
def _parsed(text: str, levels: tuple[str, ...], plain: tuple[str, ...], folders: tuple[str, ...]) -> Template:
    known = ({name: "rest" if name.endswith("*") else "level" for name in levels}, plain, folders)
    return Template(text, tuple(piece if isinstance(piece, str) else _slot(piece[0], known) for piece in _pieces(text)))


Known = tuple[dict[str, str], Sequence[str], Sequence[str]]


def _pieces(text: str) -> Iterator[str | tuple[str]]:
    """Yield literal pieces as text and placeholders as tuples; `{{` and `}}` are braces."""
    literal, at = "", 0
    for match in _TOKEN.finditer(text):
        literal += text[at : match.start()]
        at = match.end()
        if match[0] in ("{{", "}}"):
            literal += match[0][0]
            continue
        if match[1] is None:
            raise Wrong(f"a brace in `{text}` has no partner", "write {{ or }} for a brace itself")
        if literal:
            yield literal
        literal = ""
        yield (match[1].strip(),)
    if literal + text[at:]:
        yield literal + text[at:]


def _slot(inside: str, known: Known) -> Slot:
    levels, plain, folders = known
    source, _, suffix = inside.partition(":")
    if suffix and suffix not in TYPES + CASES:
        raise Wrong(f"`{{{inside}}}` has an unknown type", f"write one of {', '.join(TYPES + CASES)} after the colon")
    kind, name = _source(source, levels, plain, folders)
    if kind in FIELDS and name not in FIELDS[kind]:
        raise Wrong(f"`{{{inside}}}` is not known", did_you_mean(name, FIELDS[kind]))
    if not kind:
        names = [name.rstrip("*") for name in levels] + list(plain) + [f"{folder}.x" for folder in folders]
        raise Wrong(f"`{{{inside}}}` is not known", f"known here: {', '.join(names)}")
    return Slot(kind, name, suffix if suffix in TYPES else "", suffix if suffix in CASES else "")


def _source(source: str, levels: dict[str, str], plain: Sequence[str], folders: Sequence[str]) -> tuple[str, str]:
    """Where a slot's value comes from: (kind, name), or two empty strings when nothing is called that."""
    base = source.removesuffix("*")
    for name in (base, base + "*"):
        if name in levels:
            return levels[name], base
    if source in plain:
        return source, ""
    folder, _, name = source.partition(".")
    return (folder, name) if name and folder in folders else ("", "")


def render(template: Template, scope: Scope) -> str:
    """The text of a template. Raises Refused if a slot has no value."""
    return "".join(part if isinstance(part, str) else text_of(part, scope(part)) for part in template.parts)


def text_of(slot: Slot, value: Value) -> str:
    """The value of a slot as it is written within a text. Raises Refused if there is none."""
    if value is None:
        raise Refused(f"no value for {{{slot}}}", Feedback.VALUE_MISSING)
    return _cased(shown(value), slot.case)


def shown(value: Value) -> str:
    """A value as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _cased(text: str, case: str) -> str:
    if case in ("", "asis"):
        return text
    if case == "safe":
        return re.sub(r"[^A-Za-z0-9_]", "_", text)
    return text.upper() if case == "upper" else text.lower()


def render_value(template: Template, scope: Scope, type_name: str = "") -> Value:
    """The value of a template with its type: a template of one slot keeps the type of its value. None if an optional
    value (one slot alone) is absent."""
    if len(template.parts) == 1 and isinstance(template.parts[0], Slot):
        slot = template.parts[0]
        value = scope(slot)
        if slot.case and value is not None:
            value = _cased(shown(value), slot.case)
        return None if value is None else to_type(value, type_name or slot.type, str(slot))
    return to_type(render(template, scope), type_name, template.text)


def to_type(value: Value, type_name: str, what: str) -> Value:
    """`value` as the type that a rule asks for. Raises Refused if it cannot be one."""
    try:
        return _CONVERT[type_name](value) if type_name else value
    except (ValueError, TypeError, KeyError, OverflowError):
        raise Refused(f"{{{what}}} is not of type {type_name}", Feedback.VALUE_NOT_VALID) from None


def _to_int(value: Value) -> int:
    if isinstance(value, str) and not re.fullmatch(r"[-+]?[0-9]{1,19}", value, re.ASCII):
        raise ValueError
    if isinstance(value, float) and not value.is_integer():
        raise ValueError
    number = int(value)  # type: ignore[arg-type]
    if not -(2**63) <= number < 2**63:
        raise ValueError
    return number


def _to_float(value: Value) -> float:
    if isinstance(value, str) and not re.fullmatch(r"[-+]?[0-9.]{1,40}(?:[eE][-+]?[0-9]{1,3})?", value, re.ASCII):
        raise ValueError
    return float(value)  # type: ignore[arg-type]


_BOOLEANS = {"true": True, "1": True, "on": True, "yes": True, "false": False, "0": False, "off": False, "no": False}

_CONVERT: dict[str, Callable[[Value], Value]] = {
    "string": shown,
    "int": _to_int,
    "float": _to_float,
    "bool": lambda value: _BOOLEANS[shown(value).lower()],
    "bytes": lambda value: value if isinstance(value, bytes) else shown(value).encode(),
}


def render_queue(template: Template, scope: Scope, allowed: Sequence[str] = ()) -> str:
    """A queue (or queue manager) name that the rule's author has allowed. Raises Refused for any other."""
    if template.constant is not None:
        return template.constant
    name = "".join(part if isinstance(part, str) else _component(part, scope) for part in template.parts)
    if not _NAME.match(name):
        raise Refused(f"`{name[:60]}` is longer than the 48 characters of an MQ name", Feedback.NAME_NOT_VALID)
    if any(name.upper().startswith(word) and not _literal_start(template, word) for word in RESERVED):
        raise Refused(f"`{name}` is a system queue", Feedback.NAME_NOT_VALID)
    if allowed and not any(fnmatch.fnmatchcase(name, pattern) for pattern in allowed):
        raise Refused(f"`{name}` is not among the rule's allowed_queues", Feedback.NAME_NOT_VALID)
    return name


def as_far_as_known(template: Template, scope: Scope, *, names: bool) -> str:
    """The text of a template in which placeholders without a fitting value stay as they are written. `names`: the text
    is an MQ name."""

    def piece(part: str | Slot) -> str:
        if isinstance(part, str):
            return part
        try:
            return _component(part, scope) if names else render(Template("", (part,)), scope)
        except Refused:
            return f"{{{part}{':' + part.case if part.case else ''}}}"

    return "".join(map(piece, template.parts))


def _literal_start(template: Template, word: str) -> bool:
    first = template.parts[0]
    return isinstance(first, str) and first.upper().startswith(word)


def _component(slot: Slot, scope: Scope) -> str:
    """A value as one component of a name. Raises Refused if it is empty or has a dot, a slash or a character that MQ
    does not allow."""
    value = scope(slot)
    if value is None:
        raise Refused(f"no value for {{{slot}}}", Feedback.VALUE_MISSING)
    text = shown(value) if slot.case != "safe" else _cased(shown(value), "safe")
    pieces = text.split("/") if slot.kind == "rest" else [text]
    for piece in pieces:  # checked before capitals are made: MQ allows those of `ß`
        if not _COMPONENT.match(piece):
            wrong = next((f"its {letter!r}" for letter in piece if not _COMPONENT.match(letter)), "its length")
            what = f"{{{slot}}} is {text[:60]!r}, which cannot be part of an MQ name for {wrong}"
            raise Refused(what, Feedback.NAME_NOT_VALID)
    return _cased(".".join(pieces), slot.case if slot.case in ("asis", "lower") else "upper")


def check_name(text: str, what: str = "queue") -> None:
    """Raise Wrong unless `text` is an MQ object name."""
    if not _NAME.match(text):
        raise Wrong(f"`{text}` is not an MQ {what} name", "use 1 to 48 of A-Z a-z 0-9 . / _ %")


def parse_pattern(text: str) -> tuple[tuple[str, ...], tuple[tuple[int, str], ...]]:
    """Parse a topic pattern into the levels of an MQTT filter and the captured levels (index, name); the name of a rest
    ends in `*`. Raises Wrong."""
    levels: list[str] = []
    names: list[tuple[int, str]] = []
    parts = text.split("/")
    if not text or "\0" in text or len(text.encode()) > 65535:
        raise Wrong("a topic pattern is 1 to 65535 bytes without NUL", "write a topic such as plant/{site}/temperature")
    if text.startswith(NOBODYS):
        raise Wrong(f"nobody may publish on `{text}`", "choose a topic that is not below `$SYS/` and `$share/`")
    for index, part in enumerate(parts):
        level, name = _pattern_level(part, last=index == len(parts) - 1)
        levels.append(level)
        if name:
            names.append((index, name))
    if len({name.rstrip("*") for _, name in names}) < len(names):
        raise Wrong(f"a name occurs twice in `{text}`", "give each level its own name")
    return tuple(levels), tuple(names)


def _pattern_level(part: str, *, last: bool) -> tuple[str, str]:
    if part == "#" and not last:
        raise Wrong("`#` stands before another level", "use it as the last level only")
    if part in ("+", "#"):
        return part, ""
    match = _SLOT.fullmatch(part)
    if match is None:
        if any(character in part for character in "{}+#"):
            raise Wrong(f"`{part}` mixes text and placeholder", "a placeholder or wildcard is a whole level")
        return part, ""
    name = match[1]
    if name.endswith("*") and not last:
        raise Wrong(f"`{part}` takes the rest but stands before another level", "use it as the last level only")
    if not _LEVEL.match(name.removesuffix("*")) or (name.removesuffix("*") in PLAIN and name != "topic*"):
        raise Wrong(f"`{part}` is not a usable name", f"use letters, digits and _, but none of {', '.join(PLAIN)}")
    return ("#" if name.endswith("*") else "+"), name

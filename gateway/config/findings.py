"""Validation errors as findings: where, what, and what to write instead. Knows pydantic, but none of the models."""

from __future__ import annotations

import copy
import difflib
import inspect
import re
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, model_validator

from gateway.config.source import Document, Path
from gateway.config.units import LARGEST, Contradictions, Wrong
from gateway.errors import Finding


class Part(BaseModel):
    """A mapping of a configuration file: unknown keys are refused, and it is frozen once read."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, coerce_numbers_to_str=True, hide_input_in_errors=True,
        defer_build=True,  # the whole is built when it is first used; each part by itself takes longer than that
    )  # fmt: skip
    other_names: ClassVar[dict[str, str]] = {}
    """Wrong names that people write, such as that of a command line option or another program's word, and the keys they
    mean."""


def contradictions(said: Callable[[Any], Iterator[Wrong]]) -> Any:
    """Make a method of a part that yields which of its values contradict each other; all of them become findings. Each
    part has only one, because after one that has found something pydantic calls no other."""

    def check(part: Part, info: ValidationInfo) -> Part:
        known: Callable[[Wrong], bool] = info.context or (lambda _: False)
        found = [wrong for wrong in said(part) if not known(wrong)]
        if found:
            raise Contradictions(found)
        return part

    return model_validator(mode="after")(check)


def wrong_of(check: Callable[..., object], *values: object, **options: object) -> list[Wrong]:
    """The problem that a check raises about these values, if it raises one."""
    try:
        check(*values, **options)
    except ValueError as error:
        return [error if isinstance(error, Wrong) else Wrong(str(error))]
    return []


_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "list": "a list",
    "tuple": "a list",
    "dict": "a mapping (key: value)",
    "model": "a mapping (key: value)",
    "model_attributes": "a mapping (key: value)",
}
_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint at the nearest known word, or the known words if none is near."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if not near:
        near = [name for name in names if name.lower() == word.lower()]
    return f"did you mean `{near[0]}`?" if near else f"known here: {', '.join(names)}"


class Placed(typing.NamedTuple):
    """A finding, and the part of the value it is about."""

    path: Path
    finding: Finding
    contradiction: Wrong | None
    """Set if the values of this part contradict each other."""
    concluded: tuple[Path, ...]
    """The other values that the contradiction was concluded from: if one of them is wrong, it may not hold."""


def describe(error: ValidationError, document: Document, model: type[BaseModel]) -> list[Finding]:
    """The errors of a validation as findings, one per place, in the order of the text."""
    found = [one.finding for one in placed(error, document, model)]
    return sorted(found, key=lambda finding: (finding.line, finding.column))


def placed(error: ValidationError, document: Document, model: type[BaseModel]) -> list[Placed]:
    """The errors of a validation as findings with their paths, one per place."""
    items = [(_place_of(document.value, item), item) for item in _each(error)]
    above = {path[:length] for path, item in items for length in range(len(path))}
    above |= {path for path, item in items if _apart(item)}
    places: dict[tuple[Path, str], tuple[str, list[str]]] = {}
    keys: set[Path] = set()
    contradicting: dict[tuple[Path, str], tuple[Wrong, tuple[Path, ...]]] = {}
    for path, item in items:
        if path in above and not _apart(item):
            continue  # one of several types; another one fits, except for an error further in
        what, fix = _text(item, path, model)
        if item["type"] == "extra_forbidden":
            keys.add(path)
        if item["type"] == _CONTRADICTION:
            contradicting[path, what] = (item["ctx"]["error"], _concluded(document.value, item))
        # A value may be wrong for each of several types; a mapping may lack several keys.
        _, fixes = places.setdefault((path, what if _apart(item) else ""), (what, []))
        if fix and fix not in fixes:
            fixes.append(fix)
    return [
        Placed(
            path,
            document.finding(path, what, _joined(fixes), at_key=path in keys),
            *contradicting.get((path, what), (None, ())),
        )
        for (path, _), (what, fixes) in places.items()
    ]


def _each(error: ValidationError) -> Iterator[Any]:
    """Yield the errors, with each contradiction by itself."""
    for item in error.errors(include_url=False):
        several = item.get("ctx", {}).get("error")
        if isinstance(several, Contradictions):
            yield from ({**item, "type": _CONTRADICTION, "ctx": {"error": wrong}} for wrong in several.found)
        else:
            yield item


def _apart(item: Any) -> bool:
    """Whether there may be several errors of its kind at one place."""
    return item["type"] in _ABOUT_KEYS or item["type"] == _CONTRADICTION


def _concluded(value: Any, item: Any) -> tuple[Path, ...]:
    return tuple((*_path_in(value, item["loc"]), key) for key in item["ctx"]["error"].reads)


_CONTRADICTION = "contradiction"
_ABOUT_KEYS = {"extra_forbidden", "missing"}


def _joined(fixes: list[str]) -> str:
    """The alternatives in one sentence."""
    near = [fix for fix in fixes if fix.startswith("did you mean")]
    if near:
        return near[0]
    plain = [fix.removeprefix("write ") for fix in fixes if fix.startswith("write ")]
    others = [fix for fix in fixes if not fix.startswith("write ")]
    return ", ".join(others + (["write " + " or ".join(dict.fromkeys(plain))] if plain else []))


def wrong_paths(error: ValidationError, value: Any) -> list[Path]:
    """The paths of the errors; a missing key has none."""
    return [_path_in(value, item["loc"]) for item in error.errors(include_url=False) if item["type"] != "missing"]


def _place_of(value: Any, item: Any) -> Path:
    wrong = item.get("ctx", {}).get("error")
    return _path_in(value, (*item["loc"], *wrong.at) if isinstance(wrong, Wrong) else item["loc"])


def left_out(value: Any, paths: Iterable[Path]) -> Any:
    """A copy of the value without these parts. A single entry is not left out of a list, as the others would change
    places."""
    left = copy.deepcopy(value)
    for path in sorted(paths, key=len, reverse=True):
        _leave_out(left, path)
    return left


def _leave_out(value: Any, path: Path) -> None:
    while path and not isinstance(path[-1], str):
        path = path[:-1]
    for step in path[:-1]:
        inside = isinstance(value, dict) and step in value
        inside = inside or (isinstance(value, list) and isinstance(step, int) and step < len(value))
        value = value[step] if inside else None
    if path and isinstance(value, dict):
        value.pop(path[-1], None)


def _path_in(value: Any, loc: Iterable[str | int]) -> Path:
    """The location without the parts that name a member of a union instead of a key of the text."""
    path: list[str | int] = []
    for part in loc:
        if isinstance(value, dict) and part in value:
            value = value[str(part)]
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            continue
        path.append(part)
    return tuple(path)


def _text(item: Any, path: Path, model: type[BaseModel]) -> tuple[str, str]:
    kind, loc, context = item["type"], item["loc"], item.get("ctx", {})
    key = next((part for part in reversed(path) if isinstance(part, str)), "")
    if kind == "extra_forbidden":
        fix = _instead(str(loc[-1]), _models_at(model, loc))
        if item.get("input") is None and fix.startswith("known"):
            fix = f"{_quoted({str(loc[-1]): None})} where a placeholder is meant; {fix}"
        return f"`{loc[-1]}` is not a known key", fix
    if kind == "missing":
        return f"`{loc[-1]}` is missing", "add it"
    wrong = context.get("error")
    if isinstance(wrong, Wrong):
        return wrong.what, wrong.fix
    if kind in ("literal_error", "enum"):
        return f"{item.get('input')!r} is not allowed for `{key}`", _choices(item, context)
    if kind == "string_pattern_mismatch":
        return f"`{key}` is not written as it must be", f"write text like {context['pattern']}"
    if kind == "string_too_short":
        return f"`{key}` is empty", "write at least one character"
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return f"`{key}` is out of range", f"write a number of {words} {context[name]}"
    if kind in ("int_parsing_size", "finite_number"):
        return f"`{key}` is out of range", f"write at most {LARGEST}"
    expected = _EXPECTED.get(re.sub(r"_(type|parsing|from_float)$", "", kind))
    if expected:
        fix = _quoted(item.get("input")) if expected == "text" else ""
        return f"`{key}` has the wrong type" if key else "wrong type", fix or f"write {expected}"
    said = item["msg"].removeprefix("Value error, ")
    return f"`{key}`: {said}" if key else said, ""


def _instead(key: str, models: list[type[BaseModel]]) -> str:
    """A hint at the key that is probably meant, or the known keys."""
    for one in models:
        other = one.other_names.get(key) if issubclass(one, Part) else None
        if other is not None:
            return f"did you mean `{other}`?"
    return did_you_mean(key, {field.alias or name for one in models for name, field in one.model_fields.items()})


def _quoted(value: Any) -> str:
    """What to write instead of `{site}`, which YAML reads as a mapping."""
    names = list(value) if isinstance(value, dict) else []
    return f'quote it: "{{{names[0]}}}"' if len(names) == 1 and value[names[0]] is None else ""


def _choices(item: Any, context: dict[str, Any]) -> str:
    allowed = [one.strip("' ") for one in re.split(r", | or ", str(context.get("expected", "")))]
    given = item.get("input")
    if given in allowed:
        return f"write {given} without quotes"
    if isinstance(given, int | float) and str(float(given)) in allowed:
        return f'quote it: "{float(given)}"'  # YAML takes 5.0 for a number
    near = difflib.get_close_matches(str(item.get("input")), allowed, n=1)
    return f"did you mean `{near[0]}`?" if near else f"write {', '.join(allowed)}"


def _models_at(model: type[BaseModel], loc: Iterable[str | int]) -> list[type[BaseModel]]:
    """The models of the mapping in which the last part of `loc` is a key."""
    models = [model]
    for part in list(loc)[:-1]:
        inner = [found for one in models for found in _models_below(one, part)]
        named = [one for one in models if one.__name__ == part]
        models = inner or named or models
    return models


def _models_below(model: type[BaseModel], key: str | int) -> Iterator[type[BaseModel]]:
    for name, field in model.model_fields.items():
        if key in (name, field.alias):
            yield from models_in(field.annotation)


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that a value of this type may be or contain."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from models_in(argument)

"""Writes docs/reference/settings.md, mapping.md, pipeline.md and reason-codes.md from the code that decides.

What stands before the tables is in settings.head.md, mapping.head.md, pipeline.head.md and reason-codes.head.md beside
them.

python docs/make_reference.py           write them
python docs/make_reference.py --check   exit 1 if they are not what would be written
"""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from annotated_types import Ge, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from gateway.bridge.explain import explain
from gateway.bridge.inbound import Origin
from gateway.bridge.outbound import Outgoing
from gateway.bridge.rehearsal import NOW, payload_of, properties_of, publications
from gateway.config.model import Settings
from gateway.config.units import Duration, Size, show_duration, show_size
from gateway.errors import Refused
from gateway.mq import reason_policy
from gateway.mq.constants import name_of_reason
from gateway.mq.reason_policy import Action
from gateway.pipeline.jobs.job import Job
from gateway.routing.table import Table, compile_mappings
from gateway.rules.feedback import Feedback
from gateway.rules.mappings import Mappings
from gateway.rules.model import MappingFile
from gateway.rules.parse import load_mappings
from gateway.rules.templates import CASES, FIELDS, OUTBOUND_FOLDERS, PLAIN, TYPES
from gateway.rules.trials import Test

REFERENCE = ROOT / "docs" / "reference"
_DURATION, _SIZE = (typing.get_args(one)[1] for one in (Duration, Size))


def tables(model: type[BaseModel], path: str, seen: set[type[BaseModel]]) -> Iterator[str]:
    """One table for a model and then those of the models in it."""
    seen.add(model)
    yield f"\n## {f'`{path}`' if path else 'Top level'}\n\n{inspect.getdoc(model)}\n"
    yield "| key | type | default | meaning |\n|---|---|---|---|"
    inner: list[tuple[str, type[BaseModel]]] = []
    for name, field in model.model_fields.items():
        key = field.alias or name
        yield f"| `{key}` | {kind(field)} | {default(field)} | {cell(field.description or '')} |"
        here = f"{path}.{key}" if path else key
        inner += [(here + suffix, one) for one, suffix in models_in(field.annotation, "")]
    for here, one in inner:
        if one not in seen:
            yield from tables(one, here, seen)


def cell(text: str) -> str:
    """Text that can stand in a table."""
    return text.replace("|", "\\|").replace("\n", " ")


def models_in(annotation: Any, suffix: str) -> Iterator[tuple[type[BaseModel], str]]:
    """The models an annotation holds, with how they are reached."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation, suffix
    origin = typing.get_origin(annotation)
    more = "[]" if origin in (list, tuple) else ".NAME" if origin is dict else ""
    for argument in typing.get_args(annotation):
        yield from models_in(argument, suffix + more)


def kind(field: FieldInfo) -> str:
    """The type in words, with bounds."""
    words = type_words(field.annotation, field.metadata)
    low = next((one.ge for one in field.metadata if isinstance(one, Ge)), None)
    high = next((one.le for one in field.metadata if isinstance(one, Le)), None)
    if low is not None and high is not None:
        words += f", {low} to {high}"
    elif low:
        words += f", at least {low}"
    return cell(words)


_PLAIN_TYPES: dict[Any, str] = {
    bool: "true or false",
    int: "number",
    float: "number",
    str: "text",
    type(None): "",
    Any: "anything",
}


def type_words(annotation: Any, metadata: list[Any]) -> str:
    """A type as a person would say it."""
    if _DURATION in metadata:
        return "duration"
    if _SIZE in metadata:
        return "size"
    if annotation in _PLAIN_TYPES:
        return _PLAIN_TYPES[annotation]
    if inspect.isclass(annotation) and annotation.__name__ == "SecretStr":
        return "secret"
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin is typing.Annotated:
        return type_words(arguments[0], list(arguments[1:]))
    if origin is list:
        return f"list of {type_words(arguments[0], [])}"
    if origin is dict:
        return f"mapping of {type_words(arguments[1], [])}"
    if origin is tuple:
        return f"list of {type_words(arguments[0], [])}" if arguments[1:] == (...,) else "pair"
    if arguments:
        return " or ".join(dict.fromkeys(filter(None, (type_words(one, metadata) for one in arguments))))
    return "mapping"


def default(field: FieldInfo) -> str:
    """The default as it would be written in YAML."""
    value = field.default
    if value is PydanticUndefined:
        return "see there" if field.default_factory else "**needed**"
    if isinstance(value, BaseModel):
        return "see there"
    if value is None or value in ("", [], {}, ()):
        return ""
    if _DURATION in field.metadata:
        return f"`{show_duration(value)}`"
    if _SIZE in field.metadata:
        return f"`{show_size(value)}`"
    shown = str(value).lower() if isinstance(value, bool) else value
    return f"`[{', '.join(map(str, shown))}]`" if isinstance(shown, list) else f"`{shown}`"


def introduction(name: str) -> str:
    """What stands before the tables."""
    return (REFERENCE / f"{name}.head.md").read_text(encoding="utf-8")


def settings_page() -> str:
    """The reference of settings."""
    return "\n".join([introduction("settings"), *tables(Settings, "", set())]) + "\n"


def pipeline_page() -> str:
    """The reference of the pipeline, with the keys of job files."""
    return "\n".join([introduction("pipeline"), *tables(Job, "", set())]) + "\n"


def mapping_page() -> str:
    """The reference of the mapping language."""
    lists = {
        "plain": [f"{{{name}}}" for name in PLAIN],
        "types": [f":{name}" for name in TYPES],
        "cases": [f":{name}" for name in CASES],
        "folders": [f"{{{name}.x}}" for name in OUTBOUND_FOLDERS],
        "descriptor": [f"md.{name}" for name in FIELDS["md"]],
    }
    text = introduction("mapping")
    for name, values in lists.items():
        text = text.replace(f"<<{name}>>", ", ".join(f"`{value}`" for value in values))
    return "\n".join([text, *reasons(), *tables(MappingFile, "", set()), "", *examples()]) + "\n"


def reasons() -> Iterator[str]:
    """The table of our own reasons, from the comments beside them."""
    yield "| Reason | name in tests | meaning |\n|---|---|---|"
    source = inspect.getsource(Feedback)
    for name, number, meaning in re.findall(r"    (\w+) = (\d+)\n    \"\"\"(.*?)\"\"\"", source, re.DOTALL):
        yield f"| {number} | `{name.lower()}` | {cell(' '.join(meaning.split()))} |"


def reason_codes_page() -> str:
    """The reference of MQ reason codes: a table for each action, where its name stands in the introduction."""
    text = introduction("reason-codes")
    for action in Action:
        text = text.replace(f"<<{action.value}>>", "\n".join(reason_codes(action)))
    return text


def reason_codes(action: Action) -> Iterator[str]:
    """The reason codes that are answered with one action."""
    yield "| code | name | counted as | what to do |\n|---|---|---|---|"
    for code, policy in sorted(reason_policy.TABLE.items()):
        if policy.action is action:
            name = name_of_reason(code) if code else "MQRC_NONE"
            label = "" if policy.dead_letter == "other" else f"`{policy.dead_letter}`"
            yield f"| {code} | `{name}` | {label} | {cell(policy.advice)} |"


def examples() -> Iterator[str]:
    """The shipped mappings, with what their tests show."""
    yield "## The shipped mappings\n"
    yield "Each file is a starting point of one's own. The tables show what `mqgate check` verifies for each of them.\n"
    for path in sorted((ROOT / "mappings").glob("*.yaml")):
        mappings = load_mappings([str(path)])
        yield f"### `mappings/{path.name}`\n\n{head_comment(path)}\n"
        yield "| comes in | goes out |\n|---|---|"
        table = compile_mappings(mappings)
        for placed in mappings.tests:
            yield f"| {cell(given(placed.test))} | {cell(outcome(table, mappings, placed.test))} |"
        yield ""


def head_comment(path: Path) -> str:
    """The comment a file begins with; indented lines are code."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        text = line.removeprefix("#").removeprefix(" ")
        lines.append(f"    {text.strip()}" if text.startswith("  ") else text)
    separated: list[str] = []
    for line in lines:
        if separated and separated[-1] and line and line.startswith("    ") != separated[-1].startswith("    "):
            separated.append("")
        separated.append(line)
    return "\n".join(separated)


def given(test: Test) -> str:
    """What a test publishes or puts."""
    if test.publish is not None:
        payload = payload_of(test.publish)
        shown = payload.decode() if test.publish.payload_hex is None else test.publish.payload_hex
        return f"publish `{test.publish.topic}` QoS {test.publish.qos}: `{shown}`"
    assert test.put is not None  # noqa: S101 - the parser has checked it
    where = f"`{test.put.queue}`"
    if test.put.remote_queue:
        where = f"`{test.put.remote_queue}` at `{test.put.remote_queue_manager}`"
    properties = ", ".join(f"{name}={value}" for name, value in test.put.properties.items())
    return f"put on {where}{f' ({properties})' if properties else ''}: `{test.put.body}`"


def outcome(table: Table, mappings: Mappings, test: Test) -> str:
    """What comes of it."""
    shown = []
    if test.publish is not None:
        one = test.publish
        origin = Origin(one.client, one.user, one.topic, one.qos, one.retain, listener=one.listener)
        for would in explain(table, origin, properties_of(one), payload_of(one), NOW).puts:
            kept = "persistent" if would.persistent else "not persistent"
            text = f"refused: {would.refused_as}, then {would.then}" if would.refused else f"`{would.queue}`, {kept}"
            shown.append(text + f" (rule {would.rule})")
        return "; ".join(shown) or "no queue: no rule matches"
    assert test.put is not None  # noqa: S101 - the parser has checked it
    for found in publications(mappings, test.put):
        if isinstance(found, Refused):
            shown.append(f"refused: {Feedback(found.feedback).name.lower()}")
        else:
            shown.append(published(found))
    return "; ".join(shown) or "nothing"


def published(found: Outgoing) -> str:
    """A publication in words."""
    to = f" to `{found.client}` alone" if found.client else ""
    return f"publish `{found.topic}` QoS {found.qos}{', retained' if found.retain else ''}{to}"


def main(arguments: list[str]) -> int:
    """Write or compare the pages."""
    stale = []
    pages = {
        "settings.md": settings_page, "mapping.md": mapping_page, "pipeline.md": pipeline_page,
        "reason-codes.md": reason_codes_page,
    }  # fmt: skip
    for name, make in pages.items():
        text = make()
        path = REFERENCE / name
        if "--check" in arguments:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                stale.append(name)
        else:
            path.write_text(text, encoding="utf-8")
    for name in stale:
        sys.stderr.write(f"docs/reference/{name} is not up to date: run python docs/make_reference.py\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

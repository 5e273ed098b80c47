"""A commented starter configuration: every key with its meaning and default, switched off by `#`.

It is made from the field list, so it cannot name a key that does not exist. The lines without `#` are what most people
change first.
"""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from gateway.config.model import Listener, Settings
from gateway.config.source import read_scalar
from gateway.config.units import Duration, Size, show_duration, show_size

HEADER = """\
# Settings of mqgate. Every key is optional; what follows `#` is the default or an example.
# Check this file with:  mqgate check mqgate.yaml
# yaml-language-server: $schema=mqgate.schema.json
"""
_SHOWN = {"listeners", "mappings"}
_DURATION, _SIZE = (get_args(one)[1] for one in (Duration, Size))
_WIDTH = 100
_EXAMPLES = {"./mqgate-data": "/var/lib/mqgate/data", "./mqgate-buffer": "/var/lib/mqgate/buffer"}
"""Defaults that are relative to the working directory. In a file they would be relative to that file, so that removing
a `#` would move the data; the file shows an example instead."""


def starter_settings(data: str = "", mappings: str = "mappings/*.yaml") -> str:
    """The text of a file of settings to begin with. `data`: the directory of the journal, which commands then find
    wherever they are run; without it the gateway and the commands use their working directory. The Debian package gives
    its own `mappings`."""
    lines = [HEADER, "listeners:", "  - name: plain", "    port: 1883", "    bind: 127.0.0.1"]
    lines += [f"    # {line}" for line in _inner(Listener, 0) if not line.startswith(("name:", "port:", "bind:"))]
    lines += ["", f"mappings: [{mappings}]", ""]
    for name, field in Settings.model_fields.items():
        if name not in _SHOWN:
            lines += _section(name, field)
    if data:
        _write_data(lines, data)
    return "\n".join(lines).rstrip() + "\n"


def _write_data(lines: list[str], data: str) -> None:
    """Remove the `#` from `queue_manager.embedded.path` and from the sections around it, and write the directory
    there."""
    manager = lines.index("# queue_manager:")
    embedded = next(at for at in range(manager, len(lines)) if lines[at].startswith("#   embedded:"))
    path = next(at for at in range(embedded, len(lines)) if lines[at].startswith("#     path:"))
    lines[manager], lines[embedded] = "queue_manager:", lines[embedded][2:]
    lines[path] = re.sub(r"path: \S+", lambda _: f"path: {json.dumps(data)}", lines[path][2:])


def _section(name: str, field: FieldInfo) -> Iterator[str]:
    model = _model(field.annotation)
    yield from _comment(field.description or "")
    yield f"# {name}:" if model is not None else f"# {name}: {_value(field)}"
    if model is not None:
        yield from (f"# {line}".rstrip() for line in _inner(model, 2))
    yield ""


def _inner(model: type[BaseModel], depth: int) -> Iterator[str]:
    """Yield the keys of a model, indented, with those of the models in it, to a limited depth."""
    pad = " " * depth
    for name, field in model.model_fields.items():
        inner = _model(field.annotation)
        if name == "password":  # from the environment only
            continue
        if inner is not None and depth < 8:
            yield f"{pad}{field.alias or name}:  # {field.description}"
            yield from _inner(inner, depth + 2)
        else:
            yield f"{pad}{field.alias or name}: {_value(field)}  # {field.description}"


def _model(annotation: Any) -> type[BaseModel] | None:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return annotation
    found = [one for one in get_args(annotation) if inspect.isclass(one) and issubclass(one, BaseModel)]
    return found[0] if found and annotation not in (list, dict) and not _is_container(annotation) else None


def _is_container(annotation: Any) -> bool:
    return getattr(annotation, "__origin__", None) in (list, dict)


def _value(field: FieldInfo) -> str:
    value = field.default
    if value is PydanticUndefined or value is None:
        return "..."
    if _DURATION in field.metadata:
        return show_duration(value)
    if _SIZE in field.metadata:
        return show_size(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(repr(one) for one in value)}]"
    if isinstance(value, str) and value not in _EXAMPLES and (set("{:*&") & set(value) or _is_number(value)):
        return json.dumps(value)
    return {"{}": "{}", "": '""', **_EXAMPLES}.get(str(value), str(value))


def _is_number(text: str) -> bool:
    """Whether YAML reads the text as a number: `1.2` of TLS has to be quoted."""
    return isinstance(read_scalar(text), int | float)


def _comment(text: str) -> Iterator[str]:
    yield from (f"# {line}" for line in textwrap.wrap(text, _WIDTH))

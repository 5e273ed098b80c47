"""YAML text to plain values, with the line and column of every key and value.

Reads one document with the types of YAML's core schema (`on` and `12:30` stay text), and refuses duplicate keys,
unknown tags, self-references and alias bombs. Opens no file: the caller brings the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from gateway.errors import Finding

Path = tuple[str | int, ...]
Mark = tuple[int, int]

MAX_NODES = 2_000_000
MAX_DEPTH = 40
MAX_REPEATED = 100_000
"""How many values aliases and merges may repeat in all."""


class _Loader(yaml.CSafeLoader):
    """The C parser with fewer implicit types: what looks like a version, a time or a country code stays a string."""


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+", "-+0123456789"),
    ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+", "-+.0123456789"),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first))

_SCALARS = {f"tag:yaml.org,2002:{tag}" for tag in ("str", "bool", "null", "int", "float", "merge")}


_MERGE = "tag:yaml.org,2002:merge"


@dataclass(slots=True)
class Document:
    """The value of a document and the places of its parts, as (line, column) from 1."""

    name: str
    value: Any = None
    keys: dict[Path, Mark] = field(default_factory=dict)
    values: dict[Path, Mark] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    elsewhere: dict[Path, str] = field(default_factory=dict)
    """Values that come from an environment variable or an option, and from which."""

    def finding(self, path: Path, what: str, fix: str = "", *, at_key: bool = False) -> Finding:
        """A finding at `path`, or at the nearest part above it that is in the text."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.elsewhere:
                return Finding(self.elsewhere[path[:length]], 0, 0, what, fix)
        mark = self.keys.get(path) if at_key else self.values.get(path)
        while mark is None and path:
            path = path[:-1]
            mark = self.values.get(path)
        line, column = mark or (1, 1)
        return Finding(self.name, line, column, what, fix)


def read_yaml(name: str, text: str) -> Document:
    """Parse `text`. If something is wrong with it, that is in `findings`, and the value is None."""
    document = Document(name)
    try:
        loader = _Loader(text)
    except yaml.YAMLError as error:
        document.findings.append(_syntax(name, text, error))
        return document
    try:
        _check_depth(text)
        node = loader.get_single_node()
        if node is not None:
            document.value = _Builder(document, loader).build(node, (), 0)
    except yaml.YAMLError as error:
        document.findings.append(_syntax(name, text, error))
    finally:
        loader.dispose()
    if document.findings:
        document.value = None
    return document


def read_scalar(text: str) -> Any:
    """The value of a setting given in the environment or on the command line; what is not YAML is taken as text."""
    document = read_yaml("", text)
    return text if document.findings else document.value


def _check_depth(text: str) -> None:
    """Refuse deep nesting before nodes are made: the parser calls itself for each level, and would crash the
    process."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH + 1:
                mark: Any = event.start_mark  # the C parser's own kind
                raise yaml.MarkedYAMLError(problem="too deeply nested", problem_mark=mark)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _Builder:
    """Walks the nodes once and counts them, because aliases can refer to a node a million times."""

    def __init__(self, document: Document, loader: _Loader) -> None:
        self.document = document
        self.loader = loader
        self.nodes = 0
        self.repeated = 0
        """How many values in lists and tables were met again, through aliases and merges."""
        self._met: set[int] = set()
        self._merging: list[yaml.MappingNode] = []

    def build(self, node: yaml.Node, path: Path, depth: int) -> Any:
        self.nodes += 1
        mark = (node.start_mark.line + 1, node.start_mark.column + 1)
        self.document.values[path] = mark
        if self.nodes > MAX_NODES or depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem="too many values or too deeply nested", problem_mark=node.start_mark)
        if isinstance(node, yaml.CollectionNode):
            if id(node) in self._met:
                self._repeat(len(node.value), node)
            self._met.add(id(node))
        if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
            return [self.build(item, (*path, index), depth + 1) for index, item in enumerate(node.value)]
        if node.tag not in _SCALARS:
            self._wrong(path, f"the tag `{node.tag}` is not allowed here", "write a plain value")
            return None
        try:
            return self.loader.construct_object(node) if node.tag != _MERGE else "<<"
        except ValueError:  # thousands of digits
            self._wrong(path, "the number is too long", "write fewer digits, or text in quotes")
            return None

    def _mapping(self, node: yaml.MappingNode, path: Path, depth: int) -> dict[str, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:  # before merging: a merged key may be replaced, a written one may not repeat
            self._check_repeat(key_node, path, seen)
        self._merge(node)
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value)
            here = (*path, key)
            result[key] = self.build(value_node, here, depth + 1)
            self.document.keys[here] = (key_node.start_mark.line + 1, key_node.start_mark.column + 1)
        return result

    def _repeat(self, count: int, node: yaml.Node) -> None:
        self.repeated += count
        if self.repeated > MAX_REPEATED:
            problem = f"aliases repeat more than {MAX_REPEATED} values"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)

    def _merge(self, node: yaml.MappingNode) -> None:
        """Put what `<<` refers to before the table's own keys, which take precedence; of several tables the first takes
        precedence. Each key is there only once, so that merges of merges do not grow."""
        if not any(key.tag == _MERGE for key, _ in node.value):
            return
        if node in self._merging:
            raise yaml.MarkedYAMLError(problem="a table is merged into itself", problem_mark=node.start_mark)
        if len(self._merging) >= MAX_DEPTH:
            raise yaml.MarkedYAMLError(
                problem="tables are merged too deep into each other", problem_mark=node.start_mark
            )
        self._merging.append(node)
        pairs: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            if key.tag != _MERGE:
                continue
            for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if not isinstance(source, yaml.MappingNode):
                    raise yaml.MarkedYAMLError(problem="`<<` takes a table or a list", problem_mark=value.start_mark)
                self._merge(source)
                self._repeat(len(source.value), key)
                for one in source.value:
                    pairs.setdefault(str(one[0].value), one)
        own = {str(key.value): (key, value) for key, value in node.value if key.tag != _MERGE}
        node.value = [*(pair for name, pair in pairs.items() if name not in own), *own.values()]
        self._merging.pop()

    def _check_repeat(self, key_node: yaml.Node, path: Path, seen: set[str]) -> None:
        if not isinstance(key_node, yaml.ScalarNode):
            raise yaml.MarkedYAMLError(
                problem='a key must be plain text; a value with braces needs quotes: "{client}/x"',
                problem_mark=key_node.start_mark,
            )
        key = str(key_node.value)
        if key in seen and key != "<<":
            self.document.keys[(*path, key)] = (key_node.start_mark.line + 1, key_node.start_mark.column + 1)
            self._wrong((*path, key), f"`{key}` is given twice", "keep one of them", at_key=True)
        seen.add(key)

    def _wrong(self, path: Path, what: str, fix: str, *, at_key: bool = False) -> None:
        self.document.findings.append(self.document.finding(path, what, fix, at_key=at_key))


def _syntax(name: str, text: str, error: yaml.YAMLError) -> Finding:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML"
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    fix = "check indentation, and quote values that begin with { [ * & ! or contain ': '"
    rest = "".join(text.split("\n")[line - 1 : line])[column - 1 :]
    if rest.startswith("\t"):
        problem, fix = "a tab where YAML has spaces", "indent with spaces"
    return Finding(name, line, column, f"YAML cannot be read here: {problem}", fix)


def unread(name: str, error: OSError | UnicodeDecodeError, fix: str) -> Finding:
    """The finding about a file that cannot be read."""
    return Finding(name, 0, 0, f"cannot be read: {getattr(error, 'strerror', None) or error}", fix)

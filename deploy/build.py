"""Writes what is generated: the dashboard, the chart's copies, schema and README, the reference of metrics and API.

python deploy/build.py            write
python deploy/build.py --check    exit 1 and name what is out of date
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import yaml

from gateway.cli.examples import examples_of
from gateway.cli.main import main as main_command
from gateway.config.schema import DRAFT, settings_schema
from gateway.config.units import DURATION_PATTERN, SIZE_PATTERN
from gateway.ports.counters import CATALOGUE, Label, Metric

DEPLOY = Path(__file__).resolve().parent
ROOT = DEPLOY.parent
CHART = DEPLOY / "chart"

OF_STRINGS = {"annotations", "labels", "podLabels", "podAnnotations", "nodeSelector"}
OPEN = {"resources", "podSecurityContext", "containerSecurityContext", "networkPolicy.monitoringNamespaceSelector",
        "probes.startup", "probes.liveness", "probes.readiness"}  # fmt: skip
"""Values that are passed on to Kubernetes as they are."""
MQ_NAME = {"type": "string", "pattern": "^[A-Za-z0-9./_%]{0,48}$"}
PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
NODE_PORT = {"type": ["integer", "null"], "minimum": 30000, "maximum": 32767}
SIZE = {"type": "string", "pattern": "^[0-9.]+([KMGTPE]i?)?$"}
RULES: dict[str, dict[str, Any]] = {
    "queueManager.backend": {"enum": ["embedded", "ibm"]},
    "queueManager.embedded.name": MQ_NAME | {"minLength": 1},
    "queueManager.ibm.name": MQ_NAME,
    "queueManager.ibm.channel": {"type": "string", "pattern": "^[A-Za-z0-9./_%]{0,20}$"},
    "queueManager.ibm.connection": {
        "type": "string",
        "pattern": r"^$|^[^(),\s]+\([0-9]+\)(\s*,\s*[^(),\s]+\([0-9]+\))*$",
    },
    "queueManager.ibm.connections": {"type": "integer", "minimum": 1, "maximum": 64},
    "queueManager.ibm.lease": {"type": "string", "pattern": r"^[1-9][0-9]*(\.[0-9]+)?(s|m|h)$"},
    "queueManager.buffer.maxBytes": {"type": ["string", "integer"], "pattern": SIZE_PATTERN, "minimum": 0},
    "queueManager.ibm.driver": {"enum": ["auto", "ibmmq", "pymqi"]},
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "image.digest": {"type": "string", "pattern": "^$|^sha256:[0-9a-f]{64}$"},
    "replicaCount": {"type": "integer", "minimum": 0},
    "tls.clientCertificates": {"enum": ["none", "optional", "required"]},
    "auth.clientIds": {"enum": ["any", "user_prefix", "equals_user"]},
    "auth.guesses.perUser": {"type": "integer", "minimum": 0},
    "auth.guesses.perAddress": {"type": "integer", "minimum": 0},
    "auth.guesses.within": {"type": ["string", "number"], "pattern": DURATION_PATTERN, "minimum": 0},
    "listeners.proxyProtocol": {"enum": ["", "v1", "v2"]},
    "listeners.websocketPath": {"type": "string", "pattern": "^/"},
    "mappings.reload": {"enum": ["rollout", "watch", "manual"]},
    "mappings.watchSeconds": {"type": "integer", "minimum": 1},
    "service.type": {"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
    "service.externalTrafficPolicy": {"enum": ["", "Cluster", "Local"]},
    "persistence.size": SIZE,
    "persistence.emptyDirSize": SIZE,
    "persistence.retention.whenDeleted": {"enum": ["Retain", "Delete"]},
    "persistence.retention.whenScaled": {"enum": ["Retain", "Delete"]},
    "podDisruptionBudget.maxUnavailable": {"type": ["integer", "string"], "pattern": "^[0-9]+%?$", "minimum": 0},
    "drain.preStopSeconds": {"type": "integer", "minimum": 0},
    "drain.timeoutSeconds": {"type": "integer", "minimum": 1},
    "drain.rate": {"type": "integer", "minimum": 0},
    "terminationGracePeriodSeconds": {"type": "integer", "minimum": 2},
    **{f"listeners.{name}.port": PORT for name in ("mqtt", "mqtts", "ws", "wss")},
    **{f"listeners.{name}.nodePort": NODE_PORT for name in ("mqtt", "mqtts", "ws", "wss")},
}


def outputs() -> dict[Path, str]:
    """Every generated file and what it must contain."""
    dashboard = _dashboard().text()
    document = (CHART / "values.yaml").read_text()
    rules = {name: (DEPLOY / "prometheus" / name).read_text() for name in ("alerts.yaml", "slo.yaml")}
    return {
        DEPLOY / "grafana" / "mqgate.json": dashboard,
        CHART / "files" / "dashboard.json": dashboard,
        **{CHART / "files" / name: text for name, text in rules.items()},
        CHART / "values.schema.json": json.dumps(schema(document), indent=1) + "\n",
        CHART / "README.md": readme(document),
        ROOT / "docs" / "reference" / "metrics.md": metrics_page(),
        ROOT / "docs" / "reference" / "api.md": api_page(),
        ROOT / "docs" / "reference" / "command-line.md": command_line_page(),
    }


def _dashboard() -> Any:
    spec = importlib.util.spec_from_file_location("mqgate_dashboard", DEPLOY / "grafana" / "build.py")
    assert spec is not None and spec.loader is not None  # noqa: S101, PT018 - a file beside this one
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def documented(document: str) -> dict[str, str]:
    """Values by dotted path with the text of the `# --` line above them."""
    found: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    text = ""
    block = None
    for line in document.splitlines():
        indent = len(line) - len(line.lstrip())
        if block is not None and (not line.strip() or indent > block):
            continue
        block = None
        if match := re.match(r"\s*# -- (.*)", line):
            text = match[1]
        elif match := re.match(r"\s*([\w.-]+|\"[^\"]+\"):(.*)", line):
            path = [*(each for each in path if each[0] < indent), (indent, match[1])]
            if text:
                found[".".join(key for _, key in path)] = text
            text = ""
            block = indent if match[2].strip() == "|" else None
    return found


def schema(document: str) -> dict[str, Any]:
    """JSON Schema of the values: types from the defaults, limits from RULES, closed except where they are passed on."""
    texts = documented(document)

    def of(value: object, path: str) -> dict[str, Any]:
        found: dict[str, Any] = {"description": texts[path]} if path in texts else {}
        if path == "settings":
            return found | {"allOf": [{"$ref": "#/definitions/settings"}]}
        if path in RULES:
            return found | RULES[path]
        if path.rpartition(".")[2] in OF_STRINGS:  # Kubernetes refuses `true` and numbers
            return found | {"type": "object", "additionalProperties": {"type": "string"}}
        if isinstance(value, dict):
            inner = {key: of(each, f"{path}.{key}" if path else key) for key, each in value.items()}
            closed = {"properties": inner, "additionalProperties": False} if inner and path not in OPEN else {}
            return found | {"type": "object"} | closed
        kinds = {bool: "boolean", int: "integer", str: "string", list: "array"}
        return found | {"type": kinds[type(value)]}

    definitions = further_settings()
    return {"$schema": DRAFT, **of(yaml.safe_load(document), ""), "definitions": definitions}


def further_settings() -> dict[str, Any]:
    """Definitions of what `settings` may have: the gateway's own settings, of which every part may be left out, as the
    chart writes some of them. A key that the gateway does not know is told by Helm, instead of by pods that end."""

    def told(value: Any, *, names: bool = False) -> Any:
        """Without what is only for editors; `names`: the keys are those of settings."""
        if isinstance(value, list):
            return [told(each) for each in value]
        if not isinstance(value, dict):
            return value
        kept = {key: each for key, each in value.items() if names or key not in {"required", "default", "description"}}
        if kept.keys() == {"allOf"} and len(kept["allOf"]) == 1:  # it held a description beside it
            kept = kept["allOf"][0]
        return {key: told(each, names=key in {"properties", "definitions"} and not names) for key, each in kept.items()}

    given = told(settings_schema())
    return {"settings": {"type": "object", **{key: given[key] for key in ("properties", "additionalProperties")}},
            **given["definitions"]}  # fmt: skip


def readme(document: str) -> str:
    """The chart's README: how to install it, and the table of values."""
    values = yaml.safe_load(document)
    rows = []
    for path, text in documented(document).items():
        default: Any = values
        for key in path.split("."):
            default = default[key]
        shown = json.dumps(default).replace("|", "\\|")
        rows.append(f"| `{path}` | {text.replace('|', chr(92) + '|')} | `{shown}` |")
    head = (CHART / "README.head.md").read_text()
    return f"{head}\n## Values\n\n| Value | Meaning | Default |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n"


def _values_of(label: Label) -> str:
    if label.configured:
        return f"`{label.name}`: configured {label.configured.replace('_', ' ')}"
    if len(label.values) > 14:
        return f"`{label.name}`: {label.values[0]} … {label.values[-1]} ({len(label.values)})"
    return f"`{label.name}`: {', '.join(map(str, label.values))}" if label.values else f"`{label.name}`"


def _metric_entry(metric: Metric) -> str:
    labels = "".join(f"- {_values_of(label)}\n" for label in metric.labels)
    bounds = f"\nBuckets: {', '.join(f'{bound:g}' for bound in metric.bounds)}.\n" if metric.bounds else ""
    head = f"### `{metric.exposed_name}`\n\n{metric.kind.capitalize()}. {metric.text}\n{bounds}"
    return head + (f"\n{labels}" if labels else "")


def metrics_page() -> str:
    """Reference of every metric."""
    head = (
        "# Metrics\n\nWhat `/metrics` shows, beside the process's own series (`process_…`, `python_gc_…`). "
        "Counters and histograms are there from the start with the value 0. Labels have closed sets of values: "
        "no client identifier, topic or message identifier is ever one. Beyond 500 rules the rest shares "
        '`route="_other"`; `route="_none"` is what local publishers send to local subscribers.\n'
    )
    return head + "\n" + "\n".join(_metric_entry(metric) for metric in CATALOGUE)


def api_page() -> str:
    """Reference of the administration API."""
    document = json.loads((ROOT / "gateway" / "net" / "static" / "openapi.json").read_text())
    about = document["info"]["description"]
    parts = [f"# Administration API\n\n{about}\n\nThe OpenAPI document is served as `/admin/openapi.json`.\n"]
    for path, item in document["paths"].items():
        methods = [method for method in ("get", "post", "put", "delete") if method in item]
        parts += [_operation(document, path, method, item) for method in methods]
    return "\n".join(parts)


def _operation(document: dict[str, Any], path: str, method: str, item: dict[str, Any]) -> str:
    operation = item[method]
    lines = [
        f"## {operation['summary']}\n",
        f"`{method.upper()} /api/v1{path}` – {operation['x-role'].replace('_', ' ')}\n",
    ]
    if "description" in operation:
        lines.append(operation["description"] + "\n")
    for reference in [*item.get("parameters", []), *operation.get("parameters", [])]:
        each = (
            document["components"]["parameters"][reference["$ref"].rsplit("/", 1)[1]]
            if "$ref" in reference
            else reference
        )
        lines.append(f"- `{each['name']}` ({each['in']}): {each.get('description') or each['schema']['type']}")
    described = [("Request", operation.get("requestBody", {}))]
    described += [(f"Answer {status}", answer) for status, answer in operation["responses"].items()]
    for what, body in described:
        fields = _fields(document, body.get("content", {}).get("application/json", {}).get("schema", {}))
        if fields:
            lines.append(f"\n{what}:\n\n{fields}")
    return "\n".join(lines) + "\n"


def _resolved(document: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in node:
        return node
    _, *path = node["$ref"].split("/")
    for part in path:
        document = document[part]
    return document


def _fields(document: dict[str, Any], schema: dict[str, Any]) -> str:
    model = _resolved(document, schema)
    parts = [_resolved(document, each) for each in model.get("allOf", [model])]
    return "\n".join(
        f"- `{name}`: {_kind(each)}" for part in parts for name, each in part.get("properties", {}).items()
    )


def _kind(each: dict[str, Any]) -> str:
    if "$ref" in each:
        return each["$ref"].rsplit("/", 1)[1]
    kind = each.get("type", "any")
    kind = " or ".join(kind) if isinstance(kind, list) else kind
    if kind == "array":
        kind = f"list of {_kind(each['items'])}"
    text = f": {', '.join(map(str, each['enum']))}" if "enum" in each else ""
    return f"{kind}{text}" + (f" – {each['description']}" if each.get("description") else "")


def command_line_page() -> str:
    """Reference of every command, from its own definition."""
    head = (
        "# Command line\n\n`python -m gateway` is the same as `mqgate`. Exit codes: 0 done, 1 the answer is no, "
        "2 wrong use, 3 cannot reach what it needs. Every option of `run` that sets something has a key in the "
        "settings and an environment variable (`MQGATE_MQTT__MAX_PACKET`). Completion for bash: "
        '`eval "$(mqgate completion bash)"` in `~/.bashrc`; zsh and fish likewise.\n'
    )
    return head + "\n" + "\n".join(_commands(main_command, click.Context(main_command, info_name="mqgate")))


def _commands(command: click.Command, context: click.Context) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield _command(command, context)
        return
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        if found is not None and not found.hidden:
            yield from _commands(found, click.Context(found, info_name=name, parent=context))


def _command(command: click.Command, context: click.Context) -> str:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    about = inspect.cleandoc(command.help or "").split("\f")[0]
    lines = [f"## {context.command_path}\n", f"```text\n{usage}\n```\n", f"{about}\n"]
    for option in command.params:
        record = option.get_help_record(context)
        if record is not None:
            lines.append(f"- `{record[0]}`: {record[1]}" if record[1] else f"- `{record[0]}`")
    if typed := examples_of(command):
        lines += ["\n```sh", *typed, "```"]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write, or check."""
    stale = [path for path, text in outputs().items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is out of date: run python deploy/build.py")
        return 1 if stale else 0
    for path, text in outputs().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

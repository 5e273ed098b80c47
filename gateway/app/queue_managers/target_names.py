"""Compares the names of targets in mappings with those in the settings; nothing is connected for this."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.config.findings import did_you_mean
from gateway.config.model import Settings
from gateway.errors import Finding
from gateway.rules.mappings import InboundRule, Mappings, OutboundRule


def unknown_targets(mappings: Mappings, settings: Settings) -> list[Finding]:
    """Returns findings for lists that name queue managers that are not targets, and for rules that consume from
    such."""
    rules: tuple[InboundRule | OutboundRule, ...] = (*mappings.to_mq, *mappings.to_mqtt)
    return [
        _finding(rule, f"`{name}` is not a target: the settings have {_known(settings)}", _fix(name, settings))
        for rule in rules
        for name in rule.targets
        if name not in settings.targets
    ]


def doubtful_targets(mappings: Mappings, settings: Settings) -> Iterator[Finding]:
    """Yields what is allowed but probably not meant. A single name that is not a target is a remote queue manager."""
    if not settings.targets:
        return
    used, open_ended = {name for rule in mappings.to_mqtt for name in rule.targets}, False
    for rule in mappings.to_mq:
        used.update(rule.targets)
        name = rule.queue_manager.constant
        if rule.targets or not rule.queue_manager.text:
            continue
        open_ended = open_ended or name is None
        used.add(name or "")
        if name and name not in settings.targets:
            what = f"`{name}` is not a target: its messages go by way of the gateway's own queue manager"
            fix = f"define the route to it there, or, to put to it directly: {_fix(name, settings)}"
            yield _finding(rule, what, fix)
    if open_ended:  # a template may become any name
        return
    for name in sorted(settings.targets.keys() - used):
        what = f"no rule puts to the target `{name}`, or consumes from it"
        yield settings.finding(f"targets.{name}", what, "name it in a rule's `queue_manager`, or remove it")


def _finding(rule: InboundRule | OutboundRule, what: str, fix: str) -> Finding:
    return Finding(rule.file, *rule.manager_at, f"rule {rule.name!r}: {what}", fix)


def _known(settings: Settings) -> str:
    return ", ".join(f"`{name}`" for name in sorted(settings.targets)) or "none"


def _fix(name: str, settings: Settings) -> str:
    add = f"write `{name}: {{connection: ...}}` below `targets` in the settings"
    near = did_you_mean(name, settings.targets) if settings.targets else ""
    return f"{near} Else {add}" if near.startswith("did") else add

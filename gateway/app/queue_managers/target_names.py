"""What mappings say of targets, compared with those that the settings name: nothing is connected for it."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.config.findings import did_you_mean
from gateway.config.model import Settings
from gateway.errors import Finding
from gateway.rules.mappings import InboundRule, Mappings, OutboundRule


def unknown_targets(mappings: Mappings, settings: Settings) -> list[Finding]:
    """Lists that name queue managers which are no targets, and rules that consume from such."""
    rules: tuple[InboundRule | OutboundRule, ...] = (*mappings.to_mq, *mappings.to_mqtt)
    return [
        _finding(rule, f"`{name}` is no target: the settings have {_known(settings)}", _fix(name, settings))
        for rule in rules
        for name in rule.targets
        if name not in settings.targets
    ]


def doubtful_targets(mappings: Mappings, settings: Settings) -> Iterator[Finding]:
    """What is allowed, and probably not meant. A single name that is no target is a remote queue manager."""
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
            what = f"`{name}` is no target: its messages go by way of the gateway's own queue manager"
            fix = f"define the way to it there, or, if it is to be put to directly: {_fix(name, settings)}"
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

"""Compares the names of listeners in rules and access lists with those that the settings have."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.config.findings import did_you_mean
from gateway.config.load import acl_finding, load_acl
from gateway.config.model import Settings
from gateway.errors import Finding
from gateway.rules.mappings import Mappings


def unmet_rules(mappings: Mappings, settings: Settings) -> Iterator[Finding]:
    """Yields conditions of rules that can never be met, because no listener has the name."""
    known = {listener.name for listener in settings.listeners}
    for rule in mappings.to_mq:
        for name in rule.spec.when.listener or ():
            if name not in known:
                what = f"rule {rule.name!r}: no listener of the settings is called `{name}`"
                yield Finding(rule.file, rule.line, 1, what, did_you_mean(name, known))


def unmet_entries(settings: Settings) -> Iterator[Finding]:
    """Yields the same for the access list, wherever it is. Raises ConfigurationError if it cannot be read."""
    known = {listener.name for listener in settings.listeners}
    for index, entry in enumerate(load_acl(settings) or ()):
        if entry.listener is not None and entry.listener not in known:
            what = f"no listener is called `{entry.listener}`: the entry applies to nobody"
            yield acl_finding(settings, index, "listener", what, did_you_mean(entry.listener, known))

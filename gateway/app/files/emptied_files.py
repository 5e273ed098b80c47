"""Files that a reload finds without any content, though what is in force came from them.

An editor, `>` of a shell or a full disk leaves a file empty for a moment or for good. At the start an empty file is the
same as none; at a reload it would take away the access list, or all rules, of a gateway at work, and nobody meant that.
What counts is what was there when a file was read: a moment later it may be whole again. The password file is read, and
looked at, where users are known (`access/gatekeeper.py`).
"""

from __future__ import annotations

from gateway.config.counting import counted
from gateway.config.model import Settings
from gateway.errors import Finding, emptied
from gateway.routing.table import Table


def emptied_files(before: Settings, table: Table, now: Settings, fresh: Table) -> list[Finding]:
    """What is wrong with the files of the settings `now` and the rules `fresh`, where `before` and `table` are in
    force."""
    findings = []
    if now.source is not None and before.values_of(now.source) and now.was_empty:
        findings.append(emptied(now.source, "settings", "`{}` if the defaults are meant"))
    if not fresh.empty:
        return findings
    rules = [route.rule.file for route in table.routes] + [rule.file for rule in table.outbound]
    used = set(rules)
    findings += [
        emptied(name, counted(rules.count(name), "rule"), "`to_mq: []` if no rules are meant")
        for name in fresh.empty
        if name in used
    ]
    return findings

"""Writes a plan to the files of a directory: all of them, or none. Nothing that exists is overwritten."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from gateway.migrate.plan import USERS, Plan

SETTINGS, MAPPING, OBJECTS, NOTES = "mqgate.yaml", "mappings/imported.yaml", "objects.mqsc", "NOTES.txt"


def write_plan(plan: Plan, directory: Path) -> list[Path]:
    """Write settings, mapping, users, objects and notes; returns their files. Raises FileExistsError, which names what
    is in the way."""
    settings = {**plan.settings, "mappings": [MAPPING]}
    texts = {
        SETTINGS: _yaml(settings, f"Settings of mqgate, made from {plan.source}. What has no counterpart: {NOTES}"),
        MAPPING: _yaml(plan.mappings, f"Mapping made from {plan.source}."),
        NOTES: "".join(f"{note}\n" for note in plan.notes),
    }
    if plan.objects:
        texts[OBJECTS] = "".join(f"{command}\n" for command in plan.objects)
    secret = dict(plan.secrets)
    if plan.users is not None:
        secret[USERS] = "".join(f"{line}\n" for line in plan.users)
    there = [name for name in [*texts, *secret] if (directory / name).exists()]
    if there:
        raise FileExistsError(f"{directory} already has {', '.join(there)}: nothing is overwritten")
    (directory / MAPPING).parent.mkdir(parents=True, exist_ok=True)
    modes = dict.fromkeys(texts, 0o666) | dict.fromkeys(secret, 0o600)
    written: list[Path] = []
    try:
        for name, text in {**texts, **secret}.items():
            descriptor = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, modes[name])
            written.append(directory / name)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
    except OSError:
        for path in written:  # otherwise they would be in the way of the next attempt
            path.unlink()
        raise
    return written


def _yaml(value: dict[str, Any], about: str) -> str:
    body = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=118)
    return f"# {about}\n{body}"

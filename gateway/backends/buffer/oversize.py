"""Runs of messages of which some are longer than their queue takes: those cut into segments, or set apart. Pure."""

from __future__ import annotations

from dataclasses import replace
from itertools import compress

from gateway.bridge.segments import is_further, segments
from gateway.ports.batch import MQMD_LENGTH, Puts


def cut(run: Puts, longest: int, name: str) -> int:
    """Cut what is too long into segments; how many more messages the run has now. Refused when that cannot be done.
    `name`: what makes the GroupIds its own."""
    heads: list[bytes] = []
    bodies: list[bytes] = []
    for row, (head, body) in enumerate(zip(run.heads, run.bodies, strict=True)):
        made = segments(head, body, longest, f"{name} {row}".encode())
        heads += [one for one, _ in made]
        bodies += [one for _, one in made]
    more = len(heads) - len(run.heads)
    run.heads[:], run.bodies[:] = heads, bodies
    return more


def apart(run: Puts, longest: int) -> Puts | None:
    """What fits its queue leaves the run, for one of its own; None when all fit or none."""
    fits = [len(head) - MQMD_LENGTH + len(body) <= longest for head, body in zip(run.heads, run.bodies, strict=True)]
    if all(fits) or not any(fits):
        return None
    short = replace(run, heads=list(compress(run.heads, fits)), bodies=list(compress(run.bodies, fits)), tokens=())
    long = [not one for one in fits]
    run.heads[:], run.bodies[:] = list(compress(run.heads, long)), list(compress(run.bodies, long))
    return short


def messages(heads: list[bytes]) -> int:
    """How many messages they are: of one in segments its first."""
    return len(heads) - sum(map(is_further, heads))

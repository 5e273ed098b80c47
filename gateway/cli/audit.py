"""`mqgate audit`: what people have done through the admin port of a running gateway."""

from __future__ import annotations

from collections import deque
from fnmatch import fnmatchcase
from typing import Any

import click

from gateway.cli.examples import examples
from gateway.cli.reach import common, running_gateway, show_json
from gateway.cli.tables import show_table


@examples(
    "mqgate audit --user bob",
    "mqgate audit --refused --limit 20",
)
@click.command()
@click.option("--user", "users", default="*", show_default=True, help="Users (`*` and `?`).")
@click.option("--action", "actions", default="*", show_default=True, help="Actions, such as `*/dlq/*`.")
@click.option("--refused", is_flag=True, help="Only acts that did not succeed.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="How many of the latest acts.")
@common
def audit(
    users: str, actions: str, refused: bool, limit: int, config: str | None, data: str | None, as_json: bool
) -> None:
    """Show who did what, when, from where and with which result; the latest act comes last."""
    there = running_gateway(config, data)
    found: deque[dict[str, Any]] = deque(maxlen=limit)
    after: str | None = None
    while True:
        page = there.get("/audit", limit=500, after=after)
        found.extend(
            one
            for one in page["items"]
            if fnmatchcase(one["user"], users) and fnmatchcase(one["action"], actions)
            and not (refused and one["succeeded"])
        )  # fmt: skip
        after = page["next"]
        if after is None:
            break
    if as_json:
        show_json(list(found))
        return
    show_table(
        ("time", "user", "from", "action", "on", "arguments", "result"),
        [
            (one["time"][:19].replace("T", " "), f"{one['user'] or '-'} ({one['method'] or 'unknown'})", one["address"],
             one["action"], _words(one["on"]), _words(one["arguments"]), _result(one))
            for one in found
        ],
        first_to_go=("from", "arguments"),
        cut="arguments",
    )  # fmt: skip


def _words(pairs: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in pairs.items())


def _result(one: dict[str, Any]) -> str:
    counts = _words(one.get("count", {}))
    return f"{one['status']} {counts or one.get('why', '')}".strip()

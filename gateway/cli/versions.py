"""The version of MQTT that a command speaks, as people and other clients write it."""

from __future__ import annotations

from typing import Any

import click

LEVELS = {"3.1": 3, "3.1.1": 4, "5.0": 5}
"""The Protocol Level that says it in CONNECT (MQTT 5, 3.1.2.2)."""
_WRITTEN = {"31": "3.1", "3": "3.1", "311": "3.1.1", "4": "3.1.1", "5": "5.0", "50": "5.0"}


class Version(click.Choice[str]):
    """A version: also by its level, without points (`311`), or as `mqttv311`."""

    def __init__(self) -> None:
        super().__init__(list(LEVELS))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The version, or the end of the command."""
        plain = str(value).lower().removeprefix("mqtt").removeprefix("v")
        return super().convert(_WRITTEN.get(plain, plain), param, ctx)


version_option = click.option(
    "-V", "--version", "version", type=Version(), default="3.1.1", show_default=True, help="Version of MQTT."
)

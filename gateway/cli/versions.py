"""The version of MQTT that a command speaks, as people and other clients write it."""

from __future__ import annotations

from typing import Any

import click

from gateway.mqtt import reasons

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
    "-V", "--version", "version", type=Version(), default="5.0", show_default=True, help="Version of MQTT."
)
"""5.0 unless another is asked for: it alone tells what is refused from what is committed."""


def refused(words: str) -> str:
    """Why there is no connection, by what the reason code of CONNACK means."""
    hint = ", -V asks for another" if words.startswith(reasons.name(reasons.UNSUPPORTED_PROTOCOL_VERSION)) else ""
    return f"the gateway refused the connection: {words}{hint}"


def done(qos: int, version: str, seconds: float, more: str = "") -> str:
    """What an acknowledged publication is said to be. What a server does not permit it acknowledges too in 3.x, which
    has no word for it."""
    committed = "sent" if not qos else "committed and acknowledged" if version == "5.0" else "acknowledged"
    doubt = f"; {version} acknowledges a refusal too, -V 5.0 tells which" if committed == "acknowledged" else ""
    return f"{committed} in {seconds * 1000:.2f} ms (QoS {qos}{more}{doubt})"

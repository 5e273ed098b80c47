"""The version of MQTT that a command speaks, as people and other clients write it."""

from __future__ import annotations

from typing import Any

import click

from gateway.mqtt import reasons

LEVELS = {"3.1": 3, "3.1.1": 4, "5.0": 5}
"""The Protocol Level that stands for it in CONNECT (MQTT 5, 3.1.2.2)."""
_WRITTEN = {"31": "3.1", "3": "3.1", "311": "3.1.1", "4": "3.1.1", "5": "5.0", "50": "5.0"}


class Version(click.Choice[str]):
    """A version, which may also be given by its level, without points (`311`), or as `mqttv311`."""

    def __init__(self) -> None:
        super().__init__(list(LEVELS))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Returns the version, or ends the command."""
        plain = str(value).lower().removeprefix("mqtt").removeprefix("v")
        return super().convert(_WRITTEN.get(plain, plain), param, ctx)


version_option = click.option(
    "-V", "--version", "version", type=Version(), default="5.0", show_default=True, help="Version of MQTT."
)
"""5.0 unless another one is asked for: only 5.0 distinguishes what is refused from what is committed."""


def refused(words: str) -> str:
    """Returns why there is no connection, by the meaning of the reason code in CONNACK."""
    hint = "; ask for another with -V" if words.startswith(reasons.name(reasons.UNSUPPORTED_PROTOCOL_VERSION)) else ""
    return f"the gateway refused the connection: {words}{hint}"


def done(qos: int, version: str, seconds: float, more: str = "") -> str:
    """Returns what is said about an acknowledged publication. In 3.x, which has no way to refuse, a server also
    acknowledges what it does not permit."""
    committed = "sent" if not qos else "committed and acknowledged" if version == "5.0" else "acknowledged"
    doubt = f"; {version} acknowledges refused ones too; -V 5.0 tells them apart" if committed == "acknowledged" else ""
    return f"{committed} in {seconds * 1000:.2f} ms (QoS {qos}{more}{doubt})"

"""A device of tests: it waits as long as a busy machine may take."""

from __future__ import annotations

from typing import Any

from gateway.net import device


class Device(device.Device):
    """`mqgate`'s own client, whose user would not wait for a minute."""

    def __init__(self, host: str, port: int, client_id: str, **named: Any) -> None:
        super().__init__(host, port, client_id, **{"timeout": 60.0, **named})

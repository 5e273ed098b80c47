"""A device of tests: it waits as long as a busy machine may take."""

from __future__ import annotations

import socket
from itertools import count
from typing import Any

from gateway.net import device


class Device(device.Device):
    """`mqgate`'s own client, whose user would not wait for a minute."""

    def __init__(self, host: str, port: int, client_id: str, **named: Any) -> None:
        super().__init__(host, port, client_id, **{"timeout": 60.0, **named})


class Stranger(Device):
    """A device with an address of its own: each refusal of a password makes the next one at its address come later, for
    up to five seconds. What is tested is who is let in."""

    _numbers = count(1)

    def _opened(self, host: str, port: int, timeout: float) -> socket.socket:
        high, low = divmod(next(self._numbers), 250)
        return socket.create_connection((host, port), timeout, source_address=(f"127.9.{high}.{low + 1}", 0))

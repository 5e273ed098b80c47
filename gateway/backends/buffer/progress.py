"""How far the buffer has got, as one message on IBM MQ that is replaced in every unit of work of the buffer. Pure.

`main` is the number of the last unit committed. A destination that refused for a while has its messages set aside;
`aside` says, by destination, which of those were put last. `owner` is the process that wrote it: a buffer that was
copied, or restored from a backup, finds one that it does not know and must not take for its own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from gateway.errors import StoreCorrupt
from gateway.mqtt.json_text import read_object

Destination = tuple[str, str]
"""Queue and queue manager."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the buffer has got on IBM MQ."""

    main: int = 0
    aside: dict[Destination, int] = field(default_factory=dict)
    owner: str = ""

    def reached(self, number: int) -> Progress:
        """Returns the progress when the main line has got to `number`."""
        return replace(self, main=max(self.main, number))

    def aside_reached(self, destination: Destination, number: int) -> Progress:
        """Returns the progress when what was set aside for a destination has got to `number`."""
        return replace(self, aside={**self.aside, destination: number})

    def without(self, destination: Destination) -> Progress:
        """Returns the progress when nothing is set aside for a destination any more."""
        return replace(self, aside={key: value for key, value in self.aside.items() if key != destination})

    def encode(self) -> bytes:
        """Returns the body of the message."""
        aside = [[queue, manager, number] for (queue, manager), number in self.aside.items()]
        return json.dumps({"main": self.main, "aside": aside, "owner": self.owner}).encode()


def decode(body: bytes) -> Progress:
    """Read the message. Raises StoreCorrupt if it is not a buffer's."""
    try:
        found = read_object(body)
        aside = {(str(queue), str(manager)): int(number) for queue, manager, number in found["aside"]}
        return Progress(int(found["main"]), aside, str(found["owner"]))
    except (ValueError, KeyError, TypeError) as error:
        raise StoreCorrupt(f"the buffer's progress on IBM MQ cannot be read: {error}") from None

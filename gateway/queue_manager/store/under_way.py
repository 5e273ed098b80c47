"""What is changed by frames that are prepared and not yet applied; it may neither be handed out nor be carried forward.
No input or output."""

from __future__ import annotations

from gateway.queue_manager.store.numbers import Numbers
from gateway.queue_manager.store.place import NUMBER_MASK
from gateway.queue_manager.store.unit import StoreUnit


class UnderWay:
    """The numbers of messages that leave, and for each message or state record how many of the frames change its
    backout count or value."""

    def __init__(self) -> None:
        self.leaving = Numbers()
        self._counting: dict[int, int] = {}
        self._replacing: dict[bytes, int] = {}

    def begin(self, unit: StoreUnit) -> None:
        """Note a unit that was prepared."""
        for backout in unit.backouts:
            number = backout.token & NUMBER_MASK
            self._counting[number] = self._counting.get(number, 0) + 1
        for key in unit.state:
            self._replacing[key] = self._replacing.get(key, 0) + 1

    def end(self, unit: StoreUnit, leaving: tuple[list[int], list[range]]) -> None:
        """Forget a unit that was applied, or given up."""
        self.leaving.remove(*leaving)
        for backout in unit.backouts:
            number = backout.token & NUMBER_MASK
            self._counting[number] -= 1
            if not self._counting[number]:
                del self._counting[number]
        for key in unit.state:
            self._replacing[key] -= 1
            if not self._replacing[key]:
                del self._replacing[key]

    @property
    def idle(self) -> bool:
        """Whether none of the frames changes a message."""
        return not self.leaving and not self._counting

    def spares_message(self, number: int) -> bool:
        """Whether none of the frames changes this message."""
        return number not in self.leaving and number not in self._counting

    def spares_state(self, key: bytes) -> bool:
        """Whether none of the frames changes this record."""
        return key not in self._replacing

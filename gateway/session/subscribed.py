"""What a session has subscribed to, and how that stands in its record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from gateway.mqtt.packets import Subscription
from gateway.session.record import json_text

MANY = 1000
"""From so many on each is kept as it stands in the record: a change writes one of them, not all."""
_WORDS = "false", "true"


class Subscribed(NamedTuple):
    """A subscription with its options and identifier."""

    options: Subscription
    identifier: int


class Subscriptions(dict[str, Subscribed]):
    """Those of one session, by filter. Items are set, popped and cleared: nothing else notes what has changed."""

    __slots__ = ("_texts",)

    def __init__(self) -> None:
        self._texts: dict[str, bytes] | None = None
        """Each as it stands in the record, if there are many and the record has been made."""

    def __setitem__(self, filter_: str, subscribed: Subscribed) -> None:
        super().__setitem__(filter_, subscribed)
        if self._texts is not None:
            self._texts[filter_] = text_of(subscribed)

    def pop(self, filter_: str, *default: Any) -> Any:
        """End one."""
        if self._texts is not None:
            self._texts.pop(filter_, None)
        return super().pop(filter_, *default)

    def clear(self) -> None:
        """End all."""
        self._texts = None
        super().clear()

    def texts(self) -> Iterable[bytes]:
        """As they stand in the record."""
        if len(self) < MANY:
            self._texts = None
            return map(text_of, self.values())
        if self._texts is None:
            self._texts = {filter_: text_of(one) for filter_, one in self.items()}
        return self._texts.values()


def text_of(subscribed: Subscribed) -> bytes:
    """A subscription as it stands in a record. Not by way of a list: of tens of thousands the garbage collector would
    look at all again and again."""
    one, identifier = subscribed
    no_local, as_published = _WORDS[one.no_local], _WORDS[one.retain_as_published]
    text = f"[{json_text(one.filter)},{one.qos},{no_local},{as_published},{one.retain_handling},{identifier}]"
    return text.encode()

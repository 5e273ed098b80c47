"""The settings of device events: where messages about what happens to devices are put for programs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from gateway.config.findings import Part, contradictions
from gateway.config.units import Duration, Wrong
from gateway.ports.counters import DeviceEventKind

_NAME = re.compile(r"[A-Za-z0-9._/%]{1,48}")
_OWN = ("MQGATE.", "SYSTEM.")


def _queue_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise Wrong(f"`{value}` is not a queue name", "use 1 to 48 of A-Z a-z 0-9 . _ / %")
    if value.startswith(_OWN):
        raise Wrong(f"`{value}` is not a queue of the application", "define one of your own, as DEVICE.EVENTS")
    return value


QueueName = Annotated[str, AfterValidator(_queue_name)]


class Events(Part):
    """Device events as messages: connected, disconnected, refused, denied."""

    queue: QueueName | None = Field(default=None, description="Queue they are put on; without one there are none.")
    mq_topic: str | None = Field(
        default=None, min_length=1, max_length=10240, description="MQ topic string they are published to, instead."
    )
    kinds: list[DeviceEventKind] = Field(
        default=["connected", "disconnected", "refused", "denied"], description="Which events are wanted."
    )
    expiry: Duration = Field(
        default=0.0, le=99999999, description="How long each stays if nobody takes it. 0: for ever."
    )

    @contradictions
    def _two_places(self) -> Iterator[Wrong]:
        if self.queue and self.mq_topic:
            yield Wrong(
                "events have a `queue` and an `mq_topic`", "keep one of them; an alias queue can lead to a topic"
            )

    @property
    def wanted(self) -> bool:
        """Whether any events are wanted."""
        return bool(self.queue or self.mq_topic) and bool(self.kinds)

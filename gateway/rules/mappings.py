"""Checked rules, which `parse` makes from mapping files and `routing` compiles; their templates are parsed, their names
valid."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.errors import Finding
from gateway.rules.model import ToMq, ToMqtt
from gateway.rules.templates import Slot, Template
from gateway.rules.trials import Test

PropertyRule = tuple[str, Template, str]
"""Name, template, type (empty: the value's own)."""


@dataclass(frozen=True, slots=True)
class InboundRule:
    """A rule from a topic to a queue."""

    position: int
    file: str
    line: int
    spec: ToMq
    levels: tuple[str, ...]
    """The topic pattern as an MQTT filter, level by level."""
    names: tuple[tuple[int, str], ...]
    """Captured levels: index and name; a name ending in `*` takes the rest."""
    queue: Template | None
    mq_topic: Template | None
    queue_manager: Template
    """What the queue manager's name is made from, and its text for people; if the rule has a list, `targets` counts."""
    targets: tuple[str, ...] = ()
    """The queue managers of which one takes each message."""
    properties: tuple[PropertyRule, ...] = ()
    group_by: Template | None = None
    group_sequence: Template | None = None
    group_last: Template | None = None
    correlation: Template | None = None
    user: Template | None = None
    application_data: Template | None = None
    schema: str | None = None
    """Text of the JSON Schema."""
    manager_at: tuple[int, int] = (1, 1)
    """Line and column of `queue_manager`."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def in_turn(self) -> bool:
        """Whether the targets take messages in turn."""
        return self.spec.spread == "round_robin"

    @property
    def filter(self) -> str:
        return "/".join(self.levels)


@dataclass(frozen=True, slots=True)
class OutboundRule:
    """A rule from a queue to topics."""

    position: int
    file: str
    line: int
    spec: ToMqtt
    topic: Template | None
    client: Template | None = None
    response_topic: Template | None = None
    manager_at: tuple[int, int] = (1, 1)
    """Line and column of `queue_manager`."""
    slots: tuple[Slot, ...] = field(init=False, repr=False, compare=False)
    """All slots of its templates."""
    json_fields: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """Those of them that are fields of a JSON body."""
    targets: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The targets whose queues are consumed; if there are none, the queue of the gateway's own queue manager is."""

    def __post_init__(self) -> None:
        templates = (self.topic, self.client, self.response_topic)
        object.__setattr__(self, "targets", tuple(self.spec.queue_manager))
        slots = tuple(slot for template in templates if template is not None for slot in template.slots)
        object.__setattr__(self, "slots", slots)
        object.__setattr__(self, "json_fields", tuple({slot.name: None for slot in slots if slot.kind == "json"}))

    @property
    def name(self) -> str:
        return self.spec.name


@dataclass(frozen=True, slots=True)
class PlacedTest:
    """A test with its file and line."""

    file: str
    line: int
    column: int
    test: Test


@dataclass(frozen=True, slots=True)
class Mappings:
    """The content of all mapping files, in order; `warnings` are findings that do not prevent its use."""

    to_mq: tuple[InboundRule, ...] = ()
    to_mqtt: tuple[OutboundRule, ...] = ()
    tests: tuple[PlacedTest, ...] = ()
    dead_letter_unmatched: bool = False
    warnings: tuple[Finding, ...] = field(default=())
    empty: tuple[str, ...] = ()
    """Files that were empty when they were read."""
    hidden_by: dict[str, str] = field(default_factory=dict)
    """Rules that are never reached, by name, and the earlier rules that take everything they match."""

"""From queues to devices: get, translate, hand over, in one unit of work each batch. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.routing.table import Table

if TYPE_CHECKING:
    from gateway.broker.engine import Engine


class Consumers:
    """The rules from queues to topics, at work."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def start(self, table: Table) -> None:
        """Begin to consume."""
        del table

    def use(self, table: Table) -> None:
        """New rules."""
        del table

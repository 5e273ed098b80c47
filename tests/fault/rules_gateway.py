"""mqgate that meets a defect when it puts rules into force: where one of them is called `begun`, before what they
consume is, and where one is called `done`, after that; where one is called `never`, also when others are to follow."""

from __future__ import annotations

import sys

from gateway.broker.deliver.consumers import Consumers
from gateway.cli import main
from gateway.routing.table import Table

USE = Consumers.use
MET: list[str] = []


def use(consumers: Consumers, table: Table) -> None:
    """As ever, but for these rules."""
    names = {route.rule.name for route in table.routes}
    if names & {"begun", "never"} or MET:
        MET.extend(names & {"never"})
        raise KeyError("a defect")
    USE(consumers, table)
    if "done" in names:
        raise KeyError("a defect")


Consumers.use = use  # type: ignore[method-assign]

if __name__ == "__main__":
    sys.exit(main.main())

"""A gateway with a defect: `MQGATE_DEFECT` names a public function (`failpoints.points`) that raises as long as the
file `MQGATE_DEFECT_WHILE` exists, from where the gateway begins to look at what it has stored. Before that it reads its
settings and rules, and whoever has changed them sees that it does not start."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from failpoints import Armed, armed, points

import gateway.app.gateway
import gateway.cli.run
from gateway.broker.engine import Engine
from gateway.cli.main import main

ALREADY_LOADED = gateway.app.gateway, gateway.cli.run
"""So that names of the function in these modules are found too."""


class WhileThereIsAFile(Armed):
    """On as long as the file exists."""

    def reached(self) -> None:
        self.on = STARTED.is_set() and Path(os.environ["MQGATE_DEFECT_WHILE"]).exists()
        super().reached()


STARTED = threading.Event()
RECOVER = Engine.recover


def recover(engine: Engine, *arguments: Any) -> Any:
    """As ever, with the defect from now on."""
    STARTED.set()
    return RECOVER(engine, *arguments)


if __name__ == "__main__":
    Engine.recover = recover  # type: ignore[method-assign, assignment]
    name = os.environ["MQGATE_DEFECT"]
    (point,) = [point for point in points() if point.name == name]
    with armed(point, WhileThereIsAFile()):
        main()

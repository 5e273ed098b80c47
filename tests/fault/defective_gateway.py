"""A gateway with a defect: `MQGATE_DEFECT` names a public function (`failpoints.points`) that raises as long as the
file `MQGATE_DEFECT_WHILE` exists."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from failpoints import Armed, armed, points

import gateway.app.gateway
import gateway.cli.run
from gateway.cli.main import main

ALREADY_LOADED = gateway.app.gateway, gateway.cli.run
"""So that names of the function in these modules are found too."""


class WhileThereIsAFile(Armed):
    """On as long as the file exists."""

    def reached(self) -> None:
        self.on = Path(os.environ["MQGATE_DEFECT_WHILE"]).exists()
        super().reached()


if __name__ == "__main__":
    name = os.environ["MQGATE_DEFECT"]
    (point,) = [point for point in points() if point.name == name]
    with armed(point, WhileThereIsAFile()):
        main()

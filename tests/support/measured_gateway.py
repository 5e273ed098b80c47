"""A gateway that writes down its own turns: `python measured_gateway.py run ...` is `mqgate run ...`.

Each turn of the reactor that computed for more than NOTED seconds is a line of JSON in the file that MQGATE_TURNS
names: seconds of the processor, seconds of the clock, what took longest, for whom, and where the reactor was. The
processor's time is that of the reactor's thread alone, so that a machine with other work changes little of it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from time import monotonic, thread_time

from gateway.cli import main
from gateway.net import hub, turns

NOTED = 0.02


class MeasuredTurns(turns.Turns):
    """Looks at the processor's time at both ends of each turn."""

    def __init__(self) -> None:
        super().__init__(stall_seconds=NOTED)
        self._file = Path(os.environ["MQGATE_TURNS"]).open("a", buffering=1)  # noqa: SIM115 -- as long as the process
        self._from = 0.0

    def begin(self) -> None:
        super().begin()
        self._from = thread_time()

    def end(self) -> None:
        begun, computed = self.begun, thread_time() - self._from
        if begun and computed > NOTED:
            _, doing, who = self._slowest
            at = self._seen[1] if self._seen[0] == begun else ""
            self._file.write(json.dumps([computed, monotonic() - begun, doing, who, at]) + "\n")
        self._slowest, self.begun = (0.0, "", ""), 0.0


if __name__ == "__main__":
    turns._LOOK_SECONDS = NOTED / 2
    hub.Turns = MeasuredTurns  # type: ignore[misc]
    main()

"""Units handed from the reactor's thread to a worker's without waking Python there, and their outcomes back.

An idle worker is parked in its carrier. A unit that consists of puts to open queues is prepared in the reactor's
thread; the parked thread makes the calls, tells the reactor through a descriptor, and stays parked. So a batch costs
one wake-up each way, and no thread waits for the interpreter's lock. A refused unit comes back to the worker, which
continues as if it had made the calls itself. The reactor's thread never makes an MQI call. For a small unit of a queue
manager that has answered quickly it waits, for a fifth of a millisecond at most, and lets the other thread have its
core meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.backends.ibm import calls
from gateway.backends.ibm.calls import LEFT, THROUGH, Carried
from gateway.backends.ibm.connection import Connection
from gateway.backends.ibm.unit_of_work import Marker, can_be_carried
from gateway.ports.batch import Unit
from gateway.ports.state_queues import MARKERS

if TYPE_CHECKING:
    from gateway.backends.ibm._calls import Carrier, Result

AROUND = 3
"""MQI calls in addition to the puts of units that are committed together: two for the marker, and MQCMIT."""


class PostedUnits:
    """What one worker and the reactor share."""

    def __init__(self, carrier: Carrier, marker: Marker, *, can_status: bool) -> None:
        self._carrier = carrier
        self._marker = marker
        self._can_status = can_status
        self._posted: tuple[Unit, bytes] | None = None
        """The unit that the carrier has, and the marker in it."""
        self._awake = threading.Lock()
        """Held by the worker whenever it is not parked; marker, connection and outcomes are then its own."""
        self._heard = False
        self.calls = 0
        """MQI calls of what was posted and committed."""

    def tell(self, descriptor: int) -> None:
        """Set the descriptor by which the reactor learns that a unit is committed: from now on units are posted."""
        self._carrier.tell(descriptor)
        self._heard = True

    # The reactor's thread

    def post(self, unit: Unit, connection: Connection | None) -> int:
        """Have the parked worker carry out a unit; returns LEFT, POSTED or THROUGH."""
        if not self._heard or connection is None or not self._awake.acquire(blocking=False):
            return LEFT
        try:
            return self._post(unit, connection)
        finally:
            self._awake.release()

    def _post(self, unit: Unit, connection: Connection) -> int:
        """Post a unit without opening anything: a call that hangs must not hang the reactor."""
        if self._marker.offered is not None:
            return LEFT
        marker = connection.marked
        if marker is None:
            if not connection.has_open(MARKERS):
                return LEFT
            marker = self._marker.calls(connection)
        if not can_be_carried(unit, self._can_status):
            return LEFT
        runs = connection.runs(unit.puts, can_status=self._can_status, open_too=False)
        if runs is None:
            return LEFT
        offered = connection.new_id()
        handle, settled = connection.session.handle, self._marker.settled
        posted = self._carrier.post(handle, marker, settled, offered, runs, True)  # noqa: FBT003 -- and commit
        if posted != LEFT:
            self._posted = unit, offered  # nobody looks for it without `_awake`
        if posted == THROUGH:
            self._committed(self._carrier.take(False))  # noqa: FBT003 -- as in `collect`
        return posted

    def collect(self) -> Unit | None:
        """Returns the posted unit if it is committed; None also if the worker has taken its outcome."""
        if self._posted is None or not self._awake.acquire(blocking=False):
            return None
        try:
            return self._committed(self._carrier.take(False))  # noqa: FBT003 -- not what was refused
        finally:
            self._awake.release()

    # The worker's thread

    def begin(self) -> None:
        """The worker begins; it is awake."""
        self._awake.acquire()

    def wait(self, seconds: float) -> tuple[bool, Unit | None, Carried | None]:
        """Park until there is work for Python. Returns whether the time is over, a unit whose outcome the reactor has
        not taken, and the result of its calls if they were refused."""
        self._awake.release()
        back = self._carrier.wait(seconds)
        self._awake.acquire()
        late = back == calls.TIMED_OUT
        if back != calls.REFUSED:
            return late, self._committed(self._carrier.take(False)), None  # noqa: FBT003 -- as in `collect`
        found = self._carrier.take(True)  # noqa: FBT003 -- what was refused
        if found is None or self._posted is None:
            return late, None, None
        (unit, self._marker.offered), self._posted = self._posted, None
        return late, unit, Carried(found, [puts.queue for puts in unit.puts])

    def carry(self, connection: Connection, batch: Sequence[Unit]) -> Carried | None:
        """Make all calls of these units on this thread without the interpreter's lock, including the commit. Returns
        None if they have to be made one by one."""
        if not batch or not all(can_be_carried(unit, self._can_status) for unit in batch):
            return None
        many = [puts for unit in batch for puts in unit.puts]
        runs = connection.runs(many, can_status=self._can_status, open_too=True)
        if runs is None:
            return None
        marker, offered = self._marker.calls(connection), connection.new_id()
        handle, settled, self._marker.offered = connection.session.handle, self._marker.settled, offered
        result = self._carrier.carry(handle, marker, settled, offered, runs, True)  # noqa: FBT003 -- and commit
        return Carried(result, [puts.queue for puts in many])

    def wake(self) -> None:
        """Wake the worker, which has other work than the posted unit."""
        self._carrier.wake()

    def _committed(self, found: Result | None) -> Unit | None:
        if found is None or self._posted is None:
            return None
        (unit, self._marker.offered), self._posted = self._posted, None
        self._marker.settle(committed=True)
        for puts, ids in zip(unit.puts, found[5], strict=True):
            puts.tokens = ids
            self.calls += len(ids)
        self.calls += AROUND
        return unit

"""The MQI calls of a unit of work, made in C where there was a compiler at installation.

Next to a busy reactor, every call of a binding costs its thread a wait for the interpreter's lock. A `Carrier`
(`_calls.c`) makes all calls of a unit without it: it calls the client library by the addresses that the binding itself
uses. Where there is none, connection.py makes the same calls one by one.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gateway.errors import MQError

if TYPE_CHECKING:
    from gateway.backends.ibm._calls import Carrier, Result
    from gateway.backends.ibm.driver import Driver
    from gateway.ports.batch import Token, Unit

DONE, MARKER_GONE, MARKER_TAKEN, MARKER_PUT, PUT, COMMIT = range(6)
"""How far a unit got: `stage` of `_calls.c`."""
LEFT, POSTED, THROUGH = range(3)
"""The answer to posting a unit: it has to go through the worker's queue, is in progress, or is committed already."""
WOKEN, TIMED_OUT, REFUSED = range(3)
"""Why a parked thread is back in Python."""

_made: type[Carrier] | None = None
try:
    from gateway.backends.ibm._calls import Carrier as _Made

    _made = _Made if sys.byteorder == "little" else None  # descriptors are made little-endian, and patched in place
except ModuleNotFoundError:
    pass


def compiled() -> bool:
    """Whether units are carried out without the interpreter's lock."""
    return _made is not None


def carrier(driver: Driver) -> Carrier | None:
    """Returns a carrier for one connection's thread; None if calls are made one by one."""
    path = driver.extension.__file__
    if _made is None or not isinstance(path, str):
        return None
    try:
        library = ctypes.CDLL(path)  # loaded already: the names are those of what it is linked with
        put, get, commit = (_address(library, name) for name in ("MQPUT", "MQGET", "MQCMIT"))
    except (AttributeError, OSError):
        return None
    return _made(put, get, commit)


def _address(library: ctypes.CDLL, name: str) -> int:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0


class Carried:
    """The result of a unit's calls, reported as the single calls would have reported it."""

    __slots__ = ("_queues", "_reason", "_run", "ids", "rows", "stage")

    def __init__(self, result: Result, queues: list[str]) -> None:
        self.stage, self._run, self.rows, _, self._reason, self.ids = result
        self._queues = queues

    def of_units(self, units: Iterable[Unit]) -> list[list[list[Token]]]:
        """Returns the MsgIds for each run of each unit."""
        ids: Iterator[list[Token]] = iter(self.ids)  # type: ignore[arg-type]
        return [[next(ids) for _ in unit.puts] for unit in units]

    def check_puts(self, markers: str) -> None:
        """Raise MQError if a call before the commit was refused."""
        if self.stage == PUT:
            raise MQError(self._reason, f"putting to {self._queues[self._run]}")
        if self.stage in {MARKER_TAKEN, MARKER_PUT}:
            what = "taking from" if self.stage == MARKER_TAKEN else "putting to"
            raise MQError(self._reason, f"{what} {markers}")

    def check_commit(self) -> None:
        """Raise MQError if MQCMIT was refused."""
        if self.stage == COMMIT:
            raise MQError(self._reason, "MQCMIT")

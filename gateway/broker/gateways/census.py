"""What the gateways on the same state queues are and do, as each tells the others every few seconds. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from gateway.ports.ownership import Message

INTERVAL = 10.0
"""Seconds between two reports of a gateway."""
SILENT = 6 * INTERVAL
"""A gateway that has not been heard of for this long no longer counts."""


class Gateway(NamedTuple):
    """One gateway."""

    instance: str
    """Its name among those that share the state queues; empty if it is alone."""
    name: str
    version: str
    started: float
    """Seconds since the epoch, by its own clock."""
    heard: float | None
    """When it was last heard of, by this gateway's clock; None: never, its lease alone is known."""
    figures: dict[str, int]
    """Its figures, by name."""
    rates: dict[str, float] = {}  # noqa: RUF012 -- of a tuple, and never changed
    """How fast its figures grow per second, between its last two reports."""
    page: str = ""
    """The address of its administration page, as it reports it."""
    lease: float | None = None
    """For how many seconds its lease has not changed; None: it has no lease, or it is this gateway itself."""
    own: bool = False
    heard_at: float = 0.0
    """When it was last heard of, by a clock that never jumps."""


class Census:
    """All gateways, as this one knows them."""

    def __init__(
        self,
        instance: str = "",
        peers: Callable[[], Collection[str]] = frozenset,
        leases: Callable[[], Mapping[str, float]] = dict,
        lease_seconds: float = 0.0,
    ) -> None:
        self.instance = instance
        self.lease_seconds = lease_seconds
        self.name = ""
        self.version = ""
        self.started = 0.0
        """When this gateway started, as its name and version set by whoever runs it."""
        self.page = ""
        self.write: Callable[[str, Message], None] = lambda _to, _message: None
        self._peers = peers
        self._leases = leases
        self._others: dict[str, Gateway] = {}
        self._own = Gateway(instance, "", "", 0.0, None, {}, own=True)
        self._told: set[str] = set()
        self._due = 0.0

    def is_due(self, seconds: float) -> bool:
        """Whether `report` will look at this gateway's figures."""
        return seconds >= self._due

    def report(self, now: float, seconds: float, figures: Callable[[], dict[str, int]]) -> bool:
        """Called once a second: at each interval, look at this gateway's figures and tell the others; a gateway that
        has just come is told at once. Returns whether the interval was over. `seconds`: the time of a clock that never
        jumps, here and below."""
        peers = set(self._peers())
        strange, self._told = peers - self._told, peers
        if not self.is_due(seconds):
            self._tell(strange)
            return False
        self._due = seconds + INTERVAL
        counted = figures()
        rates = _rates(self._own, counted, seconds)
        self._own = Gateway(
            self.instance, self.name, self.version, self.started, now, counted, rates, self.page, own=True,
            heard_at=seconds,
        )  # fmt: skip
        self._tell(peers)
        return True

    def _tell(self, peers: Collection[str]) -> None:
        own = self._own
        for peer in peers:
            self.write(peer, {"kind": "census", "name": own.name, "version": own.version, "started": own.started,
                              "figures": own.figures, "page": own.page})  # fmt: skip

    def heard(self, message: Message, now: float, seconds: float) -> None:
        """Note what another gateway reports about itself."""
        sender = message["from"]
        figures = {str(name): int(value) for name, value in message["figures"].items()}
        name, version, started = str(message["name"]), str(message["version"]), float(message["started"])
        page = str(message.get("page", ""))  # earlier releases say none
        page = page if page.startswith(("http://", "https://")) else ""
        before = self._others.get(sender)
        rates = _rates(before, figures, seconds) if before is not None and before.started == started else {}
        self._others[sender] = Gateway(sender, name, version, started, now, figures, rates, page, heard_at=seconds)

    def gateways(self, now: float) -> list[Gateway]:
        """This one first, then the others by name."""
        own = self._own._replace(name=self.name, version=self.version, started=self.started, heard=now, page=self.page)
        return [own, *sorted(self._known(), key=lambda one: (one.name, one.instance))]

    def _known(self) -> Iterator[Gateway]:
        peers = self._peers()
        for gone in self._others.keys() - peers:
            del self._others[gone]
        leases = self._leases()
        for peer in peers:
            known = self._others.get(peer) or Gateway(peer, "", "", 0.0, None, {})
            yield known._replace(lease=leases.get(peer))

    def others(self, name: str, seconds: float) -> int:
        """The sum of the other gateways' figures of one name."""
        known = (one for one in self._known() if one.heard is not None and seconds - one.heard_at <= SILENT)
        return sum(one.figures.get(name, 0) for one in known)

    def count(self) -> int:
        """How many gateways there are."""
        return 1 + sum(1 for _ in self._known())


def _rates(before: Gateway | None, figures: Mapping[str, int], seconds: float) -> dict[str, float]:
    """How fast a gateway's figures have grown per second since its report before."""
    if before is None or before.heard is None or seconds <= before.heard_at:
        return {}
    past, passed = before.figures, seconds - before.heard_at
    return {name: max(0, value - past[name]) / passed for name, value in figures.items() if name in past}

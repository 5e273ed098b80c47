"""What has to be known of a publication that very many get, on its way, and of those that go along with it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from gateway.broker.deliver.fan_out import Prefixes, Runs

if TYPE_CHECKING:
    from gateway.broker.deliver.promise import Promise
    from gateway.broker.publish.route import Route
    from gateway.session.connection import Connection
    from gateway.session.publication import Publication
    from gateway.session.session import Session

MOST_JOINED, MOST_JOINED_BYTES = 15, 256 << 10
"""The most publications that go along with another one, and the bytes of all of them."""
Over = Callable[[int], None]
"""Called with the number of subscribers that had no room."""


class Together(NamedTuple):
    """Publications that are copied for the same subscribers."""

    every: list[UnderWay]
    runs: Runs
    topics: list[str]
    """That of each."""
    prefixes: list[Prefixes]
    """The heads of the stored copies of each."""
    several: frozenset[str]
    """Their topics, if they have several."""
    publishers: frozenset[str]


NOBODY = Together([], Runs([]), [], [], frozenset(), frozenset())
"""Those of a publication of which no copies are made yet."""


@dataclass(slots=True, eq=False)
class UnderWay:
    """A publication on its way."""

    publication: Publication
    rule: str
    connection: Connection | None
    """The publisher's connection, held until the publication is over."""
    over: Over
    steps: Iterator[int]
    """The steps still to be made; each yields its number of copies, those without room included. 0: it took time all
    the same."""
    promise: Promise | None = None
    copies: int = 0
    missed: int = 0
    route: Route | None = None
    """The route of a publication by a device."""
    elsewhere: Collection[str] = ()
    """The shared subscriptions that other gateways serve."""
    others: list[UnderWay] = field(default_factory=list)
    """Publications that came behind it, are like it, and go along with it."""
    is_begun: bool = False
    served: set[Session | str] | None = None
    """The sessions and shared subscriptions that have a copy, from the moment at which other gateways have it: sessions
    come and go between them. None where there are no others."""
    together: Together = NOBODY
    """This publication and those that go along with it, from the moment at which copies may be made."""

    @property
    def every(self) -> list[UnderWay]:
        """This publication and those that go along with it."""
        return [self, *self.others]

    @property
    def is_careful(self) -> bool:
        """Whether each copy is a unit of its own."""
        return self.promise is not None and self.promise.careful

    def has_room(self, size: int) -> bool:
        """Whether one more publication, of this many bytes, may go along with it."""
        together = size + sum(len(one.publication.payload) for one in self.every)
        return len(self.others) < MOST_JOINED and together <= MOST_JOINED_BYTES

    def set_out(self) -> Together:
        """Note who goes together from now on."""
        publications = [one.publication for one in self.every]
        topics = [one.topic.decode() for one in publications]
        several = frozenset(topics)
        self.together = Together(
            self.every, Runs(publications), topics, [Prefixes() for _ in publications],
            several if len(several) > 1 else frozenset(), frozenset(one.client_id for one in publications),
        )  # fmt: skip
        return self.together

    def step(self, *, copied: bool, of: int = 1) -> int:
        """Count copies as made, or as lost for want of room; returns their number."""
        if copied:
            self.copies += of
        else:
            self.missed += of
        return of

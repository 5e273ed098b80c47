"""Which gateways that are no more are still being taken over from, where a session waits for what one of them has left.
Pure.

A session that had moved from a first gateway to a second one, both of which are no more, gets what lies for the first.
The successor of that says when it has handed all of it over. Whoever takes over from the second may have missed that:
it asks the others, and waits only if one of them is at it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from gateway.broker.gateways.interests import Interests
from gateway.broker.gateways.moves import Moves
from gateway.ports.ownership import Message


class Unfinished:
    """Tells sessions that have come from gateways that are no more when all that lay for those is handed over."""

    def __init__(
        self, moves: Moves, interests: Interests, expired_owners: Callable[[], Collection[str]],
        write: Callable[[str, Message], None],
    ) -> None:  # fmt: skip
        """`expired_owners`: gateways from which this one takes over."""
        self.moves = moves
        self.interests = interests
        self.expired_owners = expired_owners
        self.write = write
        self._others: set[str] = set()
        """Gateways of which others have said that they are taking over from them."""
        self._done: set[str] = set()
        """Those of this gateway's whose publications it has just handed over."""

    def here(self, gateway: str) -> None:
        """This gateway has handed over all that lay for one from which it takes over."""
        self._done.add(gateway)
        self.moves.handed_over(gateway)

    def elsewhere(self, gateway: str) -> None:
        """Another gateway has."""
        self._others.discard(gateway)
        self.moves.handed_over(gateway)

    def settled(self, gateways: Collection[str]) -> None:
        """Nothing names them any more."""
        self._done.difference_update(gateways)

    def settle(self) -> None:
        """This gateway has handed over all that lay for those from which it takes over: have sessions go on that wait
        for others, unless somebody is about to hand over what lies for these."""
        awaited = self.moves.awaited().difference(self.expired_owners())
        if awaited:
            self.interests.say("unfinished?", "")
            self.interests.ask_all(lambda: self._go_on(awaited))

    def _go_on(self, awaited: Collection[str]) -> None:
        for gateway in awaited:
            if gateway not in self._others:
                self.moves.handed_over(gateway)

    def on_message(self, message: Message) -> None:
        """Another gateway asks from which ones this one takes over, or answers."""
        if message["kind"] == "unfinished?":
            gateways = sorted(set(self.expired_owners()) - self._done)
            self.write(message["from"], {"kind": "unfinished", "gateways": gateways})
        elif message["kind"] == "unfinished":
            self._others.update(message["gateways"])

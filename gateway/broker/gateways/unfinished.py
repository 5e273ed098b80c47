"""Which gateways that are no more are still being taken over from, in case a session waits for what one of them has
left. Pure.

A session that had moved from a first gateway to a second one, both of which are no more, gets what lies for the first.
That gateway's successor says when it has handed all of it over. Whoever takes over from the second may have missed
that: it asks the others, and waits only if one of them is still handing over.

A gateway that begins asks likewise. What is published there is put for the sessions, too, that nobody has read yet: it
has never heard what their clients subscribe to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from gateway.broker.gateways.interests import Interests
from gateway.broker.gateways.session_moves import SessionMoves
from gateway.ports.ownership import LONG_MESSAGES, Message


class Unfinished:
    """Tells sessions that have come from gateways that are no more when everything that lay for those is handed
    over."""

    def __init__(
        self, moves: SessionMoves, interests: Interests, expired_owners: Callable[[], Collection[str]],
        write: Callable[[str, Message], None],
    ) -> None:  # fmt: skip
        """`expired_owners`: gateways from which this one takes over."""
        self.moves = moves
        self.interests = interests
        self.to_others = moves.to_others
        self.expired_owners = expired_owners
        self.write = write
        moves.unread_here = self._unread_here
        moves.to_others.all_read = self._all_read
        self._others: set[str] = set()
        """Gateways from which others have said that they are taking over."""
        self._unread: set[str] = set()
        """Those among them whose sessions may not be read yet."""
        self._said_gone: set[str] = set()
        """Gateways from which this one takes over and whose sessions it has read, and has said so."""
        self.unread: set[str] = set()
        """Gateways that had ended before this one began, and whose sessions are not read yet: it is not known here what
        their clients want, nor in which shared subscriptions they are."""
        self._done: set[str] = set()
        """Gateways from which this one takes over and whose publications it has just handed over."""

    def ask(self) -> None:
        """Ask the others from whom they take over; they answer before they say that they have heard."""
        self.interests.say("unfinished?", "")

    def put_for_unread(self) -> None:
        """Called when this gateway begins and the others have answered: what is published here is put for the sessions,
        too, that nobody has read yet."""
        self.unread = {*self._unread, *self.expired_owners()} - {""}
        if self._all_read(LONG_MESSAGES):
            self._put_for({*self.unread})
        self._unread.clear()

    def _all_read(self, reads: int) -> bool:
        return all(self.to_others.reads(peer) >= reads for peer in self.interests.peers())

    def _put_for(self, gateways: set[str]) -> None:
        """Put everything for these gateways, too, from now on."""
        if gateways != self.to_others.unread:
            self.to_others.unread = gateways
            self.interests.router.touch()

    def _unread_here(self) -> set[str]:
        return set(self.expired_owners()).difference(self._said_gone, {""})

    def gone_here(self, gateway: str) -> None:
        """The sessions of a gateway from which this one takes over are read: tell all others that it is gone."""
        self._said_gone.add(gateway)
        self.unread.discard(gateway)
        self._put_for(self.to_others.unread - {gateway})
        self.interests.say_gone(gateway)

    def gone_elsewhere(self, gateway: str) -> bool:
        """Another gateway has said that one is gone: nothing is put for that one any more. Returns whether it was the
        last of those that had ended before this gateway began."""
        waited = bool(self.unread)
        self._unread.discard(gateway)
        self.unread.discard(gateway)
        self._put_for(self.to_others.unread - {gateway})
        self.interests.forget(gateway)
        return waited and not self.unread

    def here(self, gateway: str) -> None:
        """Note that this gateway has handed over all that lay for one from which it takes over."""
        self._done.add(gateway)
        self.moves.handed_over(gateway)

    def elsewhere(self, gateway: str) -> None:
        """Note that another gateway has handed over all that lay for a gateway."""
        self._others.discard(gateway)
        self.moves.handed_over(gateway)

    def settled(self, gateways: Collection[str]) -> None:
        """Forget gateways that nothing stored names any more."""
        self._done.difference_update(gateways)
        self._said_gone.difference_update(gateways)

    def settle(self) -> None:
        """Called when this gateway has handed over all that lay for those from which it takes over: let sessions go on
        that wait for other gateways, unless somebody is about to hand over what lies for these."""
        awaited = self.moves.awaited().difference(self.expired_owners())
        if awaited:
            self.ask()
            self.interests.ask_all(lambda: self._go_on(awaited))

    def _go_on(self, awaited: Collection[str]) -> None:
        for gateway in awaited:
            if gateway not in self._others:
                self.moves.handed_over(gateway)

    def on_message(self, message: Message) -> None:
        """Take another gateway's question from which ones this one takes over, or its answer."""
        if message["kind"] == "unfinished?":
            expired = set(self.expired_owners()) - {""}
            found = {"gateways": sorted(expired - self._done), "unread": sorted(self._unread_here())}
            self.write(message["from"], {"kind": "unfinished", **found})
        elif message["kind"] == "unfinished":
            self._others.update(message["gateways"])
            self._unread.update(message["unread"])

"""Which publications other gateways want, where several share the state queues. Pure.

Each gateway tells the others the filters that its clients subscribe to, when the first of them subscribes and when the
last one goes; so a publication that nobody wants elsewhere costs nothing. SUBACK waits until all others have answered:
what anybody publishes after it is forwarded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import takewhile
from typing import NamedTuple

from gateway.broker.context import Context
from gateway.broker.publish.router import Router
from gateway.ports.ownership import Message
from gateway.routing.filters import Interest

_PAGE_BYTES = 16 * 1024
"""Bytes of filters in one message, which has to be short: clients choose how many there are, and how long."""
_ANY = Interest(2)


class _Waiting(NamedTuple):
    call: Callable[[], None]
    unheard: set[str]
    """Gateways that have not answered."""


class Interests:
    """The filters of this gateway's clients as the others know them, and the filters of the others."""

    def __init__(
        self, context: Context, router: Router, instance: str, peers: Callable[[], Collection[str]],
        write: Callable[[str, Message], None],
    ) -> None:  # fmt: skip
        self.context = context
        self.router = router
        self.instance = instance
        self.peers = peers
        self.write = write
        self._own: dict[str, int] = {}
        """How many of this gateway's clients subscribe to each filter."""
        self._changes: dict[str, bool] = {}
        """Filters that the others have still to be told of, and whether they are wanted now."""
        self.told: set[str] = set()
        """Gateways that know all of `_own`."""
        self._unconfirmed: dict[str, int] = {}
        """Filters that some gateway may not know yet, with the number of the question whose answers say that all do."""
        self._number = 0
        self._waiting: dict[int, _Waiting] = {}
        self._calls: list[Callable[[], None]] = []
        """Calls of this turn that wait until all others know some filters."""
        router.on_interest = self._changed

    # -- this gateway's --

    def _changed(self, filter_: str, by: int) -> None:
        """A session of this gateway subscribes to a filter (1), or no longer does (-1)."""
        before = self._own.get(filter_, 0)
        after = before + by
        if after > 0:
            self._own[filter_] = after
        else:
            self._own.pop(filter_, None)
            self._unconfirmed.pop(filter_, None)
        if before <= 0 < after:
            self._note(filter_, wanted=True)
            if self.told:
                self._unconfirmed.pop(filter_, None)  # they are in the order of their numbers
                self._unconfirmed[filter_] = self._number + 1
        elif after <= 0 < before:
            self._note(filter_, wanted=False)

    def _note(self, filter_: str, *, wanted: bool) -> None:
        """Have a change told to all others along with what follows, many in one message: at the latest when this batch
        is committed, and before anything else that is written to them."""
        if not self.told:
            return
        if not self._changes:
            self.context.batch.after.append(self.write_changes)
        if self._changes.get(filter_, wanted) is wanted:
            self._changes[filter_] = wanted
        else:
            del self._changes[filter_]  # as they know it

    def write_changes(self) -> None:
        """Tell the others what has changed."""
        if not self._changes:
            return
        changes, self._changes = self._changes, {}
        for what, wanted in (("add", True), ("drop", False)):
            for page in pages([filter_ for filter_, now in changes.items() if now is wanted]):
                for peer in sorted(self.told):
                    self.write(peer, {"kind": "interest", what: page})

    def introduce(self, peer: str) -> None:
        """Tell a gateway all filters, the first time it is heard of. A message of a gateway that is no more may be read
        after its end; that one would answer nothing, and is told nothing."""
        if peer == self.instance or peer in self.told or peer not in self.peers():
            return
        self.write_changes()
        self.told.add(peer)
        for page in pages(self._own):
            self.write(peer, {"kind": "interest", "add": page})

    def when_known(self, filters: Collection[str], call: Callable[[], None]) -> bool:
        """Make a call when all others know these filters. Returns False, without calling, if they do already. One
        question serves all who want to know in a turn: many clients may come together, and each may send many
        SUBSCRIBEs."""
        if not any(filter_ in self._unconfirmed for filter_ in filters):
            return False
        self._calls.append(call)
        if len(self._calls) == 1:
            self.context.scheduler.soon(self._ask_for_calls)
        return True

    def _ask_for_calls(self) -> None:
        calls, self._calls = self._calls, []

        def known() -> None:
            for call in calls:
                self.context.set_aside.run("call", "a SUBSCRIBE that other gateways know of", call)
                self.context.close_full()

        self.ask_all(known)
        self.context.flush()

    def ask_all(self, call: Callable[[], None], *, oneself: bool = False, key: bytes = b"") -> None:
        """Make a call when all others have read what has been written to them so far; at once if there are none.
        `oneself`: this gateway must have read its own messages, too. `key`: names a queue of a target; the others'
        answers are committed after what they have dealt with of it, and they look again at what else they have got of
        it (`Context.on_doubt`)."""
        self._number += 1
        unheard = {*self.told, self.instance} if oneself else set(self.told)
        if not unheard:
            call()
            return
        self._waiting[self._number] = _Waiting(call, unheard)
        for peer in sorted(unheard):
            about = {"consumed": key.hex()} if key else {}
            self.write(peer, {"kind": "heard?", "number": self._number} | about)

    def say_gone(self, owner: str) -> None:
        """Tell all others that this gateway has taken over from another: nothing is to be put for that one any more."""
        self.forget(owner)
        self.say("gone", owner)

    def say(self, kind: str, gateway: str) -> None:
        """Tell all others something about a gateway."""
        for peer in sorted(self.told):
            self.write(peer, {"kind": kind, "gateway": gateway})

    # -- others' --

    def on_message(self, message: Message) -> None:
        """Take another gateway's filters, its question whether it was heard, or its answer."""
        kind, sender = message["kind"], message["from"]
        if kind == "interest":
            for filter_ in message.get("add", ()):
                self.router.subscribe_elsewhere(sender, filter_, _ANY)
            for filter_ in message.get("drop", ()):
                self.router.unsubscribe_elsewhere(sender, filter_)
        elif kind == "heard?":
            if "consumed" in message:
                self.context.on_doubt(bytes.fromhex(message["consumed"]))
            self.write(sender, {"kind": "heard", "number": message["number"]})
        elif kind == "heard":
            self._heard(message["number"], sender)

    def _heard(self, number: int, peer: str) -> None:
        waiting = self._waiting.get(number)
        if waiting is None:
            return
        waiting.unheard.discard(peer)
        if not waiting.unheard:
            del self._waiting[number]
            for filter_ in list(takewhile(lambda one: self._unconfirmed[one] <= number, self._unconfirmed)):
                del self._unconfirmed[filter_]
            self.context.set_aside.run("call", "what waits for other gateways", waiting.call)

    def changed(self) -> None:
        """Other gateways have started or ended. What the clients of one that has ended wanted is put for it until its
        successor says that it is gone: its sessions want it."""
        peers = self.peers()
        for ended in sorted(self.told.difference(peers)):
            self.expect_nothing_of(ended)
        for peer in sorted(peers):
            self.introduce(peer)

    def forget(self, gone: str) -> None:
        """Forget the filters of a gateway that is no more, and whose sessions are another's."""
        work = self.router.forget_elsewhere(gone)
        self.context.slices.run(f"filters of {gone} {id(work)}", lambda: work)
        self.expect_nothing_of(gone)

    def expect_nothing_of(self, ended: str) -> None:
        """Wait for no more answers of a gateway that has ended."""
        self.told.discard(ended)
        for number in list(self._waiting):
            self._heard(number, ended)


def pages(filters: Collection[str]) -> Iterator[list[str]]:
    """Split filters into pages, each as large as one message may be."""
    page: list[str] = []
    size = 0
    for filter_ in filters:
        length = len(filter_.encode()) + 3
        if page and size + length > _PAGE_BYTES:
            yield page
            page, size = [], 0
        page.append(filter_)
        size += length
    if page:
        yield page

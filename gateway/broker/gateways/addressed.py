"""Messages from queues that a rule addresses to one device, which has its session at another gateway. Pure.

Nobody is told of each device where it is. So the message goes on to another gateway, as it lay on its queue, until one
has the session; the last one that has not does with it what is done with messages for unknown devices. It is put for
the next gateway in the unit of work that takes it here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gateway.broker.batch import Batch
from gateway.broker.context import Context
from gateway.broker.deliver.handover import PAUSE, Handover, Passed, Source
from gateway.broker.gateways.forwarded import Forwarded
from gateway.broker.gateways.session_moves import SessionMoves
from gateway.broker.gateways.to_others import ToOthers
from gateway.ports.batch import Scheduler, Stored, Token
from gateway.ports.state_queues import FORWARD
from gateway.session.publication import Publication

_MOST_REDIRECTS = 8
"""So often is a message sent after a session that moves, whoever was asked before."""
_REMEMBERED = 60.0
"""Seconds for which a message may be under way."""


class _Held:
    """Where a message lies that can neither be delivered nor dead-lettered for now."""

    __slots__ = ("_again", "key", "queue")

    def __init__(self, key: bytes, again: Callable[[Token], None]) -> None:
        self.queue, self.key = FORWARD, key
        self._again = again

    def leave(self, batch: Batch, token: Token) -> None:
        """The batch, which was refused, does not take it any more."""
        batch.takes[self.queue, self.key].tokens.remove(token)

    def stay(self, scheduler: Scheduler, token: Token) -> None:
        """It is read again after a while."""
        scheduler.later(PAUSE, partial(self._again, token))


class Addressed:
    """Finds the gateway that has the device."""

    def __init__(
        self, context: Context, to_others: ToOthers, moves: SessionMoves, others: Callable[[], set[str]],
        may_come: Callable[[str], bool],
    ) -> None:  # fmt: skip
        """`others`: gateways that take such messages; `may_come`: whether a client's session may be on its way here."""
        self.context = context
        self.to_others = to_others
        self.moves = moves
        self.others = others
        self.may_come = may_come
        self.instance = to_others.instance
        self._heirs: dict[str, tuple[str, float]] = {}
        """Gateways that are no more: their heirs, and when that was heard."""
        self.handover: Handover
        """Set by the engine."""

    def pass_on(self, device: str, rule: str, source: Source, stored: Stored, request: bytes) -> bool:
        """Put a message for the next gateway, in the open batch; its device has no session here. False: there is no
        other gateway that may have it. `request`: what it answers."""
        before = source.passed or Passed()
        tried = {*before.tried, self.instance}
        message = Publication(source.queue.encode(), stored.data, 1, False, report=stored.md)  # noqa: FBT003
        forwarded = Forwarded(message, to=sorted(tried), device=device, rule=rule, request=request.hex())
        if before.redirects < _MOST_REDIRECTS and self._goes_after(forwarded, before.redirects + 1):
            return True
        if self._heirs.keys() - tried:  # nobody can say any more to whom that one gave the session: all are asked again
            tried = {self.instance, *self._heirs}
        following = sorted(self.others() - tried, key=lambda one: (one < self.instance, one))
        if following:
            self.to_others.put(following[:1], forwarded._replace(to=sorted(tried), redirects=before.redirects))
        return bool(following)

    def _goes_after(self, forwarded: Forwarded, redirects: int) -> bool:
        """Whether it is put where the session is going, or waits for it here."""
        device, moved = forwarded.device, self.moves.went(forwarded.device)
        to = self.instance if moved is None else self._living(moved[0])
        if not (self.may_come(device) if to == self.instance else self.to_others.reads(to)):
            return False
        epoch = 0 if moved is None else moved[1] + (to == self.instance)  # it comes back
        self.to_others.put([to], forwarded._replace(client=device, epoch=epoch, redirects=redirects))
        return True

    def over(self, gateway: str, heir: str) -> None:
        """A gateway is no more, and its sessions are another's, or are going to be."""
        now = self.context.scheduler.monotonic()
        for one, (_, then) in list(self._heirs.items()):
            if now - then > _REMEMBERED:
                del self._heirs[one]
        self._heirs[gateway] = heir, now

    def _living(self, gateway: str) -> str:
        """Who has what this gateway had."""
        for _ in self._heirs:  # what others say of heirs may be old, and go in a circle
            if gateway not in self._heirs:
                break
            gateway = self._heirs[gateway][0]
        return gateway

    def arrived(self, forwarded: Forwarded, key: bytes, token: Token, again: Callable[[Token], None]) -> None:
        """Another gateway has passed one on, or this one has waited for its device. `again`: have it read once more."""
        message = forwarded.publication
        passed = Passed(_Held(key, again), forwarded.to, forwarded.redirects)
        stored = Stored(token, message.report, message.payload)
        request = bytes.fromhex(forwarded.request)
        self.handover.passed(forwarded.rule, message.topic.decode(), stored, request, passed)

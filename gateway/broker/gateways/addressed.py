"""Messages from queues that a rule addresses to one device whose session is at another gateway. Pure.

No gateway is told where each device is. So the message, as it lay on its queue, goes on to one gateway after the other
until one has the session; the last one that has not treats it as a message for an unknown device. It is put for the
next gateway in the unit of work that takes it here.
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
"""How often a message is sent after a session that moves, even to gateways that were asked before."""
_REMEMBERED = 60.0
"""Seconds that a message may be under way."""


class _Held:
    """The place of a message that can neither be delivered nor dead-lettered for now."""

    __slots__ = ("_again", "key", "queue")

    def __init__(self, key: bytes, again: Callable[[Token], None]) -> None:
        self.queue, self.key = FORWARD, key
        self._again = again

    def leave(self, batch: Batch, token: Token) -> None:
        """Leave the message out of the batch, which was refused."""
        batch.takes[self.queue, self.key].tokens.remove(token)

    def stay(self, scheduler: Scheduler, token: Token) -> None:
        """Have the message read again after a while."""
        scheduler.later(PAUSE, partial(self._again, token))


class Addressed:
    """Finds the gateway that has a device's session."""

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
        """Gateways that are no more, with their heirs and when that was heard."""
        self.handover: Handover
        """Set by the engine."""

    def pass_on(self, device: str, rule: str, source: Source, stored: Stored, request: bytes) -> bool:
        """Put a message, whose device has no session here, for the next gateway, in the open batch. Returns False if no
        other gateway may have the session. `request`: the request that it answers."""
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
        """Whether the message is put for the gateway to which the session is going, or waits for the session here."""
        device, moved = forwarded.device, self.moves.went(forwarded.device)
        to = self.instance if moved is None else self._living(moved[0])
        if not (self.may_come(device) if to == self.instance else self.to_others.reads(to)):
            return False
        epoch = 0 if moved is None else moved[1] + (to == self.instance)  # it comes back
        self.to_others.put([to], forwarded._replace(client=device, epoch=epoch, redirects=redirects))
        return True

    def over(self, gateway: str, heir: str) -> None:
        """Note that a gateway is no more, and that its sessions are the heir's, or are going to be."""
        now = self.context.scheduler.monotonic()
        for one, (_, then) in list(self._heirs.items()):
            if now - then > _REMEMBERED:
                del self._heirs[one]
        self._heirs[gateway] = heir, now

    def _living(self, gateway: str) -> str:
        """The gateway that has what this gateway had."""
        for _ in self._heirs:  # what others say of heirs may be old, and go in a circle
            if gateway not in self._heirs:
                break
            gateway = self._heirs[gateway][0]
        return gateway

    def arrived(self, forwarded: Forwarded, key: bytes, token: Token, again: Callable[[Token], None]) -> None:
        """Take a message that another gateway has passed on, or that has waited here for its device. `again`: has it
        read once more."""
        message = forwarded.publication
        passed = Passed(_Held(key, again), forwarded.to, forwarded.redirects)
        stored = Stored(token, message.report, message.payload)
        request = bytes.fromhex(forwarded.request)
        self.handover.passed(forwarded.rule, message.topic.decode(), stored, request, passed)

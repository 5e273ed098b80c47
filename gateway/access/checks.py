"""Passwords whose check takes long: a few at a time on threads of their own; the others wait their turn, address by
address, and are asked again before it comes whether they are still to be checked.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from gateway.access.logins import Answer
from gateway.access.waiting_threads import WaitingThreads
from gateway.ports.batch import Scheduler

THREADS, WAITING_THREADS, BATCH_THREADS = 2, 8, 100
"""Checks at a time: a processor has no more to give; where others are asked, who take long and no processor, more;
where questions that come together go together, as many as go in the requests that may be under way (`webhook`)."""
AT_ONCE = 16
"""Those that need no check any more are told so a few in each turn: their clients come in all together."""
MAX_WAITING = 1024
MAX_WAITING_OF_ADDRESS = 256
"""A check takes tens of milliseconds: beyond this, a client would give up before its turn came."""


class Check(NamedTuple):
    """One check."""

    address: str
    wanted: Callable[[], bool]
    """Asked when its turn has come: whether it is still to be checked. If not, nobody is told by this module."""
    compute: Callable[[], Answer]
    """On a thread: who was accepted."""
    computed: Callable[[Answer], None]
    """Told of it, on the reactor's thread."""
    user: str = ""
    given_up: Callable[[], None] = lambda: None
    """Told that too many wait by now, and that it will not be checked."""


class Checks:
    """Those that wait, and those under way."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.most = THREADS
        """How many run at a time."""
        self._threads = WaitingThreads(BATCH_THREADS, "passwords")
        self._waiting: OrderedDict[str, deque[Check]] = OrderedDict()
        self._count = self._running = 0

    def submit(self, check: Check) -> bool:
        """Have a password checked. False: too many wait, in all or from its address. There one of the user with the
        most makes way for one with less: who guesses at a user keeps out no other behind the same address."""
        queue = self._waiting.get(check.address)
        if queue is not None and len(queue) >= MAX_WAITING_OF_ADDRESS and not self._made_way(queue, check):
            return False
        if self._count >= MAX_WAITING:
            return False
        if queue is None:
            queue = self._waiting[check.address] = deque()
        queue.append(check)
        self._count += 1
        self._go_on()
        return True

    def _made_way(self, queue: deque[Check], check: Check) -> bool:
        counts = Counter(one.user for one in queue)
        [(user, most)] = counts.most_common(1)
        if counts[check.user] + 1 >= most:
            return False
        last = next(one for one in reversed(queue) if one.user == user)
        queue.remove(last)
        self._count -= 1
        last.given_up()
        return True

    def _go_on(self) -> None:
        """Begin as many as may run, one of each address in turn."""
        unwanted = 0
        while self._waiting and self._running < self.most:
            if unwanted >= AT_ONCE:
                self._scheduler.later(0.0, self._go_on)
                return
            address, queue = self._waiting.popitem(last=False)
            check = queue.popleft()
            self._count -= 1
            if queue:
                self._waiting[address] = queue
            if check.wanted():
                self._running += 1
                self._threads.submit(partial(self._compute, check))
            else:
                unwanted += 1

    def _compute(self, check: Check) -> None:
        """On a thread. What a check raises has accepted nobody."""
        try:
            user = check.compute()
        except Exception:  # noqa: BLE001
            user = None
        self._scheduler.soon(lambda: self._computed(check, user))

    def _computed(self, check: Check, user: Answer) -> None:
        self._running -= 1
        try:
            check.computed(user)
        finally:
            self._go_on()

    def close(self) -> None:
        """End the threads."""
        self._threads.close()

"""Checks of passwords that take long: a few at a time, on their own threads. The others wait for their turn, address by
address; when it comes, they are asked again whether the check is still wanted.
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
"""How many checks run at a time: two where the processor has no more to give; more if others are asked, which takes
long but no processor time; and if questions that come together are sent together (`webhook`), as many as go into the
requests that may be under way."""
AT_ONCE = 16
"""How many unwanted checks are dropped in one turn: the clients behind them are all let in at once."""
MAX_WAITING = 1024
MAX_WAITING_OF_ADDRESS = 256
"""How many checks may wait in all, and from one address. A check takes tens of milliseconds, so a client behind more
than these would give up before its turn came."""


class Check(NamedTuple):
    """A check that waits for its turn."""

    address: str
    wanted: Callable[[], bool]
    """Called when its turn has come; returns whether the check is still wanted. If it is not, it is dropped without
    another call."""
    compute: Callable[[], Answer]
    """Called on a thread; returns who was accepted."""
    computed: Callable[[Answer], None]
    """Called with that in the reactor's thread."""
    user: str = ""
    given_up: Callable[[], None] = lambda: None
    """Called if too many checks wait by now and this one will not be made."""


class Checks:
    """The checks that wait, and those under way."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.most = THREADS
        """How many may run at a time."""
        self._threads = WaitingThreads(BATCH_THREADS, "passwords")
        self._waiting: OrderedDict[str, deque[Check]] = OrderedDict()
        self._count = self._running = 0

    def submit(self, check: Check) -> bool:
        """Have a password checked. Returns False if too many wait, in all or from its address. If too many wait from
        its address, one of the user with the most makes way for a user with fewer, so that guesses at one user keep out
        no other user behind the same address."""
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
        """Begin as many checks as may run, one of each address in turn."""
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
        """Make a check on a thread. If it raises, nobody is accepted."""
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

"""Group commit: the open batch waits a moment for the clients that a slow commit has just answered. Pure. The broker
uses it for devices, the embedded queue manager for MQI programs.

While a commit takes milliseconds, clients with one message in flight fall into two groups: one waits for the commit
under way, the other is in the open batch, which would be submitted the moment that commit returns, before those it
answers can have sent anything. Each commit then carries half of the clients, and each message waits for two commits. If
those who are answered send again within a fraction of a commit, one commit carries them all. If they do not, as with
devices that are far away or have something to say only now and then, the batch waits after fewer and fewer commits.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Client = TypeVar("Client", bound=Hashable)

SLOW_SECONDS = 0.0005
"""After shorter commits the batch does not wait: what a round reads while several clients send is enough."""
SHARE, LONGEST_SECONDS = 0.25, 0.002
"""How long the open batch waits at most: as a share of the commit, and in seconds."""
SHARE_OF_PROGRAMS = 0.5
"""The share for MQI programs: each makes several calls, and waits for every answer, before it commits again."""
MOST_PASSED = 64
"""If nobody comes, the batch does not wait after the next commit, then the next two, four, and so on up to this
many."""


class GroupCommit(Generic[Client]):
    """For whom the open batch waits, and until when."""

    def __init__(self, share: float = SHARE, *, again: bool = False) -> None:
        """`again`: the batch waits once more if the share of clients that came in that time is as large as `share`, so
        that all may come while a commit takes as long."""
        self._share, self._again = share, again
        self.gathering = False
        """Sockets are being read: what comes of it is submitted when all of them are read, not before."""
        self.until = 0.0
        self.missing: set[Client] = set()
        """Clients answered by the last commit that have sent nothing since; whoever reads from one removes it. If there
        are none, nobody is waited for."""
        self._answered = self._left = 0
        self._wait = 0.0
        self._passing, self._gap = 0, 1

    def committed(self, seconds: float, answered: Iterable[Client], now: float) -> None:
        """Note that a commit that took this long has returned, and that these clients have been answered."""
        if self._answered:
            self._judge()
        self.missing.clear()
        if self._passing:
            self._passing -= 1
            return
        self.missing.update(answered)
        self._answered = self._left = len(self.missing)
        self._wait = min(LONGEST_SECONDS, self._share * seconds)
        self.until = now + self._wait

    def over(self, now: float) -> bool:
        """The time is up. Returns whether the batch waits no longer."""
        came, self._left = self._left - len(self.missing), len(self.missing)
        if self._again and came >= self._share * self._answered:
            self.until = now + self._wait
            return False
        self._judge()
        self.missing.clear()
        return True

    def _judge(self) -> None:
        """Judge whether the wait was worth it, which it was if half of the clients came."""
        if 2 * len(self.missing) <= self._answered:
            self._gap = 1
        else:
            self._passing, self._gap = self._gap, min(2 * self._gap, MOST_PASSED)
        self._answered = 0

"""Group commit: the open batch waits a moment for the clients that a slow commit has just answered. Pure. The broker
asks it for devices, the embedded queue manager for MQI programs.

While a commit takes milliseconds, clients with one message in flight fall into two groups: one waits in the commit that
is under way, the other in the open batch, which would be submitted the moment the commit returns, before those who are
answered by it can have sent anything. Each commit then carries half of the clients, and each message waits for two. If
those who are answered send again within a fraction of a commit, one commit carries them all. If they do not, as with
devices far away or with something to say now and then, fewer and fewer commits are waited after.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Client = TypeVar("Client", bound=Hashable)

SLOW_SECONDS = 0.0005
"""After commits that take less nothing is waited for: what a round reads while several clients send is enough."""
SHARE, LONGEST_SECONDS = 0.25, 0.002
"""How long the open batch waits at most: a share of the commit, and in all."""
SHARE_OF_PROGRAMS = 0.5
"""The same for MQI programs: each makes several calls, and waits for every answer, before it commits again."""
MOST_PASSED = 64
"""If nobody comes the next commit is not waited after, then two, four, and so on up to so many."""


class GroupCommit(Generic[Client]):
    """For whom the open batch waits, and until when."""

    def __init__(self, share: float = SHARE, *, again: bool = False) -> None:
        """`again`: the batch waits once more where as large a share of the clients has come in that time, so that all
        of them may come while a commit takes as long."""
        self._share, self._again = share, again
        self.gathering = False
        """Sockets are being read: what comes of it is submitted when all of them are, not before."""
        self.until = 0.0
        self.missing: set[Client] = set()
        """Those answered by the last commit that have sent nothing since: whoever reads takes them off. While there are
        none nobody is waited for."""
        self._answered = self._left = 0
        self._wait = 0.0
        self._passing, self._gap = 0, 1

    def committed(self, seconds: float, answered: Iterable[Client], now: float) -> None:
        """A commit that took so long has returned, and these clients have been told."""
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
        """The time is up: whether nobody is waited for any longer."""
        came, self._left = self._left - len(self.missing), len(self.missing)
        if self._again and came >= self._share * self._answered:
            self.until = now + self._wait
            return False
        self._judge()
        self.missing.clear()
        return True

    def _judge(self) -> None:
        """Whether the wait was worth it: half of the clients came."""
        if 2 * len(self.missing) <= self._answered:
            self._gap = 1
        else:
            self._passing, self._gap = self._gap, min(2 * self._gap, MOST_PASSED)
        self._answered = 0

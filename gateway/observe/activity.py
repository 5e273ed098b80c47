"""When each rule last matched and how it last failed, from the growth of the counters between two looks.

The broker counts and keeps no times. Pure: the caller passes the time, and looks every few seconds.
"""

from __future__ import annotations

from gateway.ports.counters import Counters

_FAILURES = {"dlq_messages": "dead-lettered", "messages_dropped": "dropped", "transform_errors": "not built"}


class Activity:
    """Remembers, for each rule, when it last matched and how it last failed."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._matched = dict(counters.route_matched)
        self._failed = {name: dict(getattr(counters, name)) for name in _FAILURES}
        self._sums = {name: sum(counts.values()) for name, counts in self._failed.items()}
        """Of these, which only grow: with the same sum none has. Each rule has a series for each reason, and ten
        thousand rules seldom fail."""
        self.last_matched: dict[str, float] = {}
        """By rule: when it last matched, accurate to the time between two looks."""
        self.last_error: dict[str, str] = {}
        """By rule: how it last failed, in the words of the metrics."""

    def look(self, now: float) -> None:
        """Compare the counters with those of the last look."""
        matched = dict(self._counters.route_matched)
        for rule, count in matched.items():
            if count > self._matched.get(rule, 0):
                self.last_matched[rule] = now
        self._matched = matched
        for name, words in _FAILURES.items():
            grown: dict[tuple[str, str], int] = getattr(self._counters, name)
            total = sum(grown.values())
            if total == self._sums[name]:
                continue
            counts, self._sums[name] = dict(grown), total
            for (rule, reason), count in counts.items():
                if count > self._failed[name].get((rule, reason), 0):
                    self.last_error[rule] = f"{words}: {reason.replace('_', ' ')}"
            self._failed[name] = counts


class Recent:
    """A histogram's growth since the last look: the present latency, not the one since the start."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._before = [0] * (len(bounds) + 1)
        self._grown = list(self._before)

    def look(self, buckets: list[int]) -> None:
        """Take the buckets as they are now."""
        self._grown = [now - before for now, before in zip(buckets, self._before, strict=True)]
        self._before = list(buckets)

    def share(self, share: float) -> float | None:
        """Returns the upper bound of the bucket that this share of the values reaches; None if there were no values."""
        total = sum(self._grown)
        if not total:
            return None
        so_far = 0
        for bound, count in zip(self._bounds, self._grown, strict=False):
            so_far += count
            if so_far >= share * total:
                return bound
        return self._bounds[-1]

"""How many different wrong passwords are checked, of one user and from one address. Beyond that a CONNECT is refused
unchecked until time has passed, whether its password is right or wrong.

Strangers do not hold up somebody who has proved who he is from an address: his user at that address, and all such users
there together, have counts of their own. So a guesser elsewhere locks nobody out, and ten thousand devices behind one
address do not suffer from a few. Unknown users are counted like those that exist. Memory is bounded: what was used
longest ago is forgotten first. No I/O; the time is an argument.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import sha256

MAX_COUNTS, MAX_PROVEN = 50_000, 100_000
MAX_NAME = 64
OF_PROVEN = 10
"""The users of an address that have proved who they are may be wrong this many times as often as strangers."""

_Key = tuple[str, ...]


class Guesses:
    """Counts of wrong passwords; a count falls evenly, to nothing within `seconds`. A limit of 0 is no limit."""

    def __init__(self, of_user: int, of_address: int, seconds: float) -> None:
        self._counts: OrderedDict[_Key, tuple[float, float]] = OrderedDict()
        self._proven: OrderedDict[tuple[str, str], None] = OrderedDict()
        self.use(of_user, of_address, seconds)

    def use(self, of_user: int, of_address: int, seconds: float) -> None:
        """Use other limits from now on; counts stay."""
        self.of_user, self.of_address, self.seconds = of_user, of_address, seconds

    def wait(self, address: str, user: str, now: float) -> float:
        """The seconds until a password of this user from this address is checked; 0: it is checked now."""
        user = _short(user)
        return max(self._early(key, most, now) for key, most in self._keys(address, user))

    def wrong(self, address: str, user: str, now: float) -> list[str]:
        """Count a wrong password. Returns, as text, the users and addresses whose number this has used up."""
        user, used_up = _short(user), []
        for key, most in self._keys(address, user):
            before = self._count(key, most, now)
            self._counts.pop(key, None)
            if len(self._counts) >= MAX_COUNTS:
                self._counts.popitem(last=False)
            self._counts[key] = (min(before + 1, 2.0 * most), now)
            if most and before + 1 > most - 1 >= before:
                used_up.append(_in_words(key))
        return used_up

    def right(self, address: str, user: str) -> None:
        """Note that this user has proved who he is from this address."""
        user, proven = _short(user), self._proven
        if (address, user) not in proven and len(proven) >= MAX_PROVEN:
            proven.popitem(last=False)
        proven[address, user] = None
        proven.move_to_end((address, user))

    def _keys(self, address: str, user: str) -> tuple[tuple[_Key, int], tuple[_Key, int]]:
        """The counts that an attempt belongs to, with their limits."""
        if (address, user) in self._proven:
            return ((address, user), self.of_user), ((address, "", ""), self.of_address * OF_PROVEN)
        return (("", user), self.of_user), ((address,), self.of_address)

    def _count(self, key: _Key, most: int, now: float) -> float:
        count, at = self._counts.get(key, (0.0, now))
        return max(0.0, count - (now - at) * most / self.seconds)

    def _early(self, key: _Key, most: int, now: float) -> float:
        if not most:
            return 0.0
        return max(0.0, (self._count(key, most, now) - (most - 1)) * self.seconds / most)


def _short(user: str) -> str:
    """A user name as it is kept: strangers choose them, and they may have 64 KiB."""
    return user if len(user) <= MAX_NAME else f"{user[:MAX_NAME]}... ({sha256(user.encode()).hexdigest()})"


def _in_words(key: _Key) -> str:
    if len(key) == 2:
        return f"user {key[1]}" + (f" at {key[0]}" if key[0] else "")
    return f"address {key[0]}" + (" (users that have logged in there)" if len(key) == 3 else "")

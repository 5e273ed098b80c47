"""Questions of other gateways for sessions that cannot be answered yet. Pure."""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain

from gateway.ports.ownership import Message


class Questions:
    """By client, in the order in which they came: who has asked first is given the session first."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Message]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __contains__(self, client_id: str) -> bool:
        return client_id in self._waiting

    def add(self, message: Message) -> None:
        """Keep one until it is answered."""
        self._waiting.setdefault(message["client"], []).append(message)

    def withdraw(self, client_id: str, sender: str) -> None:
        """Drop what a gateway has asked for a client: it does not want the session any more."""
        self._keep(client_id, [one for one in self._waiting.get(client_id, ()) if one["from"] != sender])

    def drop_those_of(self, ended: Collection[str]) -> None:
        """Drop what these gateways have asked: a session given to them now would be nobody's."""
        for client_id, asked in list(self._waiting.items()):
            self._keep(client_id, [one for one in asked if one["from"] not in ended])

    def _keep(self, client_id: str, asked: list[Message]) -> None:
        if asked:
            self._waiting[client_id] = asked
        else:
            self._waiting.pop(client_id, None)

    def take(self) -> list[Message]:
        """Return all, and keep none."""
        waiting, self._waiting = self._waiting, {}
        return list(chain.from_iterable(waiting.values()))

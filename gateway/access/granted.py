"""What logins let their clients publish and subscribe, besides the access list.

What a client has been granted holds as long as its verdict is kept, that is, while it is connected; after that, for its
session, as long as it is remembered. If a client has not connected since the gateway started, it is not known what it
would be granted: its session receives what the access list does not deny, because its subscriptions were allowed when
they were made, and everything is checked again when the client fetches it.
"""

from __future__ import annotations

import json
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakValueDictionary

from gateway.config.filters import check_filter
from gateway.config.units import Wrong
from gateway.mqtt.packets import Connect
from gateway.ports.access import Verdict
from gateway.routing.acl import Lists

REMEMBERED = 100_000
MAX_FILTERS, MAX_FILTER = 100, 1024
"""How many filters a list may have, and how many characters a filter."""
EVERYTHING = Lists((), ("#", "$SYS/#"))
"""For a session whose client has not connected yet."""
_Key = tuple[str, str | None]


class NoLists(ValueError):
    """Raised if what should be a list of filters is not one."""


class Given:
    """What one client has been granted; None: nothing was said about topics."""

    __slots__ = ("__weakref__", "lists")

    def __init__(self, lists: Lists | None) -> None:
        self.lists = lists


class Granted:
    """What each client has been granted. `on_changed` is called with a client identifier when its grant has changed."""

    def __init__(self) -> None:
        self.on_changed: Callable[[str], None] = lambda _client_id: None
        self._connected: WeakValueDictionary[_Key, Given] = WeakValueDictionary()
        self._last: OrderedDict[_Key, Lists | None] = OrderedDict()

    def keep(self, connect: Connect, verdict: Verdict, client_id: str = "") -> Verdict:
        """The verdict about a client that is let in, with its grant put into force. A client without an identifier is
        given one, under which the grant can be found."""
        client_id = client_id or verdict.client_id or connect.client_id
        if not client_id:
            client_id = f"auto-{secrets.token_hex(12)}"
            verdict = verdict._replace(client_id=client_id)
        key, given = (client_id, verdict.user), Given(verdict.topics)
        self._connected[key] = given
        changed = self._last.get(key, EVERYTHING) != given.lists
        self._last[key] = given.lists
        self._last.move_to_end(key)
        if len(self._last) > REMEMBERED:
            self._last.popitem(last=False)
        if changed:
            self.on_changed(client_id)
        return verdict._replace(topics=given)

    def lists(self, client_id: str, user: str | None, unknown: Lists | None = None) -> Lists | None:
        """What this client has been granted; `unknown`, if that is not known."""
        key = client_id, user
        given = self._connected.get(key)
        return given.lists if given is not None else self._last.get(key, unknown)


def lists_of(said: Any) -> Lists:
    """The lists in another party's answer: a list of filters, or an object with lists `publish` and `subscribe`. Raises
    NoLists."""
    if isinstance(said, Mapping):
        if set(said) - {"publish", "subscribe"}:
            raise NoLists("topics have `publish` and `subscribe`, and nothing else")
        return Lists(_filters(said.get("publish", [])), _filters(said.get("subscribe", [])))
    both = _filters(said)
    return Lists(both, both)


def _filters(said: Any) -> tuple[str, ...]:
    if not isinstance(said, list) or len(said) > MAX_FILTERS:
        raise NoLists(f"topics are a list of at most {MAX_FILTERS} filters")
    for one in said:
        if not isinstance(one, str) or not 0 < len(one) <= MAX_FILTER or not one.isprintable():
            raise NoLists(f"{json.dumps(one)[:100]} is not a topic filter")
        try:
            check_filter(one)
        except Wrong as error:
            raise NoLists(str(error)[:200]) from error
    return tuple(said)

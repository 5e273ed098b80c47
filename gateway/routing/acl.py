"""Access control: who may publish, subscribe and receive what.

Entries are read from the top; the first one that applies to an action decides, and an action to which none applies is
denied. Within an entry denials go before permissions. A subscription is allowed if a permission covers its whole
filter, or, with `partly`, if one overlaps it. Where a part of it is not permitted, deliveries are checked message by
message (`Verdict.check_deliveries`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gateway.config.security import AclEntry
from gateway.mqtt.topics import split_shared
from gateway.routing.table import is_plain, like
from gateway.routing.trie import FilterTrie

PUBLISH, SUBSCRIBE = "publish", "subscribe"
MAX_REMEMBERED, MAX_TOPIC = 32, 256
"""How many decisions are cached for each client and direction, and the longest topic that is cached. Callers cache what
is frequent; a client that invents topics must not fill the memory."""
MAX_SUBJECTS = 2048
MAX_COMMON, MAX_REMEMBERED_IN_COMMON = 64, 8192
"""Subjects to which only entries without the name of a client or user apply share their rights: decisions about a topic
hold for all of them. How many such rights are cached, and how many decisions of each."""
_UNSAFE = set("/+#\0")
_PLACEHOLDER = re.compile(r"\{client\}|\{user\}")


class Subject(NamedTuple):
    """The client that asks."""

    client_id: str
    username: str = ""
    """Empty: anonymous."""
    listener: str = ""


class Lists(NamedTuple):
    """What its login permits a client; it counts where no entry of the list applies."""

    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()


class Verdict(NamedTuple):
    """The answer about a subscription."""

    allowed: bool
    check_deliveries: bool = False


@dataclass(frozen=True, slots=True)
class Why:
    """Which entry decided, and why, as text."""

    allowed: bool
    entry: int
    """The index of the entry; -1: no entry applies."""
    text: str


class _Clause(NamedTuple):
    """One filter of one entry as it holds for one subject. In sorted order the first one decides."""

    order: int
    """Twice the entry's index, plus one for a permission, so that the entry's denials come first."""
    allows: bool
    filter: str
    written: str

    @property
    def entry(self) -> int:
        return self.order // 2


class Rights:
    """What one subject may do: computed when it connects, and again when the list is reloaded."""

    __slots__ = ("_clauses", "_given", "_most", "_partly", "_remembered", "_tries", "subject")

    def __init__(
        self, subject: Subject, clauses: dict[str, list[_Clause]], given: int = -1, *, partly: bool = False
    ) -> None:
        self.subject = subject
        self._partly = partly
        """Whether a subscription is allowed if only a part of it is permitted."""
        self._given = given
        """The index that stands for what the login permits."""
        self._most = MAX_REMEMBERED
        self._clauses = clauses
        self._tries = {action: _trie(found) for action, found in clauses.items()}
        self._remembered: dict[str, dict[str, bool]] = {PUBLISH: {}, SUBSCRIBE: {}}

    def common(self) -> tuple[tuple[_Clause, ...], ...] | None:
        """The clauses, if they are the same for all subjects to which these entries apply; None: an entry has the name
        of this client or user in it."""
        if any(clause.written != clause.filter for clauses in self._clauses.values() for clause in clauses):
            return None
        return tuple(tuple(self._clauses[action]) for action in (PUBLISH, SUBSCRIBE))

    @property
    def decisions(self) -> dict[str, bool]:
        """The cached decisions about topics that the subject may publish to."""
        return self._remembered[PUBLISH]

    def share(self) -> None:
        """Cache more decisions: many subjects use these rights."""
        self._most = MAX_REMEMBERED_IN_COMMON

    def publish(self, topic: str) -> bool:
        """Whether the subject may publish to `topic`, also by its will."""
        known = self._remembered[PUBLISH].get(topic)
        return self._decided(PUBLISH, topic) if known is None else known

    def deliver(self, topic: str) -> bool:
        """Whether the subject may receive a message on `topic`, whatever subscription it comes from."""
        return self._decided(SUBSCRIBE, topic)

    def _decided(self, action: str, topic: str) -> bool:
        remembered = self._remembered[action]
        known = remembered.get(topic)
        if known is None:
            clause = self._deciding(action, topic)
            known = clause is not None and clause.allows
            if len(remembered) >= self._most:
                remembered.clear()
            if len(topic) <= MAX_TOPIC:
                remembered[topic] = known
        return known

    def _deciding(self, action: str, topic: str) -> _Clause | None:
        found = self._tries[action].match(topic)
        return min((clause for clauses in found for clause in clauses), default=None)

    def subscribe(self, filter: str) -> Verdict:  # noqa: A002 - the specification's word
        """Whether the subject may subscribe to `filter` (for a shared subscription, to the filter in it)."""
        return self._subscription(filter)[0]

    def _subscription(self, filter_: str) -> tuple[Verdict, _Clause | None]:
        """The verdict, and the clause that decides."""
        wanted = split_shared(filter_)[1]
        denied, part = False, None
        for clause in self._clauses[SUBSCRIBE]:
            if covers(clause.filter, wanted):
                if clause.allows or part is None:
                    return Verdict(clause.allows, clause.allows and denied), clause
                break
            if overlaps(clause.filter, wanted):
                denied |= not clause.allows
                if part is None and clause.allows and self._partly:
                    part = clause
        return Verdict(part is not None, part is not None), part

    def why(self, action: str, topic: str) -> Why:
        """The decision about a topic (or, for `subscribe`, a filter) as text."""
        clause = self._subscription(topic)[1] if action == SUBSCRIBE else self._deciding(action, topic)
        if clause is None:
            return Why(
                allowed=False, entry=-1, text=f"no entry of the list says anything about {action} {topic}: refused"
            )
        verb = "allows" if clause.allows else "denies"
        shown = clause.written if clause.written == clause.filter else f"{clause.written} (here {clause.filter})"
        who = "its login" if clause.entry == self._given else f"entry {clause.entry + 1}"
        return Why(clause.allows, clause.entry, f"{who} {verb} {action} on {shown}")


class _Everything(Rights):
    """Rights without a list: everything is allowed."""

    __slots__ = ()

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject, {PUBLISH: [], SUBSCRIBE: []})

    def publish(self, topic: str) -> bool:  # noqa: ARG002
        return True

    def deliver(self, topic: str) -> bool:  # noqa: ARG002
        return True

    def subscribe(self, filter: str) -> Verdict:  # noqa: A002, ARG002
        return Verdict(allowed=True)

    def why(self, action: str, topic: str) -> Why:  # noqa: ARG002
        return Why(allowed=True, entry=-1, text="there is no access control list: everything is allowed")


class Acl:
    """The list, ready for questions. The `may_` methods cache the rights of recent subjects.

    Entries for one user or one client are found by that name, so that a list with an entry for each of a hundred
    thousand devices costs a connection no more than a short one.
    """

    __slots__ = ("_by_client", "_by_user", "_common", "_entries", "_others", "_partly", "_recent")

    def __init__(self, entries: Sequence[AclEntry] | None, *, partly: bool = False) -> None:
        self._partly = partly
        self._entries = None if entries is None else [_Entry(index, entry) for index, entry in enumerate(entries)]
        self._by_user: dict[str, list[_Entry]] = {}
        self._by_client: dict[str, list[_Entry]] = {}
        self._others: list[_Entry] = []
        for entry in self._entries or ():
            self._file(entry)
        self._recent: dict[tuple[tuple[str, str, str], Lists | None], Rights] = {}
        self._common: dict[tuple[tuple[_Clause, ...], ...], Rights] = {}

    def _file(self, entry: _Entry) -> None:
        user, client = entry.spec.user, entry.spec.client
        if user is not None and is_plain(user):
            self._by_user.setdefault(user, []).append(entry)
        elif client is not None and is_plain(client):
            self._by_client.setdefault(client, []).append(entry)
        else:
            self._others.append(entry)

    def of(self, subject: Subject, lists: Lists | None = None) -> Rights:
        """The rights of a subject, including those that its login gives it."""
        if self._entries is None and lists is None:
            return _Everything(subject)
        named = self._by_user.get(subject.username, []) + self._by_client.get(subject.client_id, [])
        candidates = sorted(named + self._others, key=lambda entry: entry.index)
        applying = [entry for entry in candidates if entry.applies(subject)]
        given = len(self._entries or ())
        if lists is not None:
            applying.append(_Entry(given, AclEntry(publish=list(lists.publish), subscribe=list(lists.subscribe))))
        clauses = {action: list(_clauses(applying, action, subject)) for action in (PUBLISH, SUBSCRIBE)}
        return Rights(subject, clauses, given, partly=self._partly)

    def _rights(self, listener: str, client_id: str, user: str | None, lists: Lists | None) -> Rights:
        key = Subject(client_id, user or "", listener), lists
        rights = self._recent.get(key)
        if rights is None:
            if len(self._recent) >= MAX_SUBJECTS:
                del self._recent[next(iter(self._recent))]
            rights = self._recent[key] = self._in_common(self.of(*key))
        return rights

    def _in_common(self, rights: Rights) -> Rights:
        """The rights shared by all subjects to which the same entries apply."""
        common = rights.common()
        if common is None:
            return rights
        known = self._common.get(common)
        if known is None:
            if len(self._common) >= MAX_COMMON:
                self._common.clear()
            known = self._common[common] = rights
            rights.share()
        return known

    def may_publish(
        self, listener: str, client_id: str, user: str | None, topic: str, lists: Lists | None = None
    ) -> bool:
        """Whether this client may publish to `topic`."""
        if self._entries is None and lists is None:
            return True
        rights = self._recent.get(((client_id, user or "", listener), lists))  # a subject is a tuple
        return (rights or self._rights(listener, client_id, user, lists)).publish(topic)

    def decisions(
        self, listener: str, client_id: str, user: str | None, lists: Lists | None = None
    ) -> dict[str, bool] | bool:
        """The cached decisions about topics that this client may publish to, a dict that grows with each question;
        True: it may publish to all."""
        if self._entries is None and lists is None:
            return True
        return self._rights(listener, client_id, user, lists).decisions

    def may_subscribe(
        self, listener: str, client_id: str, user: str | None, filter_: str, lists: Lists | None = None
    ) -> bool:
        """Whether this client may subscribe to `filter_`; what is sent to it still has to be checked by
        `may_receive`."""
        return (self._entries is None and lists is None) or self._rights(listener, client_id, user, lists).subscribe(
            filter_
        ).allowed

    def may_receive(
        self, listener: str, client_id: str, user: str | None, topic: str, lists: Lists | None = None
    ) -> bool:
        """Whether a message on `topic` may be delivered to this client."""
        return (self._entries is None and lists is None) or self._rights(listener, client_id, user, lists).deliver(
            topic
        )


def compile_acl(entries: Sequence[AclEntry] | None, *, partly: bool = False) -> Acl:
    """Compile the list of the settings; None allows everything. `partly`: a subscription of which a part is permitted
    is allowed, and delivers that part."""
    return Acl(entries, partly=partly)


class _Entry:
    __slots__ = ("_client", "_user", "index", "spec")

    def __init__(self, index: int, spec: AclEntry) -> None:
        self.index = index
        self.spec = spec
        self._user = like([spec.user]) if spec.user is not None else None
        self._client = like([spec.client]) if spec.client is not None else None

    def applies(self, subject: Subject) -> bool:
        anonymous = not subject.username
        if self.spec.anonymous is not None and self.spec.anonymous != anonymous:
            return False
        if self.spec.listener is not None and self.spec.listener != subject.listener:
            return False
        if self._user is not None and (anonymous or not self._user(subject.username)):
            return False
        return self._client is None or self._client(subject.client_id)

    def filters(self, action: str, *, allows: bool) -> list[str]:
        spec = self.spec
        if allows:
            return [*(spec.publish if action == PUBLISH else spec.subscribe), *spec.allow]
        return [*(spec.deny_publish if action == PUBLISH else spec.deny_subscribe), *spec.deny]


def _clauses(entries: Sequence[_Entry], action: str, subject: Subject) -> Iterator[_Clause]:
    for entry in entries:
        for allows in (False, True):
            for written in entry.filters(action, allows=allows):
                filter_ = _filled(written, subject, allows=allows)
                if filter_ is not None:
                    yield _Clause(entry.index * 2 + allows, allows, filter_, written)


def _filled(written: str, subject: Subject, *, allows: bool) -> str | None:
    """The filter with this subject's names in it; None: it permits the subject nothing. A name that is missing or has
    more than one level gets no permission, and its denials apply as to any name. A permission cannot be led to the
    broker's own topics by a name that begins with `$`. A placeholder inside a name is not replaced."""
    names = {"{client}": subject.client_id, "{user}": subject.username}
    text = written
    for placeholder, value in names.items():
        if placeholder in written and (not value or _UNSAFE & set(value)):
            if allows:
                return None
            text = "/".join("+" if placeholder in level else level for level in text.split("/"))
    text = _PLACEHOLDER.sub(lambda found: names[found[0]], text)
    return None if allows and text[:1] == "$" != written[:1] else text


def _trie(clauses: Sequence[_Clause]) -> FilterTrie[list[_Clause]]:
    trie: FilterTrie[list[_Clause]] = FilterTrie()
    for clause in clauses:
        levels = clause.filter.split("/")
        here = trie.get(levels)
        if here is None:
            trie.put(levels, [clause])
        else:
            here.append(clause)
    return trie


def covers(outer: str, inner: str) -> bool:
    """Whether `outer` matches every topic that `inner` matches."""
    wide, narrow = outer.split("/"), inner.split("/")
    if narrow[0].startswith("$") and wide[0] in ("+", "#"):
        return False  # [MQTT-4.7.2-1]
    for index, level in enumerate(wide):
        if level == "#":
            return True
        if index == len(narrow) or narrow[index] == "#" or level not in ("+", narrow[index]):
            return False
    return len(wide) == len(narrow)


def overlaps(one: str, other: str) -> bool:
    """Whether there is a topic that both filters match."""
    left, right = one.split("/"), other.split("/")
    if (left[0].startswith("$") and right[0] in ("+", "#")) or (right[0].startswith("$") and left[0] in ("+", "#")):
        return False
    for here, there in zip(left, right, strict=False):
        if "#" in (here, there):
            return True
        if "+" not in (here, there) and here != there:
            return False
    longer = left if len(left) > len(right) else right
    shorter = min(len(left), len(right))
    return len(left) == len(right) or (len(longer) == shorter + 1 and longer[-1] == "#")

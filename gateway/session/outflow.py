"""What a session sends: packet identifiers, the in-flight window, order, redelivery. Pure.

The way of one item: `pending` (waiting for the window) -> `inflight` (sent, packet id known) -> removed when it is
acknowledged. At QoS 2 an item is `released` between PUBREC and PUBCOMP. Order is the order of `offer`
[MQTT3-4.6.0-5] [MQTT3-4.6.0-6] [MQTT5-4.6.0-5] [MQTT5-4.6.0-6].
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, filterfalse, repeat
from typing import NamedTuple, NoReturn

from gateway.mqtt.packets import V5, V31
from gateway.ports.batch import Stored, Token
from gateway.session import copy_columns
from gateway.session.copies import Copies
from gateway.session.publication import Publication
from gateway.session.record import Decoding

_PUBREL, _PUBREL_DUP = b"\x62\x02", b"\x6a\x02"
NO_LIMIT = 0xFFFFFFFF
MAX_ALIASED = 1024
"""The longest topic, in bytes, that is given an alias: aliased topics are kept in memory, even while the client is
away."""


class Item:
    """One publication for one session."""

    __slots__ = ("dup", "packet_id", "publication", "qos", "released", "retain", "share", "sub_ids", "token")

    def __init__(
        self,
        publication: Publication,
        qos: int,
        retain: bool,
        sub_ids: tuple[int, ...] = (),
        packet_id: int = 0,
        token: Token | None = None,
    ) -> None:
        self.publication = publication
        self.qos = qos
        self.retain = retain
        self.sub_ids = sub_ids
        self.packet_id = packet_id
        self.token = token
        self.released = False
        self.dup = False
        self.share = ""
        """The shared subscription it came through: when the session ends, another member gets it."""


class Owed(NamedTuple):
    """The retained messages that a SUBSCRIBE still has to bring."""

    filters: dict[str, None]
    """Those of its filters whose subscription has not ended since."""
    items: Iterator[Item | None]
    noted: bool
    """Whether the record that is committed with the subscription says that they are still to come."""


def restored(stored: Stored, decoding: Decoding | None = None) -> Item:
    """An item from its stored row."""
    publication, packet_id, sub_ids, released = (decoding or Decoding()).decode(stored.data)
    item = Item(publication, publication.qos, publication.retain, sub_ids, packet_id, stored.token)
    item.released = released
    return item


def restored_several(records: list[bytes], tokens: list[Token], begin: int, decoding: Decoding) -> Copies | None:
    """The stored row at `begin` together with the rows behind it that are alike. None: this row has to be treated by
    itself."""
    like, sub_ids, width, first, end = decoding.decode_several(records, begin)
    if end - begin < 2:
        return None
    return Copies(like, like.qos, sub_ids, records[begin:end], width, first, tokens[begin:end], retain=like.retain)


def single(copies: Copies, at: int) -> Item:
    """One of several copies as an item of its own."""
    token = copies.tokens[at] if copies.tokens else None
    packet_id = copies.first + at if copies.first else 0
    item = Item(copies.publication(at), copies.qos, copies.retain, copies.sub_ids, packet_id, token)
    item.released, item.share = copies.released, copies.share
    return item


def _size(one: Item | Copies) -> int:
    if isinstance(one, Copies):
        return sum(map(len, one.bodies)) + sum(map(len, one.blocks or ()))
    return len(one.publication.payload) + len(one.publication.properties)


def singles(copies: Copies) -> list[Item]:
    """Several copies, each as an item of its own."""
    return [single(copies, at) for at in range(copies.start, len(copies.bodies))]


if copy_columns.compiled is not None:
    copy_columns.compiled.configure(Copies, Item, Publication)


class _NothingWaits(deque["Item | Copies"]):
    """The queue shared by all sessions for which nothing waits, because one of its own takes 760 bytes each. Nothing
    can be put there."""

    def _none(self, *_: object) -> NoReturn:
        raise TypeError("nothing is put where nothing waits: see Outflow.line")

    append = appendleft = extend = extendleft = insert = __iadd__ = _none


_NOTHING_WAITS = _NothingWaits()
MOST_IN_FLIGHT = 0xF000
"""How many of the 65,535 packet ids may be in flight: with more of them, finding a free one takes long, again and
again. Sessions that a restart brings back may have more."""


class Outflow:
    """The sending side of one session."""

    __slots__ = (
        "_alias_limit",
        "_aliases",
        "_next",
        "connects",
        "fetching",
        "inflight",
        "last_token",
        "max_packet",
        "missed",
        "owes",
        "pending",
        "promised",
        "queued",
        "redelivered",
        "resumed",
        "retained",
        "sent_token",
        "unfetched",
        "version",
        "window",
    )

    def __init__(self) -> None:
        self.window = MOST_IN_FLIGHT
        self.version = 4
        self.max_packet = NO_LIMIT
        self.inflight: dict[int, Item | Copies] = {}
        """What each packet identifier on the wire names; ask `item` for one message, `items` for all."""
        self.pending: deque[Item | Copies] = _NOTHING_WAITS
        self.queued = 0
        """How many messages are in `pending`."""
        self.unfetched = False
        """True while stored messages are not in memory: they are fetched when the window has room."""
        self.fetching = False
        """True while a fetch is under way."""
        self.missed = False
        """Whether more was stored while the fetch was under way."""
        self.connects = 0
        """The number of connections so far: the answer to a fetch for an earlier one is dropped."""
        self.last_token: Token | None = None
        """The last stored message that was fetched: fetching goes on after it."""
        self.sent_token: Token | None = None
        """The last stored message that left `pending`: when the connection ends, those after it are fetched again."""
        self.resumed = False
        """Whether what was in flight has been sent again on this connection: nothing new goes out before that."""
        self.retained: deque[Owed] | None = None
        """Retained messages that subscriptions still have to bring, by SUBSCRIBE and in order."""
        self.promised: dict[str, list[Owed]] | None = None
        """The same for SUBSCRIBEs whose commit has not returned, by filter: a client may send thousands meanwhile."""
        self.owes = False
        """Whether the session's record says that retained messages are owed."""
        self.redelivered = 0
        """How many of the next stored messages were sent before a restart; they go out with DUP."""
        self._next = 0
        self._alias_limit = 0
        self._aliases: dict[bytes, int] = {}

    def connected(self, version: int, window: int, max_packet: int, alias_limit: int) -> None:
        """Take over the limits of the connection that now serves the session. Topic aliases belong to the connection
        [MQTT-3.3.2-7]."""
        self.connects += 1
        self.fetching = False
        self.version = version
        self.window = min(window, MOST_IN_FLIGHT)
        self.max_packet = max_packet
        self.resumed = False
        self._alias_limit = alias_limit
        self._aliases.clear()

    @property
    def takes_aliases(self) -> bool:
        """Whether the client accepts topic aliases."""
        return bool(self._alias_limit)

    def number(self) -> int:
        """A packet id for something that is stored and waits, which is not in flight. If most ids are in flight, it may
        be one of those; `fill` then checks whether it still is."""
        candidate = self._next
        while True:
            candidate = candidate % 0xFFFF + 1
            if candidate not in self.inflight or len(self.inflight) > MOST_IN_FLIGHT:
                self._next = candidate
                return candidate

    def allot(self) -> int:
        """A packet id that is not in flight; there must be one. It is never 0. [MQTT-2.3.1-4] [MQTT-2.2.1-4]
        [MQTT3-4.3.2-1] [MQTT3-4.3.3-1] [MQTT5-4.3.2-1] [MQTT5-4.3.3-1]"""
        found = self.number()
        if found in self.inflight:  # most are
            all_of_them = chain(range(found + 1, 0x10000), range(1, found))
            self._next = found = next(filterfalse(self.inflight.__contains__, all_of_them))
        return found

    def resume_ids(self, last: int) -> None:
        """Continue after the last packet identifier that was assigned before a restart."""
        self._next = last

    def allot_several(self, count: int) -> int:
        """The first of this many consecutive packet ids that are not in flight; 0: the next ones are not free."""
        first = self._next % 0xFFFF + 1
        if first + count > 0x10000 or not self._are_free(first, count):
            return 0
        self._next = first + count - 1
        return first

    def _are_free(self, first: int, count: int) -> bool:
        """Whether none of these packet ids is in flight."""
        inflight = self.inflight
        return first not in inflight if count == 1 else inflight.keys().isdisjoint(range(first, first + count))

    @property
    def ready(self) -> bool:
        """Whether something waits that may be sent."""
        return bool(self.pending) and len(self.inflight) < self.window and not self._waits_for_id(self.pending[0])

    def _waits_for_id(self, first: Item | Copies) -> bool:
        """Whether an item has to wait until its stored packet id is free. After a kill it is sent with that id, and a
        receiver that knew it by another one would take it for a new message [MQTT3-4.3.3-1] [MQTT5-4.3.3-1]."""
        return (
            isinstance(first, Item) and first.packet_id in self.inflight and first.qos == 2 and first.token is not None
        )

    def promise(self, owed: Owed) -> None:
        """Note that a SUBSCRIBE is being committed, and which retained messages it is to bring."""
        promised = self.promised = self.promised or {}
        for filter_ in owed.filters:
            promised.setdefault(filter_, []).append(owed)

    def settle(self, owed: Owed) -> None:
        """Note that the SUBSCRIBE is committed, or taken back."""
        promised = self.promised or {}
        for filter_ in owed.filters:
            several = promised.get(filter_, [])
            if owed in several:
                several.remove(owed)
            if not several:
                promised.pop(filter_, None)
        self.promised = promised or None

    def noted(self) -> Iterator[str]:
        """The filters whose promised retained messages are named in the session's record."""
        for filter_, several in (self.promised or {}).items():
            if any(owed.noted for owed in several):
                yield filter_

    def line(self) -> deque[Item | Copies]:
        """The queue of what waits, made if nothing has waited so far."""
        if self.pending is _NOTHING_WAITS:
            self.pending = deque()
        return self.pending

    def offer(self, items: list[Item] | Copies) -> None:
        """Append items at QoS 1 or 2; `fill` sends them when the window has room."""
        self.queued += len(items)
        if isinstance(items, Copies):
            self.line().append(items)
            if items.tokens:
                self.last_token = items.tokens[-1]
            return
        self.line().extend(items)
        token = items[-1].token
        if token is not None:
            self.last_token = token

    # -- one message --

    def item(self, packet_id: int) -> Item | None:
        """What is in flight with a packet id, which is a single item from now on; None: nothing."""
        found = self.inflight.get(packet_id)
        if isinstance(found, Copies):
            found = self.inflight[packet_id] = single(found, packet_id - found.first)
        return found

    def items(self) -> list[Item]:
        """Everything in flight, in order, as items that are single from now on."""
        return [item for item in map(self.item, list(self.inflight)) if item is not None]

    def pending_items(self) -> list[Item]:
        """What waits for the window, in order, as single items."""
        found: list[Item] = []
        for one in self.pending:
            found += singles(one) if isinstance(one, Copies) else (one,)
        return found

    def wait(self, items: Iterable[Item]) -> None:
        """Replace what waits for the window with exactly these items."""
        self.pending = deque(items) or _NOTHING_WAITS
        self.queued = len(self.pending)

    # -- sending --

    def fill(self, now: float, out: list[bytes]) -> tuple[int, list[Item]]:
        """Send what the window allows. Returns how many items were sent, and the items that are dropped unsent because
        they have expired or are larger than the client's Maximum Packet Size [MQTT5-3.1.2-24] [MQTT-3.1.2-25]. If an
        item runs into a defect, the error is raised by the call that begins with it, and the item stays first among
        those that wait."""
        over: list[Item] = []
        pending, inflight, window = self.pending, self.inflight, self.window
        before = len(inflight)
        try:
            while pending and len(inflight) < window:  # [MQTT-4.9.0-2] [MQTT-3.3.4-9]
                first = pending[0]
                if isinstance(first, Copies):
                    self._fill_from(first, min(len(first), window - len(inflight)), now, out)
                elif first.packet_id in inflight and self._waits_for_id(first):
                    break
                elif self._fill_one(first, now, out):
                    over.append(first)
        except Exception:
            if not over and len(inflight) == before:
                raise
        return len(inflight) - before, over

    def _fill_one(self, item: Item, now: float, out: list[bytes]) -> bool:
        """Send one item; returns True if it is dropped unsent."""
        inflight, data = self.inflight, b""
        dropped = not item.dup and item.publication.expired(now)  # [MQTT-3.3.2-5]; not once sent [MQTT-4.3.3-7]
        if not dropped:
            if not item.packet_id or item.packet_id in inflight:
                item.packet_id = self.allot()
            data = self.encode(item, now)
            dropped = len(data) > self.max_packet
        self.pop()
        if not dropped:
            inflight[item.packet_id] = item  # until it is acknowledged [MQTT-4.3.2-3] [MQTT-4.3.3-3]
            out.append(data)
        return dropped

    def pop(self) -> Item:
        """Remove and return the first item that waits."""
        item = self.pending.popleft()
        if isinstance(item, Copies):
            item, *others = singles(item)
            self.pending.extendleft(reversed(others))
        self.queued -= 1
        if item.token is not None:
            self.sent_token = item.token
        return item

    def _fill_from(self, copies: Copies, count: int, now: float, out: list[bytes]) -> None:
        """Send this many of the next copies, or turn them into single items."""
        pending, start, end = self.pending, copies.start, len(copies.bodies)
        if self._alias_limit and copies.likes is not None:
            pending.popleft()
            pending.extendleft(reversed(copies.alike()))
        elif self._alias_limit and self.version == V5 and self._has_alias_to_learn(copies):
            pending.popleft()
            if start + 1 < end:
                pending.appendleft(copies.part(start + 1, end))
            pending.appendleft(single(copies, start))
        elif not self._send_copies(copies, start, start + count, now, out):
            pending.popleft()
            pending.extendleft(reversed(singles(copies)))
        elif start + count < end:
            copies.start += count
        else:
            pending.popleft()

    def _has_alias_to_learn(self, copies: Copies) -> bool:
        """Whether the first copy would tell the client an alias that the others use."""
        topic = copies.like.topic
        return len(self._aliases) < self._alias_limit and topic not in self._aliases and len(topic) <= MAX_ALIASED

    def send_now(self, copies: Copies, now: float) -> bytes | None:
        """The packets of all these copies, to be sent at once. None, with nothing done, if something waits before them,
        the window has no room, or each copy has to be treated by itself."""
        count = len(copies.bodies)
        if self.pending or self.unfetched or self._alias_limit or len(self.inflight) + count > self.window:
            return None
        data = self._packets(copies, 0, count, now)
        if data is not None and copies.tokens:
            self.last_token = copies.tokens[-1]
        return data

    def _send_copies(self, copies: Copies, begin: int, end: int, now: float, out: list[bytes]) -> bool:
        """Send some copies that wait. Returns False, with nothing done, if each has to be treated by itself."""
        data = self._packets(copies, begin, end, now)
        if data is None:
            return False
        self.queued -= end - begin
        out.append(data)
        return True

    def _packets(self, copies: Copies, begin: int, end: int, now: float) -> bytes | None:
        """The packets of copies, which are in flight from now on [MQTT-4.3.2-3] [MQTT-4.3.3-3]. None, with nothing
        done, if each has to be treated by itself."""
        like, count = copies.like, end - begin
        if like.expires and now >= like.expires:
            return None
        if not copies.first:
            first = self.allot_several(count)
        else:
            first = copies.first + begin
            first = first if self._are_free(first, count) else 0
        if not first:
            return None
        alias, topic = b"", like.topic
        if self._aliases and (number := self._aliases.get(topic)) is not None:
            alias, topic = b"\x23" + number.to_bytes(2, "big"), b""
        data = copy_columns.packets_of(copies, first, begin, end, self.version, now, self.max_packet, alias, topic)
        if data is None:
            return None
        sent = copies if count == len(copies.bodies) else copies.part(begin, end)
        sent.first = first
        if count == 1:
            self.inflight[first] = sent
        else:
            self.inflight.update(zip(range(first, first + count), repeat(sent)))
        if sent.tokens:
            self.sent_token = sent.tokens[-1]
        return data

    def encode(self, item: Item, now: float) -> bytes:
        """The PUBLISH of an item, with its packet id (none at QoS 0), and with DUP only when it is sent again
        [MQTT-3.3.1-3] [MQTT-4.3.1-1] [MQTT5-4.3.2-2] [MQTT5-4.3.3-2]."""
        publication = item.publication
        first = 0x30 | item.qos << 1 | (1 if item.retain else 0) | (8 if item.dup else 0)
        if self._alias_limit and self.version == V5:
            alias = self._aliases.get(publication.topic)
            known = alias is not None
            if alias is None and len(self._aliases) < self._alias_limit and len(publication.topic) <= MAX_ALIASED:
                alias = self._aliases[publication.topic] = len(self._aliases) + 1
            if alias is not None:
                before, after = publication.aliased(first, now, item.sub_ids, alias, known)
                if not known and len(before) + len(after) + 2 > self.max_packet:
                    del self._aliases[publication.topic]  # it may not be sent, so the client never learns this alias
                return before + item.packet_id.to_bytes(2, "big") + after if item.qos else before + after
        before, after = publication.wire(self.version, first, now, item.sub_ids)
        return before + item.packet_id.to_bytes(2, "big") + after if item.qos else before + after

    def acknowledged(self, packet_id: int) -> Item | None:
        """PUBACK: the item is delivered. Returns it; None: no message of QoS 1 has this id."""
        found = self.inflight.get(packet_id)
        if found is None or found.qos != 1:
            return None
        item = self.item(packet_id)
        del self.inflight[packet_id]
        return item

    def received(self, packet_id: int, refused: bool) -> Item | None:
        """PUBREC: the item is released, or finished if the receiver refused it [MQTT-4.4.0-2]. Returns it; None: no
        message of QoS 2 has this id."""
        found = self.inflight.get(packet_id)
        if found is None or found.qos != 2:
            return None
        item = self.item(packet_id)
        if refused:
            del self.inflight[packet_id]
        return item

    def completed(self, packet_id: int) -> Item | None:
        """PUBCOMP: the item is delivered. Returns it; None: no released message has this id."""
        found = self.inflight.get(packet_id)
        if found is None or not found.released:
            return None
        item = self.item(packet_id)
        del self.inflight[packet_id]
        return item

    def pubrel(self, packet_id: int, *, again: bool = False) -> bytes:
        """The bytes of a PUBREL. MQIsdp repeats it with DUP; later versions have no DUP there [MQTT-3.6.1-1]."""
        first = _PUBREL_DUP if again and self.version == V31 else _PUBREL
        return first + packet_id.to_bytes(2, "big")

    def resend(self, now: float, out: list[bytes], over: list[Item], *, stored: bool = False) -> Iterator[None]:
        """Send what is in flight again in its original order, as PUBLISH with DUP or as PUBREL [MQTT-4.4.0-1]
        [MQTT-4.6.0-1] [MQTT-3.3.1-1] [MQTT-4.3.3-6] [MQTT-4.8.2-4]. What this connection's window has no room for is
        put first among what waits for it [MQTT-3.3.4-9]. Each step handles one item. Between two steps items may be
        acknowledged; the PUBREL of one that is released then follows the commit of its release. `stored`: the same
        holds for one whose release is not stored yet. Items larger than the client's Maximum Packet Size are added to
        `over` and dropped [MQTT-3.1.2-25]."""
        again, sent, last, inflight = list[Item](), 0, self.sent_token, self.inflight
        for packet_id, released in [(packet_id, one.released) for packet_id, one in inflight.items()]:
            item = self.item(packet_id)
            if item is None:
                continue
            if item.released:
                if released and (item.token is not None or not stored):
                    out.append(self.pubrel(packet_id, again=True))
            elif sent == self.window:
                item.dup = True
                again.append(item)
            else:
                item.dup = True
                data = self.encode(item, now)
                if len(data) > self.max_packet:
                    over.append(item)
                else:
                    sent, last = sent + 1, item.token
                    out.append(data)
            yield
        over[:] = [item for item in over if inflight.pop(item.packet_id, None) is item]
        again = [item for item in again if inflight.pop(item.packet_id, None) is item]
        if again:
            self.line().extendleft(reversed(again))
            self.queued += len(again)
            self.sent_token = last  # a window has room for one at least

    def bytes_in_flight(self) -> int:
        """Bytes of what is in flight, about; what was sent together counts until all of it is acknowledged."""
        return sum(map(_size, set(self.inflight.values())))

    @property
    def sent(self) -> int:
        """How many of the stored messages, counted from the first, may have reached the client."""
        waiting = sum(item.dup for item in self.pending_items() if item.token is not None)
        return len(self.inflight) + waiting + self.redelivered

    def drop_memory(self) -> None:
        """The client of a durable session has left: forget its stored items, which are fetched again in order when it
        returns."""
        waiting = self.pending_items()
        kept = [item for item in waiting if item.token is None]
        if len(kept) < len(waiting):
            self.unfetched, self.last_token = True, self.sent_token
            self.redelivered += sum(item.dup for item in waiting if item.token is not None)
            self.wait(kept)

    def waiting(self) -> Iterable[Item]:
        """Everything that is not acknowledged yet."""
        return self.items() + self.pending_items()

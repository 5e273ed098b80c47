"""Pages of plain messages from a queue to devices: what is the same for all messages with one head is done once, and
what is the same for everything that a session gets of a page is done once for each session. Each session gets its
messages in the order of the queue. Whatever is not plain is left to `Handover.message`, one at a time and with the same
result, which the tests compare. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from operator import itemgetter
from typing import NamedTuple

from gateway.bridge.repeated import Known, are_numbers, header_length, is_opened, stripped
from gateway.broker.deliver.handover import GIVING_SECONDS, Handover, Source
from gateway.broker.publish.route import Receiver
from gateway.broker.refused.set_aside import AWAY
from gateway.errors import Refused
from gateway.ports.batch import MQMD_LENGTH, Token
from gateway.ports.sources import Page
from gateway.session.copies import Copies
from gateway.session.outflow import Item, singles
from gateway.session.publication import Publication
from gateway.session.session import Session

Taken = dict[str, list[Token]]
"""Messages, by the rule that took them."""
_LONG = 16_384
"""Longer payloads are looked at alone: not every session can store them."""


class _Head(NamedTuple):
    """What messages with one head become."""

    known: Known
    receivers: tuple[Receiver, ...]


class _Group(NamedTuple):
    """Messages that become publications which differ in their payloads alone."""

    head: _Head
    rows: Sequence[int]
    """Their places on the page."""
    payloads: list[bytes]


class _Shape:
    """Where the headers of messages with one head end: in the head, or at the packet identifier in the bodies."""

    __slots__ = ("cut", "data", "head", "md", "rest")

    def __init__(self, head: bytes) -> None:
        self.md = head[:MQMD_LENGTH]
        self.data = head[MQMD_LENGTH:]
        length = header_length(self.md, self.data)
        self.cut = length - len(self.data)
        """How many bytes of the header are in the bodies; -1: they hold more of it than the packet identifier."""
        self.rest = b""
        """The part of the head that is payload."""
        if length < 0 or (self.cut > 0 and not is_opened(self.data)):
            self.cut = -1
        elif self.cut < 0:
            self.cut, self.rest = 0, self.data[length:]
        self.head: _Head | None = None


class _Part(NamedTuple):
    """What a session gets of a group."""

    rows: Sequence[int]
    copies: Copies
    known: Known


@dataclass(slots=True, eq=False)
class _Share:
    """What a session gets of a page."""

    parts: list[_Part] = field(default_factory=list)
    messages: int = 0
    size: int = 0

    def in_order(self) -> tuple[list[Item], list[Known]]:
        """Each message by itself, in the order of the queue, with what is known of it."""
        found: list[tuple[int, Item, Known]] = []
        for rows, copies, known in self.parts:
            found += zip(rows, singles(copies), repeat(known))
        found.sort(key=itemgetter(0))
        return [item for _, item, _ in found], [known for _, _, known in found]


def hand_over(handover: Handover, source: Source, page: Page) -> tuple[Taken, int]:
    """Hand over a page, as far as there is time. Returns the messages that each rule took, and how many there are. If
    the page meets a defect, each message is handed over by itself."""
    done: list[tuple[Taken, int]] = []

    def all_of_it() -> None:
        done.append(_PageHandover(handover, source, page).run())

    if handover.context.set_aside.run("call", source.name, all_of_it, None, AWAY):
        return done[0]
    alone = _PageHandover(handover, source, page)
    return alone.taken, alone.one_by_one(0, len(page.tokens))


class _PageHandover:
    """Hands one page over."""

    def __init__(self, handover: Handover, source: Source, page: Page) -> None:
        self.handover = handover
        self.context = handover.context
        self.source = source
        self.page = page
        self.heads: dict[Known, _Head | None] = {}
        self.shapes: dict[int, _Shape] = {}
        """By the identity of the head, which the page keeps alive."""
        self.until = 0
        """The end of the run of messages with one head that was looked at last."""
        self.taken: Taken = {}
        self.late_at = self.context.scheduler.monotonic() + GIVING_SECONDS
        self.late = False
        """Whether messages that were looked at one by one have taken so long that the rest has to wait, or all others
        would overtake one of them."""

    def run(self) -> tuple[Taken, int]:
        """Hand over all of the page, or as much as there is time for; returns as `hand_over` does."""
        end = len(self.page.tokens)
        by_head = self._by_head()
        if not by_head:
            end = self._in_order(end)
        elif not self._hand_over(by_head):
            end = self.one_by_one(0, end)
        return self.taken, end

    def _by_head(self) -> list[_Group]:
        """All of the page in groups, if everything is plain and no session gets any of it at QoS 0, which is sent in
        the order of the queue. Empty otherwise."""
        heads, found = self.page.heads, list[_Group]()
        rows: defaultdict[int, list[int]] = defaultdict(list)
        first, last = 0, heads[0]
        for row, head in enumerate(heads):
            if head is not last:
                rows[id(last)] += range(first, row)
                first, last = row, head
        rows[id(last)] += range(first, len(heads))
        for some in rows.values():
            shape = self._shape(heads[some[0]])
            if shape.cut < 0 or not self._same(shape, some, found) or not _stored(found[-1].head):
                return []
        return found

    def _shape(self, head: bytes) -> _Shape:
        shape = self.shapes.get(id(head))
        if shape is None:
            shape = self.shapes[id(head)] = _Shape(head)
        return shape

    def _in_order(self, end: int) -> int:
        """Hand over plain messages in groups, as far as they go, and the others one by one. Returns where time was
        up."""
        row, again = 0, False
        while row < end and not self.late:
            groups, stop = self._groups(row)
            if not groups:  # once one of its kind is known, those after it are plain, or none is
                stop = self.one_by_one(row, self.until if again else row + 1)
                again = not again and stop < self.until
            else:
                again = False
                if not self._hand_over(_joined(groups)):
                    stop = self.one_by_one(row, stop)
            row = stop
        return row

    def _end_of_run(self, row: int) -> int:
        """The number of the next message with another head."""
        if row >= self.until:
            heads = self.page.heads
            head, end = heads[row], len(heads)
            while row < end and heads[row] is head:
                row += 1
            self.until = row
        return self.until

    def _groups(self, row: int) -> tuple[list[_Group], int]:
        """Groups of the messages from this one on, as far as all are plain, and where that ends."""
        found: list[_Group] = []
        heads = self.page.heads
        end = len(heads)
        while row < end:
            head, first = heads[row], row
            row = self._end_of_run(first)
            shape = self._shape(head)
            if shape.cut < 0 or not self._same(shape, range(first, row), found):
                stop = self._each(shape, first, row, found)
                if stop < row:
                    return found, stop
        return found, row

    def _same(self, shape: _Shape, rows: Sequence[int], found: list[_Group]) -> bool:
        """Add a group of messages whose headers are the same apart from the packet identifier. Returns False if they
        are not."""
        cut, bodies = shape.cut, self.page.bodies
        payloads = [bodies[row] for row in rows]
        if cut and not are_numbers(stripped(payloads, cut), cut):
            return False
        if shape.head is None:
            rules, repeated = self.source.rules, self.handover.repeated
            known = (
                repeated.find_numbered(rules, shape.md, shape.data)
                if cut
                else repeated.find_shared(rules, shape.md, shape.data)
            )
            shape.head = None if known is None else self._look(known)
            if shape.head is None:
                return False
        if cut:
            payloads = [body[cut:] for body in payloads]
        elif shape.rest:
            payloads = [shape.rest + body for body in payloads]
        found.append(_Group(shape.head, rows, payloads))
        return True

    def _each(self, shape: _Shape, first: int, last: int, found: list[_Group]) -> int:
        """Add a group for each message whose headers are in its body. Returns the number of the first that is not
        plain."""
        md, data, bodies = shape.md, shape.data, self.page.bodies
        rules, find = self.source.rules, self.handover.repeated.find
        for row in range(first, last):
            whole = data + bodies[row]
            known = find(rules, md, whole)
            head = None if known is None else self._look(known)
            if known is None or head is None:
                return row
            found.append(_Group(head, (row,), [whole[known.start :]]))
        return last

    def _look(self, known: Known) -> _Head | None:
        """What is known of messages with these headers, and who gets them; None if each has to be looked at."""
        if known in self.heads:
            return self.heads[known]
        made = self.heads[known] = self._found(known)
        return made

    def _found(self, known: Known) -> _Head | None:
        made, handover = known.made, self.handover
        if made.retain or (made.gateway and made.gateway == handover.gateway):
            return None
        try:
            receivers, shared = handover.receivers(made)
        except Refused:
            return None
        if shared or not receivers:
            return None
        if len(receivers) == 1 and not min(made.qos, receivers[0].qos) and receivers[0].session.connection is None:
            return None  # its client is away: counted, and reported where that was asked for
        return _Head(known, receivers)

    def one_by_one(self, row: int, end: int) -> int:
        """Hand over each message by itself, as `Handover.message` does, as long as there is time. Returns where that
        ended."""
        monotonic = self.context.scheduler.monotonic
        for stored in self.page.stored(row, end):
            rule = self.handover.one(self.source, stored)
            self.taken.setdefault(rule, []).append(stored.token)
            row += 1
            if monotonic() > self.late_at or self.context.is_full or self.source.in_slices:
                self.late = True
                break
        return row

    # -- groups of plain messages --

    def _hand_over(self, groups: list[_Group]) -> bool:
        """Hand over groups of plain messages. Returns False, with nothing done, if a session has no room for all of its
        messages."""
        if any(max(map(len, payloads)) > _LONG for _, _, payloads in groups):
            return False
        in_slices = self.handover.fan_out.in_slices
        if in_slices and any(one.head.known.topic in in_slices for one in groups):
            return False
        shares = self._shares_of(groups)
        if sum(its.size for its in shares.values()) > self.context.copies_left:
            return False
        if not self.handover.fan_out.have_room([(one, its.messages, its.size) for one, its in shares.items()]):
            return False
        for (known, receivers), rows, payloads in groups:
            made = known.made
            self._account(known, rows, len(receivers))
            like = Publication(known.topic, b"", made.qos, False, known.block)  # noqa: FBT003 -- not retained
            for receiver in receivers:
                copies = Copies(like, min(made.qos, receiver.qos), receiver.sub_ids, payloads)
                if copies.qos:
                    shares[receiver.session].parts.append(_Part(rows, copies, known))
                else:
                    self.handover.fan_out.send_all_at_once(receiver.session, copies)
        for session, one in shares.items():
            self._hand_share_over(session, one)
        return True

    def _hand_share_over(self, session: Session, share: _Share) -> None:
        fan_out = self.handover.fan_out
        if len(share.parts) == 1:
            [(_, copies, known)] = share.parts
            fan_out.copy_all(session, copies, share.size, known.prefixes)
            return
        items, known_of = share.in_order()
        each = zip(items, known_of, strict=True)
        heads = [fan_out.prefix(known.prefixes, item) for item, known in each] if session.durable else ()
        fan_out.copy_items(session, items, heads, share.size)

    def _shares_of(self, groups: list[_Group]) -> dict[Session, _Share]:
        """What each session gets of the groups and must not lose, as numbers of messages and bytes."""
        shares: dict[Session, _Share] = {}
        for (known, receivers), _, payloads in groups:
            count, size = len(payloads), sum(map(len, payloads))
            for receiver in receivers:
                if not min(known.made.qos, receiver.qos):
                    continue
                one = shares.get(receiver.session)
                if one is None:
                    one = shares[receiver.session] = _Share()
                one.messages += count
                one.size += size
        return shares

    def _account(self, known: Known, rows: Sequence[int], copies: int) -> None:
        counters, rule, tokens = self.context.counters, known.rule.name, self.page.tokens
        self.taken.setdefault(rule, []).extend([tokens[row] for row in rows])
        counters.route_matched[rule] += len(rows)
        counters.mqtt_publish_sent[rule, known.made.qos] += len(rows) * copies


def _joined(groups: list[_Group]) -> list[_Group]:
    """Join groups that become the same, in the order in which they begin; not if some receiver gets any of them at QoS
    0, as these are sent in this order."""
    alike: dict[int, list[_Group]] = {}
    for one in groups:
        alike.setdefault(id(one.head), []).append(one)
    if len(alike) == len(groups):
        return groups
    if not all(_stored(some[0].head) for some in alike.values()):
        return groups
    return [
        _Group(some[0].head, [*chain(*[one.rows for one in some])], [*chain(*[one.payloads for one in some])])
        for some in alike.values()
    ]


def _stored(head: _Head) -> bool:
    """Whether all receivers get such messages at QoS 1 or 2."""
    return bool(head.known.made.qos) and all(receiver.qos for receiver in head.receivers)

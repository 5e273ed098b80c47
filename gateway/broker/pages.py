"""Pages of plain messages from a queue to devices: what is the same for all messages with one head is done once, and
what is the same for all that a session gets of a page, once a session. Each session gets its messages in the order of
the queue. Whatever is not plain is left to `Handover.message`, one at a time and with the same result, which the tests
compare. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gateway.bridge.repeated import Known, are_numbers, header_length, is_opened, stripped
from gateway.broker import copying
from gateway.broker.route import Receiver
from gateway.errors import Refused
from gateway.ports.batch import MQMD_LENGTH
from gateway.ports.sources import Page
from gateway.session.outflow import Item
from gateway.session.publication import Publication
from gateway.session.session import Session

if TYPE_CHECKING:
    from gateway.broker.consumers import Source, Taken
    from gateway.broker.handover import Handover


_LONG = 16_384
"""Payloads that are longer are looked at alone: not every session can store them."""


class _Head(NamedTuple):
    """What messages with one head become."""

    known: Known
    receivers: tuple[Receiver, ...]


class _Stretch(NamedTuple):
    """Messages that become the same but for their payloads, one behind the other."""

    head: _Head
    first: int
    payloads: list[bytes]


class _Shape:
    """How the headers of messages with one head lie: in the head, or up to the packet identifier."""

    __slots__ = ("cut", "data", "head", "md", "rest")

    def __init__(self, head: bytes) -> None:
        self.md = head[:MQMD_LENGTH]
        self.data = head[MQMD_LENGTH:]
        length = header_length(self.md, self.data)
        self.cut = length - len(self.data)
        """So many bytes of the header are in the bodies; -1: more than the packet identifier is."""
        self.rest = b""
        """What of the head is payload."""
        if length < 0 or (self.cut > 0 and not is_opened(self.data)):
            self.cut = -1
        elif self.cut < 0:
            self.cut, self.rest = 0, self.data[length:]
        self.head: _Head | None = None


class _Wanted:
    """What a session is to have of a page."""

    __slots__ = ("heads", "items", "messages", "size")

    def __init__(self) -> None:
        self.messages = 0
        self.size = 0
        self.items: list[Item] = []
        self.heads: list[bytes] = []
        """What stores each item, for a durable session."""


def hand_over(handover: Handover, source: Source, page: Page) -> Taken:
    """Hand over a page; which messages each rule took."""
    return _Passing(handover, source, page).run()


class _Passing:
    """One page on its way."""

    def __init__(self, handover: Handover, source: Source, page: Page) -> None:
        self.handover = handover
        self.engine = handover.engine
        self.source = source
        self.page = page
        self.heads: dict[Known, _Head | None] = {}
        self.shapes: dict[int, _Shape] = {}
        """By the identity of the head: the page keeps it alive."""
        self.until = 0
        """The end of the run of messages with one head that was looked at last."""
        self.taken: Taken = {}

    def run(self) -> Taken:
        """From the front to the back."""
        row, end, again = 0, len(self.page.tokens), False
        while row < end:
            stretches, stop = self._stretches(row)
            if not stretches:  # the first of its kind makes those behind it plain, or none
                stop = self._one_by_one(row, self.until if again else row + 1)
                again = not again and stop < self.until
            else:
                again = False
                if not self._together(stretches):
                    self._one_by_one(row, stop)
            row = stop
        return self.taken

    def _end_of_run(self, row: int) -> int:
        """The number of the next message with another head."""
        if row >= self.until:
            heads = self.page.heads
            head, end = heads[row], len(heads)
            while row < end and heads[row] is head:
                row += 1
            self.until = row
        return self.until

    def _stretches(self, row: int) -> tuple[list[_Stretch], int]:
        """From this message on as far as all are plain, and where that ends."""
        found: list[_Stretch] = []
        heads, shapes = self.page.heads, self.shapes
        end = len(heads)
        while row < end:
            head, first = heads[row], row
            row = self._end_of_run(first)
            shape = shapes.get(id(head))
            if shape is None:
                shape = shapes[id(head)] = _Shape(head)
            if shape.cut < 0 or not self._same(shape, first, row, found):
                stop = self._each(shape, first, row, found)
                if stop < row:
                    return found, stop
        return found, row

    def _same(self, shape: _Shape, first: int, last: int, found: list[_Stretch]) -> bool:
        """Messages whose headers are the same but for the packet identifier."""
        cut, payloads = shape.cut, self.page.bodies[first:last]
        if cut and not are_numbers(stripped(payloads, cut), cut):
            return False
        if shape.head is None:
            rules, repeated = self.source.rules, self.handover.repeated
            known = (
                repeated.find_numbered(rules, shape.md, shape.data)
                if cut
                else repeated.find(rules, shape.md, shape.data)
            )
            shape.head = None if known is None else self._look(known)
            if shape.head is None:
                return False
        if cut:
            payloads = [body[cut:] for body in payloads]
        elif shape.rest:
            payloads = [shape.rest + body for body in payloads]
        found.append(_Stretch(shape.head, first, list(payloads)))
        return True

    def _each(self, shape: _Shape, first: int, last: int, found: list[_Stretch]) -> int:
        """Messages whose headers are in their bodies; the number of the first that is not plain."""
        md, data, bodies = shape.md, shape.data, self.page.bodies
        rules, find, before = self.source.rules, self.handover.repeated.find, None
        for row in range(first, last):
            whole = data + bodies[row]
            known = find(rules, md, whole)
            if known is None:
                return row
            if known is before:
                found[-1].payloads.append(whole[known.start :])
                continue
            head = self._look(known)
            if head is None:
                return row
            before = known
            found.append(_Stretch(head, row, [whole[known.start :]]))
        return last

    def _look(self, known: Known) -> _Head | None:
        """Who gets such messages; None when it takes a look at each."""
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
            return None  # nobody hears it: counted, and reported where that was asked for
        return _Head(known, receivers)

    def _one_by_one(self, row: int, end: int) -> int:
        """The long way."""
        for stored in self.page.stored(row, end):
            rule = self.handover.message(self.source, stored)
            self.taken.setdefault(rule, []).append(stored.token)
        return end

    # -- together --

    def _together(self, stretches: list[_Stretch]) -> bool:
        """Hand over plain messages; False, with nothing done, when somebody has no room for all of his."""
        if any(max(map(len, payloads)) > _LONG for _, _, payloads in stretches):
            return False
        wanted = self._wanted(stretches)
        if not self._room(wanted):
            return False
        for (known, receivers), first, payloads in stretches:
            made = known.made
            self._account(known, first, first + len(payloads), len(receivers))
            publications = [
                Publication(known.topic, payload, made.qos, False, known.block)  # noqa: FBT003 -- not retained
                for payload in payloads
            ]
            for receiver in receivers:
                qos = min(made.qos, receiver.qos)
                if qos:
                    self._add(wanted[receiver.session], receiver, known, publications, qos)
                else:
                    copying.send(self.engine, receiver, publications)
        for session, one in wanted.items():
            if session.durable:
                copying.store(self.engine, session, one.items, one.heads, one.size)
            else:
                self.engine.turn.deliveries.append((session, one.items, None, 0))
        return True

    def _wanted(self, stretches: list[_Stretch]) -> dict[Session, _Wanted]:
        """How much it is for each session that must not lose any."""
        wanted: dict[Session, _Wanted] = {}
        for (known, receivers), _, payloads in stretches:
            count, size = len(payloads), sum(map(len, payloads))
            for receiver in receivers:
                if not min(known.made.qos, receiver.qos):
                    continue
                one = wanted.get(receiver.session)
                if one is None:
                    one = wanted[receiver.session] = _Wanted()
                one.messages += count
                one.size += size
        return wanted

    def _room(self, wanted: dict[Session, _Wanted]) -> bool:
        """Whether there is room for all of it, in each session and in all of them."""
        limits = self.engine.limits
        messages = sum(one.messages for one in wanted.values())
        size = sum(one.size for one in wanted.values())
        return self.engine.delivery.waiting.room(limits, size, messages) and all(
            copying.room(self.engine, session, one.size, one.messages) for session, one in wanted.items()
        )

    def _account(self, known: Known, first: int, last: int, copies: int) -> None:
        counters, rule = self.engine.counters, known.rule.name
        self.taken.setdefault(rule, []).extend(self.page.tokens[first:last])
        counters.route_matched[rule] += last - first
        counters.mqtt_publish_sent[rule, known.made.qos] += (last - first) * copies

    def _add(self, one: _Wanted, receiver: Receiver, known: Known, publications: list[Publication], qos: int) -> None:
        """Copies for a session."""
        sub_ids = receiver.sub_ids
        items = [Item(publication, qos, False, sub_ids) for publication in publications]  # noqa: FBT003 -- not retained
        one.items += items
        if receiver.session.durable:
            one.heads += [copying.prefix(self.engine, known.prefixes, items[0])] * len(items)

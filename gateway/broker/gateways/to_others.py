"""Publications that clients of other gateways want, where several share the state queues. Pure.

The publisher's gateway puts a message for each other gateway on `MQGATE.FORWARD` in the unit of work of the
publication, so that the acknowledgement covers it. The gateway that reads it takes it in the unit of work that stores
it for its sessions; rules and retained messages are left to the publisher's gateway.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from gateway.broker.context import Context
from gateway.broker.gateways.forwarded import Forwarded, around_number, encode_forwarded
from gateway.broker.gateways.interests import pages
from gateway.broker.publish.route import Route
from gateway.broker.publish.router import Router
from gateway.ports.batch import MQMD_LENGTH
from gateway.ports.ownership import READS, WHO_GETS_IT, forward_key
from gateway.ports.state_queues import FORWARD
from gateway.session.publication import Publication
from gateway.session.record import encode_prefix, with_expiry, with_properties

if TYPE_CHECKING:
    from gateway.broker.publish.route import Sent

_NOTHING = b"", 0
"""Neither properties nor a time to live."""
_MOST_AROUND = 1024
"""The most sets of gateways for which it is remembered what stands around a number."""


_MOST_REDIRECTS = 20
"""How often a message of a shared subscription goes back to gateways that have passed it on: their members may move."""


class ToOthers:
    """Puts publications for other gateways."""

    def __init__(
        self, context: Context, router: Router, instance: str, reads: Callable[[str], int] = lambda _: READS
    ) -> None:
        """`reads`: what another gateway reads of what is put for it."""
        self.context = context
        self.router = router
        self.instance = instance
        self.reads = reads
        self.number = int(context.now * 1_000_000)
        """The number given last to a publication that was put for others; a later life of this gateway goes on
        higher."""
        self.on_sent: Callable[[Forwarded], None] = lambda _forwarded: None
        """Told of each publication of this gateway's clients that others, or sessions that have moved on, want."""
        self.departed_groups: Callable[[str], Collection[str]] = lambda _topic: ()
        """The shared subscriptions for a topic with members that have just moved on from here."""
        self.give_departed: Callable[[str, Publication, Collection[str], int], bool] = lambda *_: False
        """Gives a publication to such a member; returns False if there is none. The last arguments: gateways where no
        member is, and how often it was redirected."""
        self.unread: set[str] = set()
        """Gateways that are no more, whose sessions nobody has read yet, and whose clients' subscriptions were never
        heard of here."""
        self.all_read: Callable[[int], bool] = lambda _reads: True
        """Whether all other gateways read this much: whoever takes over may have to. Set by whoever knows them."""
        self._turn = 0
        self._digits = 0
        self._around: dict[tuple[str, ...], tuple[bytes, bytes]] = {}
        """What stands before and after a number of `_digits` digits, by the gateways that want a publication."""

    def send(self, route: Route, publication: Publication) -> Collection[str]:
        """Put a publication for every gateway whose clients want it. Returns the shared subscriptions that are served
        there: members here go without."""
        wanted: dict[str, tuple[bool, list[str]]] = {peer: (True, []) for peer in route.elsewhere}
        here = {group.name: group for group in route.shared}
        given: set[str] = set()
        for name, peers in route.shared_elsewhere.items():
            group = here.get(name)
            present = group is not None and group.takes(anyhow=False)
            self._turn += 1
            turn = self._turn % (len(peers) + present)
            if turn < len(peers):
                wanted.setdefault(peers[turn], (False, []))[1].append(name)
                given.add(name)
        for name in self.departed_groups(route.topic):
            if name not in here and name not in route.shared_elsewhere:
                self.give_departed(name, publication, [self.instance], 0)
        self.number += 1
        unread = sorted(self.unread.difference(route.elsewhere))  # else it is put for all sessions there that want it
        told = unread if unread and self.all_read(WHO_GETS_IT) else []
        to = sorted(route.elsewhere)
        forwarded = Forwarded(publication, self.instance, self.number, to, direct=True, unread_at=told)
        self.on_sent(forwarded)
        same: list[str] = []
        for peer, (direct, groups) in wanted.items():
            if direct and not groups:
                same.append(peer)
            for number, page in enumerate(pages(groups)):
                self.put([peer], forwarded._replace(direct=direct and not number, groups=page))
        if same:
            self.put(same, forwarded)
        self.put(unread, forwarded._replace(unread=True))
        return given

    def send_all(self, sent: list[Sent]) -> None:
        """Put, in order, publications that the fast lane has taken: no shared subscription elsewhere wants them, nor
        any session that has moved on. If this meets a defect, none of them is put."""
        first = self.number + 1
        digits = len(str(first))
        if digits != len(str(first + len(sent))):  # numbers need not be without a gap
            first, digits = 10**digits, digits + 1
        columns: dict[str, tuple[list[bytes], list[bytes]]] = {}
        gateways: tuple[str, ...] = ()
        last: Route | None = None
        last_said = _NOTHING
        head = before = after = b""
        targets: list[tuple[list[bytes], list[bytes]]] = []
        for number, (connection, route, payload, block, expiry, _) in enumerate(sent, first):
            if route is not last:
                last, last_said = route, _NOTHING
                head = route.forward_head or self._find_head(route, connection.session.client_id)
                if route.elsewhere != gateways:
                    gateways = route.elsewhere
                    before, after = self._around_number(gateways, digits)
                    targets = [columns.setdefault(gateway, ([], [])) for gateway in gateways]
            if (block, expiry) != last_said:
                last_said = block, expiry
                head = self._head_with(route.forward_head, block, expiry)
            body = b"%b%d%b%b" % (before, number, after, payload)
            for heads, bodies in targets:
                heads.append(head)
                bodies.append(body)
        self.number = first + len(sent) - 1
        for gateway, (heads, bodies) in columns.items():
            puts = self.context.batch.state_puts(FORWARD, forward_key(gateway))
            puts.heads += heads
            puts.bodies += bodies
            self.context.batch.rows += len(heads)

    def _around_number(self, gateways: tuple[str, ...], digits: int) -> tuple[bytes, bytes]:
        found = self._around.get(gateways)
        if found is None or digits != self._digits:
            if digits != self._digits or len(self._around) >= _MOST_AROUND:
                self._digits, self._around = digits, {}
            found = self._around[gateways] = around_number(self.instance, sorted(gateways), digits)
        return found

    def _find_head(self, route: Route, client_id: str) -> bytes:
        qos, retain = route.first >> 1 & 3, bool(route.first & 1)
        like = Publication(route.wire_topic, b"", qos, retain, client_id=client_id)
        route.forward_head = self.router.state_head(encode_prefix(like, qos, retain, ()))
        return route.forward_head

    def _head_with(self, head: bytes, block: bytes, expiry: int) -> bytes:
        """The head of publications with these properties, and with these seconds to live if they expire."""
        if expiry:
            head = with_expiry(head, self.context.now + expiry, MQMD_LENGTH)
        return with_properties(head, block) if block else head

    def give(self, name: str, publication: Publication, tried: Collection[str] = (), redirects: int = 0) -> None:
        """Put a publication, in the open batch, for a member of a shared subscription at another gateway, because none
        is left here. It has no number, and `tried` are the gateways where nobody was. `redirects`: not 0 if gateways
        with members have passed it on; it goes back to these if no other has members."""
        if self.pass_on(name, publication, tried, redirects):
            return
        tried = {*tried, self.instance}
        if self.give_departed(name, publication, tried, redirects) or not 0 < redirects < _MOST_REDIRECTS:
            return
        peers = self.router.sharing_elsewhere(name)
        if peers:
            self._give_one(peers, name, publication, tried, redirects + 1)

    def pass_on(self, name: str, publication: Publication, tried: Collection[str], redirects: int) -> bool:
        """Like `give`, while members are here; returns False if all gateways with members have been tried."""
        tried = {*tried, self.instance}
        peers = [peer for peer in self.router.sharing_elsewhere(name) if peer not in tried]
        if peers:
            self._give_one(peers, name, publication, tried, redirects)
        return bool(peers)

    def _give_one(
        self, peers: list[str], name: str, publication: Publication, tried: Collection[str], redirects: int
    ) -> None:
        self._turn += 1
        peer = peers[self._turn % len(peers)]
        given = Forwarded(publication, to=sorted({*tried, peer}), groups=[name], redirects=redirects)
        self.put([peer], given)

    def put(self, gateways: Collection[str], forwarded: Forwarded) -> None:
        """Put it for these gateways, in the open batch."""
        if forwarded.redirects:
            early = [gateway for gateway in gateways if not self.reads(gateway)]
            if early:
                self.put(early, forwarded._replace(redirects=0))
                gateways = set(gateways).difference(early)
        prefix, body = encode_forwarded(forwarded)
        head = self.router.state_head(prefix)
        for gateway in gateways:
            self.context.batch.put_state(FORWARD, forward_key(gateway), head, body)

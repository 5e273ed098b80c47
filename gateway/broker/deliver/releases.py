"""Stored copies of QoS 2 that their clients have received: the rows that say so replace those with payloads. Pure."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gateway.ports.state_queues import OUT
from gateway.session import copy_columns
from gateway.session.outflow import Item
from gateway.session.record import RELEASED, encode_prefix

if TYPE_CHECKING:
    from gateway.broker.batch import Batch
    from gateway.broker.context import Context
    from gateway.broker.publish.router import Router
    from gateway.ports.batch import Puts
    from gateway.session.copies import Copies
    from gateway.session.publication import Publication
    from gateway.session.session import Session


class _Marked(NamedTuple):
    """Copies whose release is stored with a batch, from this row on."""

    session: Session
    released: Copies
    puts: Puts
    row: int


class Releases:
    """Replaces the rows of copies that are released [MQTT-4.3.3-5]."""

    def __init__(self, context: Context, router: Router) -> None:
        self._context = context
        self._router = router
        self._heads: dict[tuple[Publication, bool, tuple[int, ...]], bytes] = {}
        """Those of the batch: what many sessions get in one go has the same. A publication may have a long payload, so
        that none is kept for longer."""
        self._batch: Batch | None = None
        self._marked: list[_Marked] = []
        """Those of that batch."""

    def mark_all(self, session: Session, released: Copies) -> None:
        """Replace the stored rows by some that need no payload any more."""
        batch, count, likes = self._context.batch, len(released), released.likes
        batch.taken(OUT, session.key).extend(released.tokens)
        released.tokens = ()
        puts = batch.state_puts(OUT, session.key, priority=9)
        self._note(batch, _Marked(session, released, puts, len(puts.heads)))
        puts.heads += [self._head(like, released) for like in likes or (released.like,)] * (1 if likes else count)
        puts.bodies += copy_columns.numbered([b""] * count, released.first)
        batch.rows += count

    def _head(self, like: Publication, released: Copies) -> bytes:
        key = like, released.retain, released.sub_ids
        head = self._heads.get(key)
        if head is None:
            head = self._router.state_head(encode_prefix(like, 2, released.retain, released.sub_ids, RELEASED))
            self._heads[key] = head
        return head

    def _note(self, batch: Batch, marked: _Marked) -> None:
        """Have it named when the batch is committed, in one go with the others of the batch."""
        if batch is not self._batch or batch.undo is not None:
            self._batch = batch if batch.undo is None else None
            self._marked = []
            self._heads.clear()
            batch.after.append(partial(self._stored, self._marked))
        self._marked.append(marked)

    def _stored(self, marked: list[_Marked]) -> None:
        """The batch is committed."""
        self._batch = None
        self._heads.clear()
        for one in marked:
            try:
                self._name(*one)
            except Exception as error:  # noqa: BLE001 -- the others are named all the same
                self._context.set_aside.keep("call", one.session.client_id, error)

    def _name(self, session: Session, released: Copies, puts: Puts, row: int) -> None:
        """Note the tokens of these rows; those that nobody waits for any more go, as PUBCOMP has overtaken the
        commit."""
        inflight, count = session.outflow.inflight, len(released)
        tokens = released.tokens = puts.tokens[row : row + count]
        gone: list[object] = []
        for packet_id, token in enumerate(tokens, released.first):
            found = inflight.get(packet_id)
            if found is released and not session.ended:
                continue
            if isinstance(found, Item) and found.released and found.token is None and not session.ended:
                found.token = token  # it was looked at by itself meanwhile
            else:
                gone.append(token)
        if gone:
            self._context.batch.taken(OUT, session.key).extend(gone)

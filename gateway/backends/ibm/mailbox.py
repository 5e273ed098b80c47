"""What other gateways have put on `GATEWAYS` for one gateway: looked at, dealt with, and only then removed.

A destructive get could lose a message: outside syncpoint, the one that the queue manager has handed over when it ends
or the connection breaks; under syncpoint it would be seen again, but behind what was put later, for as long as the
queue manager holds the unit of work of the broken connection open. What gateways tell each other has to arrive
completely and in order, because nothing is said twice. A message that was dealt with but whose removal was not
committed is recognised by its MsgId when it is seen again.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.backends.ibm.connection import Connection
from gateway.backends.ibm.leases import decode_message
from gateway.backends.ibm.structures import NO_ID, get_options, match_md, msg_id_of
from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.ports.batch import Takes
from gateway.ports.ownership import Message, message_key
from gateway.ports.state_queues import GATEWAYS

_BROWSE = mq.MQGMO_FAIL_IF_QUIESCING | mq.MQGMO_NO_PROPERTIES
_NEXT = get_options(_BROWSE | mq.MQGMO_NO_WAIT | mq.MQGMO_BROWSE_NEXT, mq.MQMO_MATCH_CORREL_ID)
_TAKE = get_options(
    _BROWSE | mq.MQGMO_NO_WAIT | mq.MQGMO_SYNCPOINT | mq.MQGMO_ACCEPT_TRUNCATED_MSG, mq.MQMO_MATCH_CORREL_ID
)
_AT_ONCE = 100
"""The most messages of one unit of work."""
_REMEMBERED = 10 * _AT_ONCE
"""How many MsgIds are remembered of messages that may be seen again: those of the last few units of work whose outcome
is not known."""


class Mailbox:
    """The messages to one gateway."""

    def __init__(self, instance: str, deal_with: Callable[[Connection, Message], None]) -> None:
        """`deal_with` may put more on that connection; it is committed with the removal of the message it was called
        for."""
        self._key = message_key(instance)
        self._deal_with = deal_with
        self._dealt_with: dict[bytes, None] = {}
        """MsgIds of messages whose removal is not known to be committed, in the order in which they were read."""
        self.most = _AT_ONCE
        """The most that are read in one unit of work, which may put an answer to each; MAXUMSGS may allow fewer."""

    def read(self, connection: Connection, milliseconds: int, enough: Callable[[], bool] = lambda: False) -> None:
        """Deal with what is there, in order, until it is enough for now; wait at most `milliseconds` for the first
        message. Raises MQError; what was read may then be read again."""
        options = get_options(_BROWSE | mq.MQGMO_WAIT | mq.MQGMO_BROWSE_FIRST, mq.MQMO_MATCH_CORREL_ID, milliseconds)
        read: list[bytes] = []
        while (
            len(read) < min(self.most, _AT_ONCE)
            and (found := connection.look(connection.browse(GATEWAYS), self._key, options, GATEWAYS)) is not None
        ):
            data, msg_id = found[0], msg_id_of(found[1])
            if msg_id not in self._dealt_with and (message := decode_message(data)) is not None:
                self._deal_with(connection, message)
            self._dealt_with[msg_id] = None
            read.append(msg_id)
            if enough():
                break
            options = _NEXT
        if read:
            connection.take(Takes(GATEWAYS, self._key, tokens=[*read]))
            connection.session.commit()
            for msg_id in read:
                del self._dealt_with[msg_id]
        while len(self._dealt_with) > _REMEMBERED:
            del self._dealt_with[next(iter(self._dealt_with))]


def empty(
    connection: Connection, instance: str, meanwhile: Callable[[], None] = lambda: None, most: int = _AT_ONCE,
) -> None:  # fmt: skip
    """Remove what was put for a gateway that no longer exists, in as many units of work as that takes. `meanwhile` is
    called after each."""
    session, handle, taken = connection.session, connection.input(GATEWAYS), 0
    while True:
        answer = session.mqget(session.handle, handle, match_md(NO_ID, message_key(instance)), _TAKE(), 0)
        none = answer[-1] == mq.MQRC_NO_MSG_AVAILABLE
        if not none and answer[-2] == mq.MQCC_FAILED:
            raise MQError(int(answer[-1]), f"taking from {GATEWAYS}")
        taken += not none
        if taken and (none or taken % min(most, _AT_ONCE) == 0):
            session.commit()
            meanwhile()
        if none:
            return

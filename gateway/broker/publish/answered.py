"""What is done for each connection when a commit has returned, compiled where there was a compiler at installation."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from gateway.ports.link import Link
from gateway.session.connection import CLOSED, Connection

if TYPE_CHECKING:
    from gateway.broker.batch import StagedRows

Ordinary = tuple[list[Connection], list[Link], list[bytes], list[Connection]]


def ordinary_in_python(replies: dict[Connection, list[bytes]], /) -> Ordinary:
    """The connections whose answers are written as they are, with their links and bytes; and the others, which have no
    CONNACK so far, are closed, or are to be told something else first."""
    connections, links, datas, others = list[Connection](), list[Link](), list[bytes](), list[Connection]()
    for connection, answers in replies.items():
        if connection.out or not connection.connack_sent or connection.state == CLOSED:
            others.append(connection)
        else:
            connections.append(connection)
            links.append(connection.link)
            datas.append(answers[0] if len(answers) == 1 else b"".join(answers))
    return connections, links, datas, others


def committed_in_python(pending: dict[Connection, int], /) -> None:
    """Note that this many publications of each connection are committed: they are acknowledged, and count as
    received."""
    for connection, count in pending.items():
        connection.inbound_pending -= count
        connection.session.received += count


def keep_tokens_in_python(staged: list[StagedRows], /) -> tuple[int, list[StagedRows]]:
    """Note in their sessions the tokens under which QoS 2 records are stored now. Returns how many publications were
    staged, and the entries that are not such records: runs, and what was staged by sessions that have ended since."""
    count = 0
    others: list[StagedRows] = []
    for entry in staged:
        session, puts, first, ids, run = entry
        count += len(ids)
        if run is not None or session.ended:
            others.append(entry)
        elif len(ids) == 1:  # as where one message is in flight
            session.staged_tokens[ids[0]] = puts.tokens[first]
        else:
            session.staged_tokens.update(zip(ids, puts.tokens[first : first + len(ids)], strict=True))
    return count, others


ordinary, committed, keep_tokens = ordinary_in_python, committed_in_python, keep_tokens_in_python
with suppress(ModuleNotFoundError):
    import gateway.broker.publish._fast as compiled_answers

    ordinary, committed = compiled_answers.ordinary, compiled_answers.committed
    keep_tokens = compiled_answers.keep_tokens

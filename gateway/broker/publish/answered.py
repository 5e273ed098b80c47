"""What is done for each connection when a commit has returned, compiled where there was a compiler at installation."""

from __future__ import annotations

from gateway.ports.link import Link
from gateway.session.connection import CLOSED, Connection

Ordinary = tuple[list[Connection], list[Link], list[bytes], list[Connection]]


def ordinary_in_python(replies: dict[Connection, list[bytes]], /) -> Ordinary:
    """Connections whose answers are written as they are, with their links and bytes, and the other connections: those
    without a CONNACK so far, those that are closed, and those that are to be told something else first."""
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
    """So many publications of each connection are committed: they take no room of its Receive Maximum any more, and
    count as received."""
    for connection, count in pending.items():
        connection.inbound_pending -= count
        connection.session.received += count


ordinary, committed = ordinary_in_python, committed_in_python
try:
    import gateway.broker.publish._fast as compiled_answers
except ModuleNotFoundError:
    pass
else:
    ordinary, committed = compiled_answers.ordinary, compiled_answers.committed

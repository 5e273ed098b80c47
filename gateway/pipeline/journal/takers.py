"""Whether a queue accepts what the pipeline would put on it, by its definition: in a running queue manager, or as it
lies in a stopped one's store. A batch is one unit of work, so it fits as a whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.mq import mqmd
from gateway.pipeline.errors import QueueRefuses, WrongOption
from gateway.pipeline.journal.puts import PutColumns
from gateway.queue_manager.core import OBJECT_STATE
from gateway.queue_manager.objects.catalogue import Definition, decode_definition


def defined_in(state: Mapping[bytes, bytes], queue: str) -> Definition | None:
    """The definition of a local queue in the state of a store; None if the store has no definitions at all, as a
    drainer's has not. Raises WrongOption if it has only others."""
    record = state.get(OBJECT_STATE + f"QLOCAL/{queue}".encode())
    if record is not None:
        return decode_definition(record)
    if any(name.startswith(OBJECT_STATE) for name in state):
        raise no_queue(queue)
    return None


def no_queue(queue: str) -> WrongOption:
    """The error for a name that is no local queue: the batch is one unit of work of this store."""
    return WrongOption(f"{queue} is not a local queue here: define it, or write to the queue an alias stands for")


def check_takes(queue: Definition, depth: int, messages: PutColumns) -> None:
    """Raise QueueRefuses if the queue does not accept these messages; if there are none, if it would not accept one
    more."""
    count, most, longest = len(messages.heads), queue.number("MAXDEPTH"), queue.number("MAXMSGL")
    if queue.number("PUT") == 1:
        raise QueueRefuses(f"{queue.name} takes no messages: ALTER QLOCAL({queue.name}) PUT(ENABLED)")
    if stream := queue.text("STREAMQ"):
        raise QueueRefuses(
            f"what is put to {queue.name} has a copy on its STREAMQ({stream}), and what a job puts has none: write to "
            f"another queue, or ALTER QLOCAL({queue.name}) STREAMQ(' ')"
        )
    if depth + max(count, 1) > most:
        more = f"{count:,} more do not fit" if count else "none more fits"
        raise QueueRefuses(
            f"{queue.name} holds {depth:,} messages and takes {most:,}: {more}; raise its MAXDEPTH, or put fewer at a "
            "time (`--where`)"
        )
    for head, body in zip(messages.heads, messages.bodies, strict=True):
        length = len(head) - mqmd.LENGTH + len(body)
        if length > longest:
            raise QueueRefuses(
                f"{queue.name} takes messages of {longest:,} bytes, and one has {length:,}: raise its MAXMSGL, or "
                "leave that out (`--where`)"
            )

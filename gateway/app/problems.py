"""What an operator should look at, in sentences: the admin page shows them on top, the API gives them to programs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gateway.app.parts import Parts
from gateway.app.resources import certificate_ends, revocation_ends
from gateway.config.counting import counted
from gateway.errors import MQError
from gateway.observe import health

if TYPE_CHECKING:
    from gateway.broker.batch import Parked

WARN_BEFORE_SECONDS = 14 * 86_400
"""As the alert about certificates has it."""


def problems_of(parts: Parts) -> list[str]:
    """All of them, first those that keep devices from connecting."""
    return list(_problems(parts))


def _problems(parts: Parts) -> Iterator[str]:
    now, engine = parts.snapshot(), parts.engine
    for check in (*health.readyz(now).checks, *health.livez(now).checks):
        if not check.ok:
            yield f"{check.name}: {check.why}"
    yield from _silence(parts)
    for what, text in engine.context.problems.items():
        yield f"{what}: {text}"
    if parts.buffer is not None:
        for queue, text in parts.buffer.problems.items():
            yield f"buffer, {queue or 'all queues'}: {text}"
    if engine.context.held_since:
        seconds = time.time() - engine.context.held_since
        yield f"nothing could be committed for {seconds:.0f} s: {engine.failures.last_text}"
    yield from parts.incomplete.problems()
    for parked in engine.parking.waiting.values():
        yield _held(parts, parked)
    for name, end in certificate_ends(parts.settings):
        left = end - time.time()
        if left < WARN_BEFORE_SECONDS:
            when = f"expires in {counted(round(left / 86_400), 'day')}" if left > 0 else "has expired"
            yield f"listener {name}: its certificate {when}; replace the files and reload"
    for name, end in revocation_ends(parts.settings):
        if end < time.time():
            yield f"listener {name}: its revocation list is out of date, so no certificate counts; renew it and reload"


def _silence(parts: Parts) -> Iterator[str]:
    silent = parts.inquiries.silent() if parts.inquiries is not None else 0.0
    if silent >= parts.settings.admin.answer_timeout:
        yield f"IBM MQ has not answered a question about its queues for {silent:.0f} s"


def _held(parts: Parts, parked: Parked) -> str:
    """A queue that refuses messages, and what an operator can do about it."""
    queue = parked.address.queue
    many = counted(parked.count, "message is", "messages are")
    return f"queue {queue}: {why_refused(parts, queue)}; {many} held, and not acknowledged to the devices"


def why_refused(parts: Parts, queue: str) -> str:
    """Why a queue refuses messages, as far as its attributes tell."""
    try:
        row = parts.queue_status.row(queue)
    except MQError:
        return "it does not exist"
    if row is not None:
        if row.attributes.get("PUT") == "DISABLED":
            return "put is inhibited (`ALTER QLOCAL(...) PUT(ENABLED)`)"
        if row.depth is not None and row.max_depth is not None and row.depth >= row.max_depth:
            return f"it is full ({counted(row.depth, 'message')}): its consumer is behind"
    return f"it refuses: {parts.engine.failures.last_text}"

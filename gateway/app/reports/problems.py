"""What an operator should look at, in sentences: the admin page shows them on top, and the API gives them to
programs."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from typing import NamedTuple
from urllib.parse import quote

from gateway.app.parts import Parts
from gateway.app.reports.resources import ADMIN, certificate_ends, revocation_ends
from gateway.config.counting import counted
from gateway.errors import MQError
from gateway.observe import health
from gateway.queue_manager.embedded import EmbeddedQueueManager

WARN_BEFORE_SECONDS = 14 * 86_400
"""How long before a certificate expires it is reported; the same as in the alert about certificates."""
MOST_NAMED = 10
"""How many things of the same kind have a sentence each."""


class Trouble(NamedTuple):
    """A sentence, and the section of the page where it can be looked into (empty: none)."""

    text: str
    section: str = ""


def troubles_of(parts: Parts) -> list[Trouble]:
    """Returns all problems, beginning with those that keep devices from connecting."""
    return list(_troubles(parts))


def _troubles(parts: Parts) -> Iterator[Trouble]:
    for text in _problems(parts):
        yield Trouble(text)
    set_aside = parts.set_aside()
    if set_aside:
        yield Trouble(f"set aside: {set_aside}", "dead-letters?aside=1")
    yield from _refused(parts)
    held = {parked.address.queue for parked in parts.engine.parking.waiting.values()}
    for text in unknown_queues(parts, but=held):  # those have just been named
        yield Trouble(text, "queues")
    for text in _certificates(parts):
        yield Trouble(text, "settings?search=tls")


def _problems(parts: Parts) -> Iterator[str]:
    now, engine = parts.snapshot(), parts.engine
    for check in (*health.readyz(now).checks, *health.livez(now).checks):
        if not check.ok:
            yield f"{check.name}: {check.why}"
    noted = (health.queue_manager(now), *health.targets(now))
    yield from (f"{check.name}: {check.note}" for check in noted if check.note and check.ok)
    yield from _silence(parts)
    yield from _noted(parts)
    yield from parts.providers.problems()
    if parts.buffer is not None:
        for queue, text in parts.buffer.problems.items():
            yield f"buffer, {queue or 'all queues'}: {text}"
    if engine.context.held_since:
        seconds = time.time() - engine.context.held_since
        yield f"nothing could be committed for {seconds:.0f} s: {engine.failures.last_text}"
    yield from parts.incomplete.problems()


def _certificates(parts: Parts) -> Iterator[str]:
    for name, end in certificate_ends(parts.settings):
        left = end - time.time()
        if left < WARN_BEFORE_SECONDS:
            when = f"expires in {counted(round(left / 86_400), 'day')}" if left > 0 else "has expired"
            yield f"{_place(name)}: its certificate {when}; replace the files and reload"
    for name, end in revocation_ends(parts.settings):
        if end < time.time():
            yield f"{_place(name)}: its revocation list is out of date, so no certificate counts; renew it and reload"


def unknown_queues(parts: Parts, but: Collection[str] = ()) -> Iterator[str]:
    """Yields queues of the embedded queue manager that rules name and that do not exist, and what helps: the first of
    them, then how many more. Queues of IBM MQ are reported when a message has met them."""
    manager = parts.queue_manager
    if not isinstance(manager, EmbeddedQueueManager):
        return
    unknown, more = manager.unknown(parts.table.own_queues.difference(but), MOST_NAMED)
    for name, why in unknown.items():
        yield f"queue {name} of a rule: {why}"
    if more:
        yield f"{more} more queues of rules do not exist"


def _place(name: str) -> str:
    return "admin port" if name == ADMIN else f"listener {name}"


def _noted(parts: Parts) -> Iterator[str]:
    """Yields what parts of the broker have noted."""
    for what, text in parts.engine.context.problems.items():
        yield f"{what}: {text}"


def _silence(parts: Parts) -> Iterator[str]:
    silent = parts.inquiries.silent() if parts.inquiries is not None else 0.0
    if silent >= parts.settings.admin.answer_timeout:
        yield f"IBM MQ has not answered a question about its queues for {silent:.0f} s"


def _refused(parts: Parts) -> Iterator[Trouble]:
    """Yields queues that refuse messages, each once, and what an operator can do about it."""
    held: dict[str, int] = {}
    for parked in parts.engine.parking.waiting.values():
        held[parked.address.queue] = held.get(parked.address.queue, 0) + parked.count
    for queue, count in held.items():
        many = counted(count, "message is", "messages are")
        text = f"queue {queue}: {why_refused(parts, queue)}; {many} held, and not acknowledged to the devices"
        yield Trouble(text, f"queues/{quote(queue, safe='')}")


def why_refused(parts: Parts, queue: str) -> str:
    """Returns why a queue refuses messages, as far as its attributes tell."""
    try:
        row = parts.queue_status.row(queue)
    except MQError:
        return "it does not exist"
    if row is not None:
        if row.attributes.get("PUT") == "DISABLED":
            return "put is inhibited (`ALTER QLOCAL(...) PUT(ENABLED)`)"
        if row.depth is not None and row.max_depth is not None and row.depth >= row.max_depth:
            return f"it is full ({counted(row.depth, 'message')}): its consumer is behind"
    said = [one.why for address, one in parts.engine.parking.waiting.items() if address.queue == queue and one.why]
    return f"it refuses: {said[0] if said else parts.engine.failures.last_text}"

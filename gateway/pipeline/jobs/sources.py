"""Where a job's messages come from: one source, or several queues and gateways that land in the same tables. Pure.

Each source has its own numbers, offsets and consumer group. In the manifest its ranges stand under the name of its
stream, so that each source is landed exactly once whatever the others do.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import combinations
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, Field

from gateway.config.findings import Part, contradictions
from gateway.config.units import Duration, Size, Wrong
from gateway.pipeline.errors import WrongOption
from gateway.pipeline.source.places import plain_folder

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_URL = re.compile(r"https?://[^\s/]+(/.*)?", re.IGNORECASE)
_QUEUES = re.compile(r"[A-Za-z0-9._/%*?\[\]!-]+")


def _table_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a table or column name: use lower-case letters, digits and _, a letter first"
        )
    return name


def _queues(given: str) -> str:
    for name in [name for part in given.split(",") if (name := part.strip())] or [""]:
        if not _QUEUES.fullmatch(name):
            fix = "write 1 to 48 of A-Z a-z 0-9 . _ / %, a pattern such as TELEMETRY.*, or several with commas"
            raise Wrong(f"{name!r} is neither the name of a queue nor a pattern", fix)
    return given


def _address(given: str) -> str:
    if given and not _URL.fullmatch(given):
        raise Wrong(f"{given!r} is no address of a gateway", "write http://host:port or https://host:port")
    return given


Name = Annotated[str, AfterValidator(_table_name)]
Folder = Annotated[str, AfterValidator(plain_folder)]


class Source(Part):
    """Where the messages come from: the data source `mqqueue`."""

    queue: Annotated[str, AfterValidator(_queues)] = Field(
        description="a queue, a comma-separated list, or a pattern with * at the end"
    )
    path: Folder = Field(default="", description="data folder of an embedded queue manager on this machine")
    url: Annotated[str, AfterValidator(_address)] = Field(
        default="", description="admin address of a running gateway; needs token_file"
    )
    token_file: str = Field(default="", description="file with the admin token for url")
    ca_file: str = Field(default="", description="certificates that url's certificate must be signed by")
    group: Name = Field("spark", description="consumer group: has its own cursor on each queue")
    consume: bool = Field(
        default=True, description="remove messages once landed and the purge delay is over; false moves the cursor only"
    )
    max_messages: int = Field(default=50_000, ge=1, description="messages in one batch at most")
    max_bytes: Size = Field(default=256 * 1024 * 1024, description="message bytes in one batch at most")
    partitions: int = Field(default=2, ge=1, description="tasks that read one batch at most: give it as many as cores")
    purge_delay: Duration = Field(
        default=600.0, ge=0, description="landed messages stay on the queue this long: covers a power loss"
    )
    fail_on_data_loss: bool = Field(default=True, description="stop when messages of a planned range are gone")

    @property
    def address(self) -> str:
        """The queue manager, as far as the way to reach it tells."""
        return self.url.rstrip("/") or self.path

    @property
    def queues(self) -> list[str]:
        """The names and patterns of the queues."""
        return [part.strip() for part in self.queue.split(",") if part.strip()]

    @contradictions
    def _unfit(self) -> Iterator[Wrong]:
        if not self.path and not self.url:
            yield Wrong("`source` has no address", "add path (a data folder) or url (a running gateway)")


class NamedSource(Source):
    """One of several sources. The manifest knows it by its name: another name is another source."""

    name: Name = Field(description="what the source is called: in the column `source`, in status and in metrics")
    group: Name = Field("", description="consumer group; `<job>_<name>` when left out")


class Input(NamedTuple):
    """A source as a job reads it."""

    name: str
    """Its name; empty if the job has one source."""
    stream: str
    """The name of its ranges in the manifest."""
    group: str
    source: Source


def inputs_of(job: str, source: Source | None, sources: Sequence[NamedSource]) -> tuple[Input, ...]:
    """The inputs of a job. Raises Wrong if two would read the same messages."""
    if source is not None:
        return (Input("", f"{job}:{source.queue}", source.group, source),)
    listed = sorted(sources, key=lambda each: each.name)
    found = tuple(Input(one.name, f"{job}:{one.name}", one.group or f"{job}_{one.name}", one) for one in listed)
    for one, other in combinations(found, 2):
        if one.name == other.name:
            raise Wrong(f"`sources` has {one.name!r} twice", "give each source a name of its own", ("sources",))
        if one.source.address == other.source.address:
            _check_apart(one, other)
    return found


def check_apart(inputs: Sequence[Input], journals: Mapping[str, str | None]) -> None:
    """Raise WrongOption if two sources read the same messages of one journal, which they may reach in different
    ways."""
    for one, other in combinations(inputs, 2):
        if (journal := journals.get(one.stream)) and journal == journals.get(other.stream):
            try:
                _check_apart(one, other)
            except Wrong as wrong:
                raise WrongOption(f"{one.source.address} is {other.source.address}: {wrong}") from None


def _check_apart(one: Input, other: Input) -> None:
    if one.group == other.group:
        raise Wrong(
            f"sources {one.name!r} and {other.name!r} have the same consumer group {one.group!r} on one queue manager",
            "leave `group` out: each has its own then",
            ("sources",),
        )
    for queue in one.source.queues:
        for also in other.source.queues:
            if fnmatchcase(queue, also) or fnmatchcase(also, queue):
                both = queue if queue == also else f"{queue} ({also})"
                raise Wrong(
                    f"sources {one.name!r} and {other.name!r} both read {both} of one queue manager, and each of its "
                    "messages would be landed twice",
                    "name each queue in one source",
                    ("sources",),
                )


def digest_of(inputs: Sequence[Input]) -> str:
    """Eight hexadecimal digits made from the names of the inputs."""
    return hashlib.blake2b("\n".join(each.stream for each in inputs).encode(), digest_size=4).hexdigest()


def chosen(inputs: Sequence[Input], name: str) -> Input:
    """The input with this name; if no name is given, the only one. Raises WrongOption if there is no such input."""
    if not name and len(inputs) == 1:
        return inputs[0]
    for each in inputs:
        if name and each.name == name:
            return each
    known = ", ".join(each.name for each in inputs if each.name) or "one, without a name"
    raise WrongOption(f"say which source with --source (this job has {known})")

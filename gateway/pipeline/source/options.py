"""The options of the data source `mqqueue`, with errors that name the option. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from gateway.config.units import Wrong, parse_duration, parse_size
from gateway.pipeline.errors import WrongOption
from gateway.pipeline.source.places import plain_folder, staging_place

NAMES = (
    "path", "url", "token", "tokenFile", "caFile", "queueManager", "queue", "consumerGroup", "consume", "startingSeq",
    "endingSeq", "startingTimestamp", "endingTimestamp", "partitions", "maxMessagesPerTrigger", "maxBytesPerTrigger",
    "arrowBatchSize", "transfer", "columns", "includeRaw", "notNull", "pushdown", "failOnDataLoss", "purgeDelay",
    "leaseTtl", "idleWait", "txn", "persistence", "priority", "expiry", "format", "staging", "connection", "channel",
    "ccdt", "user", "passwordFile", "cipher", "keyRepository", "driver", "storage", "sourceName",
)  # fmt: skip

SPARKS_OWN = ("checkpointlocation", "mode")

FORMAT = re.compile(r"[A-Za-z0-9._ ]{0,8}")
QUEUE_NAME = re.compile(r"[A-Za-z0-9._/%]{1,48}")


@dataclass(frozen=True, slots=True)
class Options:
    """All options; readers and writers use those they need."""

    path: str = ""
    url: str = ""
    token: str = ""
    token_file: str = ""
    ca_file: str = ""
    queue_manager: str = "MQGATE"
    queue: str = ""
    consumer_group: str = ""
    consume: bool = True
    starting_seq: int | None = None
    ending_seq: int | None = None
    starting_micros: int | None = None
    ending_micros: int | None = None
    partitions: int = 2
    max_messages: int = 50_000
    max_bytes: int = 256 * 1024 * 1024
    arrow_batch_size: int = 20_000
    transfer: str = "arrow"
    columns: str = ""
    include_raw: bool = False
    not_null: bool = False
    pushdown: bool = False
    fail_on_data_loss: bool = True
    purge_delay: float = 600.0
    lease_ttl: float = 60.0
    idle_wait: float = 0.0
    txn: str = ""
    persistence: int = 1
    priority: int = 0
    expiry: float = -1.0
    format: str = "MQSTR"
    staging: str = ""
    storage: str = ""
    source_name: str = ""
    connection: str = ""
    channel: str = ""
    ccdt: str = ""
    user: str = ""
    password_file: str = ""
    cipher: str = ""
    key_repository: str = ""
    driver: str = "auto"

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Options:
        """The options from Spark's, whose names ignore case. Unknown names are refused, so that no typing error goes
        unnoticed."""
        known = {name.lower(): name for name in NAMES}
        text = {known[name.lower()]: value for name, value in given.items() if name.lower() in known}
        unknown = [name for name in given if name.lower() not in known and name.lower() not in SPARKS_OWN]
        if unknown:
            raise WrongOption(f"the data source mqqueue has no option {unknown[0]!r}; it has {', '.join(NAMES)}")
        for one in ("connection", "ccdt"):
            for other in ("path", "url"):
                if text.get(one) and text.get(other):
                    raise WrongOption(f"options {one!r} and {other!r} name two places: leave one of them out")
        if "sourceName" in text and "staging" not in text:
            raise WrongOption("option 'sourceName' goes with 'staging': in a query of yours add a column to the rows")
        return cls(
            path=_folder(text, "path"),
            url=text.get("url", "").rstrip("/"),
            token=text.get("token", ""),
            token_file=text.get("tokenFile", ""),
            ca_file=text.get("caFile", ""),
            queue_manager=text.get("queueManager", "MQGATE"),
            queue=_required(text, "queue"),
            consumer_group=text.get("consumerGroup", ""),
            consume=_boolean(text, "consume", otherwise=True),
            starting_seq=_number(text, "startingSeq"),
            ending_seq=_number(text, "endingSeq"),
            starting_micros=_moment(text, "startingTimestamp"),
            ending_micros=_moment(text, "endingTimestamp"),
            partitions=_number(text, "partitions", 2, least=1) or 2,
            max_messages=_number(text, "maxMessagesPerTrigger", 50_000, least=1) or 50_000,
            max_bytes=_size(text, "maxBytesPerTrigger", 256 * 1024 * 1024),
            arrow_batch_size=_number(text, "arrowBatchSize", 20_000, least=1) or 20_000,
            transfer=_choice(text, "transfer", ("auto", "arrow", "rows")),
            columns=text.get("columns", ""),
            include_raw=_boolean(text, "includeRaw", otherwise=False),
            not_null=_boolean(text, "notNull", otherwise=False),
            pushdown=_boolean(text, "pushdown", otherwise=False),
            fail_on_data_loss=_boolean(text, "failOnDataLoss", otherwise=True),
            purge_delay=_duration(text, "purgeDelay", 600.0),
            lease_ttl=_duration(text, "leaseTtl", 60.0),
            idle_wait=_duration(text, "idleWait", 0.0),
            txn=text.get("txn", ""),
            persistence=_number(text, "persistence", 1, most=1) or 0,
            priority=_number(text, "priority", 0, most=9) or 0,
            expiry=_duration(text, "expiry", -1.0),
            format=_format(text),
            staging=_folder(text, "staging", staging_place),
            storage=text.get("storage", ""),
            source_name=text.get("sourceName", ""),
            connection=text.get("connection", ""),
            channel=text.get("channel", ""),
            ccdt=text.get("ccdt", ""),
            user=text.get("user", ""),
            password_file=text.get("passwordFile", ""),
            cipher=text.get("cipher", ""),
            key_repository=text.get("keyRepository", ""),
            driver=_choice(text, "driver", ("auto", "ibmmq", "pymqi")),
        )


def put_queue(name: str) -> str:
    """The name of the queue to which rows are written. Raises WrongOption if it is not a valid name."""
    if not QUEUE_NAME.fullmatch(name):
        raise WrongOption(
            f"option 'queue' is {name!r}: rows are written to one queue, whose name is 1 to 48 of A-Z a-z 0-9 . _ / %"
        )
    return name


def _folder(text: Mapping[str, str], name: str, allowed: Callable[[str], str] = plain_folder) -> str:
    try:
        return allowed(text.get(name, ""))
    except Wrong as wrong:
        raise WrongOption(f"option {name!r}: {wrong}") from None


def _required(text: Mapping[str, str], name: str) -> str:
    value = text.get(name, "").strip()
    if not value:
        raise WrongOption(
            f"option {name!r} is missing: a queue, a comma-separated list, or a pattern such as TELEMETRY.*"
        )
    return value


def _boolean(text: Mapping[str, str], name: str, *, otherwise: bool) -> bool:
    value = text.get(name, "").strip().lower()
    if value in ("true", "false"):
        return value == "true"
    if value:
        raise WrongOption(f"option {name!r} is {value!r}: write true or false")
    return otherwise


def _number(
    text: Mapping[str, str], name: str, otherwise: int | None = None, least: int = 0, most: int | None = None
) -> int | None:
    value = text.get(name, "").strip()
    if not value:
        return otherwise
    if not value.isdecimal() or int(value) < least or (most is not None and int(value) > most):
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise WrongOption(f"option {name!r} is {value!r}: write a whole number {bounds}")
    return int(value)


def _format(text: Mapping[str, str]) -> str:
    value = text.get("format", "MQSTR")
    if not FORMAT.fullmatch(value):
        raise WrongOption(
            f"option 'format' is {value!r}: write the name of an MQ format, up to 8 letters such as MQSTR"
        )
    return value


def _duration(text: Mapping[str, str], name: str, otherwise: float) -> float:
    try:
        value = text.get(name, "").strip()
        return parse_duration(float(value) if value.replace(".", "", 1).isdigit() else value) if value else otherwise
    except Wrong as error:
        raise WrongOption(f"option {name!r}: {error}") from error


def _size(text: Mapping[str, str], name: str, otherwise: int) -> int:
    try:
        value = text.get(name, "").strip()
        return parse_size(int(value) if value.isdigit() else value) if value else otherwise
    except Wrong as error:
        raise WrongOption(f"option {name!r}: {error}") from error


def _choice(text: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    value = text.get(name, allowed[0])
    if value not in allowed:
        raise WrongOption(f"option {name!r} is {value!r}: write {' or '.join(allowed)}")
    return value


def _moment(text: Mapping[str, str], name: str) -> int | None:
    """A time in ISO 8601 (UTC unless it says otherwise) or in seconds since the epoch, as microseconds."""
    value = text.get(name, "").strip()
    if not value:
        return None
    try:
        if value.replace(".", "", 1).isdigit():
            return int(float(value) * 1_000_000)
        when = datetime.fromisoformat(value)
    except ValueError as error:
        raise WrongOption(f"option {name!r} is {value!r}: write ISO 8601, such as 2026-11-21T12:00:00Z") from error
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1_000_000)

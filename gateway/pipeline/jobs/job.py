"""What a pipeline job is: the model of its YAML file, which is the one list of fields for checks, JSON Schema and
reference.

`read_job` is the only function that opens a job file. Every error has its file, line and column.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field

from gateway.config.examine import examine
from gateway.config.findings import Part, contradictions, wrong_of
from gateway.config.source import read_yaml, unread
from gateway.config.units import Duration, Size, Wrong
from gateway.errors import ConfigurationError, Finding
from gateway.mq.character_sets.ccsid import codec_of
from gateway.pipeline.decode.columns import BY_NAME, SOURCE
from gateway.pipeline.decode.payloads import BUILT_IN, OF_TEXT
from gateway.pipeline.jobs.gold import own_columns
from gateway.pipeline.jobs.sources import Folder, Input, Name, NamedSource, Source, digest_of, inputs_of
from gateway.pipeline.land.iceberg_catalog import CatalogSettings, beside, has_password
from gateway.pipeline.land.objects import StoreSettings
from gateway.pipeline.source.places import FOLDER, is_object_place, warehouse_place

AnySource = TypeVar("AnySource", bound=Source)
Place = Annotated[str, AfterValidator(warehouse_place)]


NUMBERS = ("int", "bigint", "float", "double")
OWN = ("error", "status", "payload")
"""Columns that every silver table has for itself."""
CARRIED = ("queue", "priority", "seq", "msg_id", "put_ts", "topic", "client_id", "recv_ts")
"""Message columns every silver table has, so that a row can be traced back to its message."""


TEXTS = ("string", "binary")
MADE_OF: dict[str, tuple[str, ...]] = {
    "string": (*TEXTS, "boolean", *NUMBERS, "timestamp", "date"),
    "binary": TEXTS,
    "boolean": ("string", "boolean", *NUMBERS),
    "timestamp": ("string", "timestamp", "date", "bigint", "double"),
    "map": ("string",),
} | dict.fromkeys(("tinyint", "int", "bigint"), ("string", "boolean", *NUMBERS, "timestamp"))
"""The types that a column may have, by the kind of the message column from which it is read."""
PYTHONS_OWN = {
    "(?P<": "write `(?<name>...)`",
    "(?P=": "write `\\k<name>`",
    "(?(": "write both ways with `|`",
    "(?#": "leave the comment out",
}
"""What Python accepts in a pattern, and Java does not."""
JAVAS_OWN = re.compile(r"\\[pPhHRXQGzeckNV]|\(\?<[A-Za-z]|&&|\(\?[a-zA-Z]*[dU]")
"""What Java accepts in a pattern, and Python does not."""


class Bronze(Part):
    """Every message, all columns, appended."""

    table: Name = "bronze"
    include_raw: bool = Field(default=False, description="keep the MQMD and the headers as bytes too")


class Column(Part):
    """One typed, checked column of a silver table."""

    name: Name
    type: Literal["string", "boolean", "int", "bigint", "float", "double", "timestamp", "date", "binary"] = "string"
    source: str = Field(
        default="", alias="from", description="payload.a.b, or a message column such as client_id or properties.site"
    )
    unit: Literal["s", "ms", "us", "iso"] = Field(default="iso", description="of a timestamp in the payload")
    required: bool = False
    min: float | None = None
    max: float | None = None
    pattern: str | None = Field(
        default=None, description="a regular expression of Java that is found somewhere in the value"
    )
    values: tuple[str, ...] | None = Field(default=None, description="the only values allowed")
    on_failure: Literal["quarantine", "count"] = Field(
        default="quarantine", description="what a failed check does: the row goes to quarantine, or stays, is counted, "
        "and names the check in its column `warnings`",
    )  # fmt: skip

    @property
    def path(self) -> str:
        """Where the value comes from; the payload's field of the same name unless said otherwise."""
        return self.source or f"payload.{self.name}"

    @property
    def wire_type(self) -> str:
        """The type of a value in JSON, before it becomes the column's."""
        if self.type == "timestamp":
            return "string" if self.unit == "iso" else "double"
        return "string" if self.type in ("date", "binary") else self.type

    @contradictions
    def _unfit(self) -> Iterator[Wrong]:
        yield from wrong_of(self._check_source)
        if "unit" in self.model_fields_set and self.type != "timestamp":
            yield Wrong(
                f"`unit` has no meaning for a {self.type}", "give the column `type: timestamp`, or leave it out"
            )
        if (self.min is not None or self.max is not None) and self.type not in NUMBERS:
            yield Wrong(f"min and max do not fit type {self.type}", "use a number type, or pattern for text")
        if self.min is not None and self.max is not None and self.min > self.max:
            yield Wrong(f"min {self.min:g} is more than max {self.max:g}: no value passes")
        if self.values is not None and not self.values:
            yield Wrong("values is an empty list, so no value passes", "name some, or leave it out")
        if self.pattern is not None:
            yield from wrong_of(self._check_pattern, self.pattern)

    def _check_source(self) -> None:
        head, _, rest = self.path.partition(".")
        if head not in (*BY_NAME, SOURCE):
            known = ", ".join((*CARRIED, "properties.NAME"))
            fix = f"write payload.{self.path} for a field of the payload, or one of {known}"
            raise Wrong(f"messages have no column {head!r}", fix)
        if rest and head not in ("payload", "properties"):
            raise Wrong(f"{head!r} holds no fields", f"write `from: {head}`, or properties.{rest}")
        if not rest:
            self._check_kind(head, "string" if head == SOURCE else BY_NAME[head].kind)

    def _check_kind(self, head: str, kind: str) -> None:
        """Check whether a whole message column can become this column: Spark would tell only when it has started."""
        if self.type not in MADE_OF[kind]:
            fields = kind == "map" or head == "payload"
            fix = f"write `from: {head}.NAME`, or" if fields else "write"
            raise Wrong(
                f"{head!r} is a {kind}, of which no {self.type} is made", f"{fix} type {_listed(MADE_OF[kind])}"
            )
        if self.type == "timestamp" and (kind == "timestamp") != (self.unit == "iso") and kind != "string":
            if kind == "timestamp":
                raise Wrong(f"{head!r} is a timestamp already", "leave `unit` out")
            raise Wrong(f"{head!r} is a number", "say with `unit` what it counts: s, ms or us")

    def _check_pattern(self, pattern: str) -> None:
        """Check what can be known without Java, whose patterns Spark uses; `check` asks Java where there is one."""
        bare = re.sub(r"\\.", "", pattern, flags=re.DOTALL)
        for text, fix in PYTHONS_OWN.items():
            if text in bare:
                raise Wrong(f"pattern: Spark's regular expressions are Java's, which have no `{text}`", fix)
        try:
            with warnings.catch_warnings(action="ignore"):  # about what may mean something else one day
                re.compile(pattern)
        except re.error as error:
            if not JAVAS_OWN.search(pattern):
                raise ValueError(f"pattern is not a regular expression: {error}") from error


def _listed(words: tuple[str, ...]) -> str:
    return " or ".join(words)


def _no_value_is_a_folder(columns: tuple[Column, ...]) -> None:
    paths = {column.path for column in columns}
    for path in paths:
        if any(other.startswith(path + ".") for other in paths) and path.startswith("payload."):
            raise ValueError(f"{path} is a value in one column and holds others in another: read one of the two")
        kinds = sorted({column.wire_type for column in columns if column.path == path})
        if len(kinds) > 1 and path.startswith("payload."):
            raise Wrong(f"{path} is read as {' and as '.join(kinds)}", "give the columns that read it the same type")


def _no_paths_alike(columns: tuple[Column, ...]) -> None:
    """Refuse fields whose names differ only in case: Spark takes them for one field that is there twice, which ends the
    run."""
    known: dict[str, str] = {}
    for column in columns:
        steps = column.path.split(".") if column.path.startswith("payload.") else []
        for path in (".".join(steps[:count]) for count in range(2, len(steps) + 1)):
            other = known.setdefault(path.lower(), path)
            if other != path:
                raise Wrong(
                    f"{other} and {path} differ only in case, which Spark does not tell apart",
                    "read one of the two here, and the other in another silver table",
                )


def _known_decoder(name: str) -> str:
    if name in BUILT_IN or re.fullmatch(r"python:[\w.]+:\w+", name):
        return name
    raise ValueError(f"no decoder {name!r}: use one of {', '.join(BUILT_IN)} or python:module:function")


def _known_character_set(ccsid: int) -> int:
    if ccsid and codec_of(ccsid) is None:
        raise Wrong(f"CCSID {ccsid} is not known here", "write one that the reference of data conversion names")
    return ccsid


class Silver(Part):
    """Decoded, typed, checked rows; what fails goes to quarantine with its error and raw payload in the same write."""

    table: Name
    when: str = Field(
        default="", description="SQL condition on message columns; other messages are left to other tables"
    )
    decode: Annotated[str, AfterValidator(_known_decoder)] = "json"
    ccsid: Annotated[int, AfterValidator(_known_character_set)] = Field(
        default=0, description="json, text: the character set of payloads whose Format is not MQSTR, UTF-8 when left "
        "out. Of those it is what CodedCharSetId says",
    )  # fmt: skip
    columns: tuple[Column, ...]
    event_time: str = Field(default="put_ts", description="column that says when it happened")
    key: tuple[str, ...] = Field(default=(), description="columns that name the device; the default of gold's `by`")

    @property
    def counts(self) -> bool:
        """Whether the checks of any column only count."""
        return any(column.on_failure == "count" for column in self.columns)

    def type_of(self, name: str) -> str:
        """The type of a column of the table."""
        own = {column.name: str(column.type) for column in self.columns}
        return own.get(name) or ("string" if name == SOURCE else BY_NAME[name].kind)

    @contradictions
    def _unfit(self) -> Iterator[Wrong]:
        names = [column.name for column in self.columns]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield Wrong(f"column {name!r} is there twice")
        for name in names:
            if name in (*OWN, *(["warnings"] if self.counts else [])):
                yield Wrong(f"the table has a column {name!r} of its own",
                            f"give yours another name and write `from: payload.{name}`")  # fmt: skip
        if self.ccsid and self.decode not in OF_TEXT:
            yield Wrong(f"`ccsid` has no meaning for `decode: {self.decode}`", "leave it out", ("ccsid",))
        yield from wrong_of(_no_value_is_a_folder, self.columns)
        yield from wrong_of(_no_paths_alike, self.columns)
        missing = [one for one in (self.event_time, *self.key) if one not in (*names, *CARRIED, SOURCE)]
        for name in missing:
            yield Wrong(f"there is no column {name!r}", f"add it to columns, or use one of {', '.join(CARRIED)}")
        if self.event_time not in missing and self.type_of(self.event_time) != "timestamp":
            yield Wrong(f"the event time {self.event_time!r} is a {self.type_of(self.event_time)}",
                        "give it `type: timestamp`, with `unit` where it is a number")  # fmt: skip


class Gold(Part):
    """A table computed from a silver table (dead_letters: from bronze)."""

    table: Name
    kind: Literal["window", "last", "gaps", "silence", "dead_letters", "latency"]
    source: str = Field(default="", alias="from", description="the silver table; the first one when left out")
    by: tuple[str, ...] = Field(
        default=(), description="one result per value of these; the silver table's key when left out"
    )
    values: tuple[str, ...] = Field(default=(), description="window, last: the number columns")
    every: Duration = Field(default=60.0, gt=0, description="window, latency: width")
    watermark: Duration = Field(
        default=60.0, ge=0, description="a window is final when rows this much later than its end were seen"
    )
    sequence: str = Field(default="", description="gaps: the device's counter")
    wraps_at: int = Field(
        default=0, ge=0, description="gaps: the counter starts again at 0 after this many (65536 for 16 bits)"
    )
    after: Duration = Field(
        default=300.0, gt=0, description="silence: a device is silent when nothing came for this long"
    )
    start: str = Field(default="", description="latency: column with the time of sending; the event time when left out")

    @property
    def replaced(self) -> bool:
        """Whether each batch replaces the table, whose rows are the whole state, instead of adding to it."""
        return self.kind in ("last", "dead_letters")

    def kinds_wanted(self) -> list[tuple[str, tuple[str, ...]]]:
        """Columns of the silver table, each with the types it may have."""
        numbers = (*NUMBERS, "boolean", "tinyint", "timestamp")
        found: list[tuple[str, tuple[str, ...]]] = []
        found += [(name, numbers) for name in self.values if self.kind == "window"]
        found += [(self.sequence, ("int", "bigint"))] if self.kind == "gaps" else []
        return found + ([(self.start, ("timestamp",))] if self.kind == "latency" and self.start else [])

    @contradictions
    def _unfit(self) -> Iterator[Wrong]:
        if self.kind == "window" and not self.values:
            yield Wrong("a window needs values", "name the number columns to aggregate")
        if self.kind == "gaps" and not self.sequence:
            yield Wrong("gaps needs sequence", "name the column with the device's counter")


class Retention(Part):
    """How long landed rows are kept, and how many batches are merged into one file."""

    keep: dict[str, Duration] = Field(
        default_factory=dict, description="table: age after which its batches are deleted (not of Delta tables on "
        "object storage: delete their rows by Delta's own `delete`)",
    )  # fmt: skip
    compact_files: int = Field(
        default=32,
        ge=2,
        description="merge when a table has this many small batches, or enough for one file of the target size",
    )
    compact_bytes: Size = Field(default=128 * 1024 * 1024, description="target size of a merged file")
    leftovers: Duration = Field(
        default=86_400.0, ge=0,
        description="files that no batch names, and on object storage files that a merge has replaced, stay this long: "
        "longer than a batch or a reader takes (in a folder an hour at least, of Delta tables a week)",
    )  # fmt: skip


class Storage(Part):
    """How object storage is reached. Credentials are no part of a job: they come from the environment."""

    endpoint: str = Field(default="", description="address of an S3 server; AWS_ENDPOINT_URL when left out")
    region: str = Field(default="", description="region of the bucket; AWS_REGION when left out")
    timeout: Duration = Field(default=30.0, gt=0, description="time for one request")
    patience: Duration = Field(
        default=120.0,
        gt=0,
        description="the longest time for a request with all its repetitions, also those to a busy store (503, 429)",
    )

    @property
    def settings(self) -> StoreSettings:
        """For the store."""
        return StoreSettings(self.endpoint, self.region, self.timeout, self.patience)


class Catalog(Part):
    """The catalog of Iceberg tables. Its secrets come from the environment, as pyiceberg reads them:
    PYICEBERG_CATALOG__<NAME>__URI, __CREDENTIAL, __TOKEN."""

    type: Literal["sql", "rest"] = "sql"
    name: Name = Field("mqgate", description="name of the catalog, also in the names of the variables")
    uri: str = Field(
        default="", description="sqlite:///catalog.db, postgresql+psycopg2://host/database, or the address of a REST "
        "catalog; from the environment when left out",
    )  # fmt: skip
    namespace: Name = Field("lake", description="the namespace of the tables; made if it is not there")
    warehouse: str = Field(
        default="", description="REST: the name of the warehouse in the catalog, where it has several"
    )

    @contradictions
    def _unfit(self) -> Iterator[Wrong]:
        if has_password(self.uri):
            yield Wrong(
                "`catalog.uri` has a password in it",
                f"leave `uri` out and set PYICEBERG_CATALOG__{self.name.upper()}__URI in the environment",
            )

    @property
    def settings(self) -> CatalogSettings:
        """For the tables."""
        return CatalogSettings(self.type, self.name, self.uri, self.namespace, self.warehouse)


class Restart(Part):
    """The back-off after a failed query. A query that made progress for a minute starts from the beginning of it."""

    first: Duration = Field(default=1.0, alias="from")
    longest: Duration = Field(default=60.0, alias="to")
    times: int = Field(
        default=0, ge=0,
        description="give up after this many failures in a row; 0: never. Waiting for another driver's lease is none, "
        "and a machine that is too busy to start Spark's processes is waited for, three minutes at most",
    )  # fmt: skip


_OF_SILVER = ("silver", "sources")
"""The parts of a job from which the columns of gold tables come."""


class Job(Part):
    """One pipeline job: one streaming query, its tables and their upkeep."""

    version: Literal[1] = 1
    name: Name
    source: Source | None = None
    sources: tuple[NamedSource, ...] = Field(
        default=(), description="instead of `source`: several queues or gateways that land in the same tables"
    )
    warehouse: Place = Field(
        description="folder of the tables, on a file system that all processes share; or object storage: "
        "s3://bucket/prefix, gs://bucket/prefix, abfss://container@account.dfs.core.windows.net/prefix"
    )
    storage: Storage = Storage()
    format: Literal["parquet", "delta", "iceberg"] = "parquet"
    catalog: Catalog | None = Field(default=None, description="of Iceberg tables")
    checkpoint: Folder = Field(
        default="",
        description="folder of Spark's checkpoint; `<warehouse>/_checkpoint/<name>` when left out. Not with object "
        "storage, where the manifest says where to go on",
    )
    trigger: Duration = Field(
        default=30.0, ge=0, description="a batch at most this often; short triggers make many small files"
    )
    bronze: Bronze | None = Bronze()
    silver: tuple[Silver, ...] = ()
    gold: tuple[Gold, ...] = ()
    retention: Retention = Retention()
    restart: Restart = Restart()
    nice: int = Field(
        default=10, ge=0, le=19, description="how far the job steps back behind other processes of this machine, such "
        "as the gateway, when all want the processor (0: not at all). Where Spark runs elsewhere it has no meaning",
    )  # fmt: skip
    spark: dict[str, str] = Field(default_factory=dict, description="Spark settings, as spark-submit --conf")

    @contradictions
    def _unfit(self) -> Iterator[Wrong]:
        yield from self._unfit_inputs()
        places: dict[str, tuple[str | int, ...]] = {self.bronze.table: ("bronze", "table")} if self.bronze else {}
        listed: tuple[tuple[str, Sequence[Silver | Gold]], ...] = (("silver", self.silver), ("gold", self.gold))
        for kind, tables in listed:
            for number, one in enumerate(tables):
                at: tuple[str | int, ...] = (kind, number, "table")
                if places.setdefault(one.table, at) != at:
                    yield Wrong(f"table {one.table!r} is there twice", "give each its own name", at, reads=("bronze",))
        for number, silver in enumerate(self.silver):
            yield from wrong_of(self._check_key, silver)
            yield from wrong_of(self._check_folders, silver, ("silver", number))
        for place, gold in enumerate(self.gold):
            yield from wrong_of(self._check_gold, gold, ("gold", place))
        for name in self.retention.keep:
            if name not in places:
                at = ("retention", "keep", name)
                what, fix = f"retention: the job has no table {name!r}", f"name one of {', '.join(places)}"
                yield Wrong(what, fix, at, reads=("bronze", *dict(listed)))
        yield from wrong_of(self._check_catalog)
        if self.checkpoint and is_object_place(self.warehouse):
            yield Wrong(
                "`checkpoint` has no meaning for a warehouse on object storage",
                "leave it out: the manifest says where to go on",
                ("checkpoint",),
            )

    def _unfit_inputs(self) -> Iterator[Wrong]:
        if self.source is None and not self.sources:
            fix = "add `source: {queue: ..., path: ...}`, or `sources` with a list"
            yield Wrong("the job has no `source`", fix, reads=("source", "sources"))
        if self.source is not None and self.sources:
            fix = "give the one in `source` a name and put it on the list"
            yield Wrong("the job has `source` and `sources`", fix, ("source",))
        yield from wrong_of(inputs_of, self.name, None, self.sources)

    def _check_key(self, silver: Silver) -> None:
        own = {column.name for column in silver.columns}
        if SOURCE in silver.key and not self.sources and SOURCE not in own:
            raise Wrong(
                f"silver table {silver.table!r}: a job with one source has no column {SOURCE!r}",
                "leave it out of `key`, or write `sources`",
            )

    def _check_folders(self, silver: Silver, at: tuple[str | int, ...]) -> None:
        """Refuse a column `batch`: readers take the name of a batch's folder for its value, whatever the files
        contain."""
        if not self.on_objects and "batch" in [column.name for column in silver.columns]:
            what = f"silver table {silver.table!r}: readers take `batch` from the names of the folders"
            raise Wrong(what, "give the column another name and write `from: payload.batch`", at)

    def _check_catalog(self) -> None:
        if self.format == "iceberg" and self.catalog is None:
            fix = "add `catalog: {type: sql, uri: sqlite:///catalog.db}`"
            raise Wrong("`format: iceberg` has no catalog", fix, ("format",), reads=("catalog",))
        if self.format != "iceberg" and self.catalog is not None:
            what, fix = f"`catalog` has no meaning for {self.format}", "write `format: iceberg`, or leave it out"
            raise Wrong(what, fix, ("catalog",), reads=("format",))

    @property
    def on_objects(self) -> bool:
        """Whether tables land by the manifest of objects: on object storage, and those of Iceberg anywhere."""
        return is_object_place(self.warehouse) or self.format == "iceberg"

    @property
    def place(self) -> str:
        """The address of the objects, for tables that land by their manifest."""
        here = is_object_place(self.warehouse) or not self.on_objects
        return self.warehouse if here else f"{FOLDER}{os.path.abspath(self.warehouse)}"  # noqa: PTH100 - links stay

    def _check_gold(self, gold: Gold, at: tuple[str | int, ...]) -> None:
        if gold.kind == "dead_letters":
            return
        try:
            silver = self.silver_of(gold)
        except ValueError as error:
            raise Wrong(str(error), at=at, reads=_OF_SILVER) from error
        columns = [column.name for column in silver.columns] + [*CARRIED] + ([SOURCE] if self.sources else [])
        for wanted in (*gold.by, *gold.values, *filter(None, [gold.sequence, gold.start])):
            if wanted not in columns:
                what = f"gold table {gold.table!r}: {silver.table!r} has no column {wanted!r}"
                raise Wrong(what, f"use one of {', '.join(columns)}, or add it there", at, reads=_OF_SILVER)
        if gold.kind in ("gaps", "silence", "last") and not (gold.by or silver.key):
            what = f"gold table {gold.table!r} needs by: the columns that name a device"
            raise Wrong(what, at=at, reads=_OF_SILVER)
        listed = [*(gold.by or silver.key), *own_columns(gold.kind, gold.values, silver.event_time)]
        for name in dict.fromkeys(name for name in listed if listed.count(name) > 1):
            fix = f"give the column of {silver.table!r} another name, or leave it out of `by`"
            raise Wrong(f"gold table {gold.table!r} would have a column {name!r} twice", fix, at, reads=_OF_SILVER)
        if gold.kind == "gaps" and "seq" in [column.name for column in silver.columns]:
            what = (
                f"gold table {gold.table!r} goes by message numbers, and {silver.table!r} has a column 'seq' of its own"
            )
            raise Wrong(
                what, "give that another name, as in `{name: counter, from: payload.seq}`", at, reads=_OF_SILVER
            )
        for wanted, kinds in gold.kinds_wanted():
            if silver.type_of(wanted) not in kinds:
                what = f"gold table {gold.table!r}: {wanted!r} is a {silver.type_of(wanted)}"
                raise Wrong(what, f"use a column whose type is one of {', '.join(kinds)}", at, reads=_OF_SILVER)

    def silver_of(self, gold: Gold) -> Silver:
        """The silver table from which a gold table is computed. Raises ValueError if there is none."""
        for silver in self.silver:
            if gold.source in ("", silver.table):
                return silver
        known = ", ".join(silver.table for silver in self.silver) or "none is declared"
        raise ValueError(f"gold table {gold.table!r}: no silver table {gold.source!r} ({known})")

    @property
    def bronze_table(self) -> str:
        """Where the messages of a batch are, whether they are kept or only there for the stages of the same batch."""
        return self.bronze.table if self.bronze else "_state/_bronze"

    @property
    def replaced_tables(self) -> set[str]:
        """The tables that each batch replaces."""
        return {gold.table for gold in self.gold if gold.replaced}

    @property
    def growing_tables(self) -> list[str]:
        """The tables to which each batch adds."""
        tables = [silver.table for silver in self.silver] + [gold.table for gold in self.gold if not gold.replaced]
        return [*([self.bronze.table] if self.bronze else []), *tables]

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Where messages come from, in the order in which Spark's offsets name them."""
        return inputs_of(self.name, self.source, self.sources)

    @property
    def checkpoint_folder(self) -> str:
        """Where Spark keeps offsets and commits. Its offsets belong to sources by their place in the query, so a list
        with other names has a checkpoint of its own, and the manifest says where each source goes on."""
        folder = self.checkpoint or f"{self.warehouse.rstrip('/')}/_checkpoint/{self.name}"
        return f"{folder}-{digest_of(self.inputs)}" if self.sources else folder


def parse_job(name: str, text: str) -> Job:
    """The job in `text`. Raises ConfigurationError with all findings."""
    document = read_yaml(name, text)
    if document.findings:
        raise ConfigurationError(document.findings)
    if not isinstance(document.value, dict):
        raise ConfigurationError([Finding(name, 1, 1, "this is not a job", "begin with `version: 1` and `name:`")])
    job, findings = examine(document, Job)
    if findings or job is None:
        raise ConfigurationError(findings)
    return job


def read_job(file: Path) -> Job:
    """The job in `file`; relative paths in it are relative to the file. Raises ConfigurationError with all findings."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fix = "give a UTF-8 file" if isinstance(error, UnicodeDecodeError) else "correct the path, or who may read it"
        raise ConfigurationError([unread(str(file), error, fix)]) from error
    return _beside(file.resolve().parent, parse_job(str(file), text))


def _beside(folder: Path, job: Job) -> Job:
    """The job with its relative paths resolved beside the file, so that it runs the same from everywhere."""
    changed: dict[str, Any] = {"warehouse": _resolved(folder, job.warehouse)}
    if job.source is not None:
        changed["source"] = _source_beside(folder, job.source)
    changed["sources"] = tuple(_source_beside(folder, source) for source in job.sources)
    if job.catalog:
        changed["catalog"] = job.catalog.model_copy(update={"uri": beside(folder, job.catalog.uri)})
    if job.checkpoint:
        changed["checkpoint"] = _resolved(folder, job.checkpoint)
    return job.model_copy(update=changed)


def _source_beside(folder: Path, source: AnySource) -> AnySource:
    names = ("path", "token_file", "ca_file")
    return source.model_copy(update={name: _resolved(folder, getattr(source, name)) for name in names})


def _resolved(folder: Path, path: str) -> str:
    if not path or "://" in path:
        return path
    return os.path.normpath(folder / Path(path).expanduser())


def job_schema() -> str:
    """The JSON Schema of a job file, for editors."""
    return json.dumps(Job.model_json_schema(by_alias=True), indent=2)

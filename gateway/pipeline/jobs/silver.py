"""Silver tables: payloads decoded, values typed and checked, as Spark SQL text, then applied to bronze rows.

The checks are text rather than Column objects, so that `mqgate pipeline check --sql` can show them and tests need no
Spark. Good and bad rows are written together and told apart by `status`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.mq.character_sets.ccsid import CCSID_UTF_8
from gateway.pipeline.decode.columns import SOURCE
from gateway.pipeline.decode.payloads import OF_TEXT, STRING, Decoded, decode_texts, decoder
from gateway.pipeline.jobs.job import CARRIED, Column, Silver

DOCUMENT = "_document"
DECODE_ERROR = "_decode_error"
PARSED = "_parsed"
CORRUPT = "_corrupt"
NO_NUMBER = "NaN|INF|Infinity"
DOCUMENTS = f"json_array_length(concat('[', {DOCUMENT}, ']'))"
"""The number of JSON documents that follow one another in a payload; NULL if it is something else."""
PAYLOAD_TEXT = "CAST(if(startswith(payload, X'EFBBBF'), substring(payload, 4), payload) AS string)"
"""A payload of JSON without the byte order mark with which some programs begin (RFC 8259, 8.1: it may be ignored)."""
LONGEST_STRING = 128 << 20
"""More than the longest message. Spark's own limit is lower, and a longer string would not be JSON."""
OK, QUARANTINE, COUNT = "ok", "quarantine", "count"
FIRST_MICROS, LAST_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_000
"""The years 1 to 9999, in microseconds since 1970; a double near the end has steps of 32, so it ends before."""
WARNINGS = "warnings"
"""Column with the checks that a row failed and that only count."""


def quote(name: str) -> str:
    """An identifier quoted for Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A string literal for Spark SQL, with backslashes and quotes escaped."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def payload_fields(silver: Silver) -> list[tuple[tuple[str, ...], Column]]:
    """The payload's fields from which columns are read, as paths."""
    return [
        (tuple(column.path.removeprefix("payload.").split(".")), column)
        for column in silver.columns
        if column.path.startswith("payload.")
    ]


def payload_schema(silver: Silver) -> str:
    """The DDL for `from_json`, with only the fields in use: others cost nothing."""
    tree: dict[str, Any] = {}
    for path, column in payload_fields(silver):
        at = tree
        for step in path[:-1]:
            at = at.setdefault(step, {})
        at[path[-1]] = column.wire_type
    tree[CORRUPT] = "string"
    return ", ".join(f"{quote(name)} {_ddl(kind)}" for name, kind in tree.items())


def _ddl(kind: object) -> str:
    if isinstance(kind, dict):
        return "struct<" + ", ".join(f"{quote(name)}: {_ddl(below)}" for name, below in kind.items()) + ">"
    return str(kind)


def raw_value(column: Column) -> str:
    """The SQL expression of the value before conversion."""
    if column.path.startswith("payload."):
        steps = column.path.removeprefix("payload.").split(".")
        return ".".join([PARSED, *map(quote, steps)])
    head, _, rest = column.path.partition(".")
    return f"{quote(head)}[{literal(rest)}]" if rest else quote(head)


def typed_value(column: Column) -> str:
    """The SQL expression of the value in the column's type; NULL where it cannot be converted."""
    raw = raw_value(column)
    from_payload = column.path.startswith("payload.")
    if column.type == "timestamp":
        return _timestamp(raw, column, from_payload)
    if column.type == "binary":
        return f"try_to_binary({raw}, 'base64')" if from_payload else f"CAST({raw} AS binary)"
    if column.type == "date":
        return _within(f"try_cast({raw} AS date)", "DATE'0001-01-01'", "DATE'9999-12-31'")
    return raw if from_payload else f"try_cast({raw} AS {column.type})"


def _timestamp(raw: str, column: Column, from_payload: bool) -> str:
    if column.unit == "iso":
        first, last = "TIMESTAMP'0001-01-01 00:00:00Z'", "TIMESTAMP'9999-12-31 23:59:59.999999Z'"
        dated = f"CASE WHEN {raw} RLIKE '^ *[0-9]{{4}}' THEN {raw} END"  # Spark gives a time alone the day of its clock
        return _within(f"try_cast({dated} AS timestamp)", first, last)
    number = raw if from_payload else f"try_cast({raw} AS double)"
    factor = {"s": 1_000_000, "ms": 1_000, "us": 1}[column.unit]
    micros = _within(f"round({number} * {factor})", FIRST_MICROS, LAST_MICROS)
    return f"timestamp_micros(CAST({micros} AS bigint))"


def _within(value: str, first: object, last: object) -> str:
    """NULL for what lies outside, so that its row goes to quarantine: a cast that overflows would end the query, again
    at each start, and readers know only the years 1 to 9999. NaN lies outside: Spark takes it for the greatest."""
    return f"CASE WHEN {value} BETWEEN {first} AND {last} THEN {value} END"


def checks(silver: Silver, on_failure: str = QUARANTINE) -> list[tuple[str, str]]:
    """Pairs of an error code and a SQL condition that is true for a bad row, in the order in which they are tried, for
    the columns whose failed checks have this consequence."""
    listed = [("not_json", _not_json(silver))] if on_failure == QUARANTINE else []
    for column in silver.columns:
        listed += _column_checks(column) if column.on_failure == on_failure else []
    return listed


def _not_json(silver: Silver) -> str:
    """The condition that a payload is not one document, or that `from_json` reports an error that is not due to the
    value of any column."""
    kinds = [f"({condition})" for column in silver.columns for _, condition in _of_another_kind(column)]
    unknown = f" AND NOT ({' OR '.join(kinds)})" if kinds else ""
    return f"{PARSED} IS NULL{_misread(silver)} OR ({PARSED}.{CORRUPT} IS NOT NULL{unknown})"


def _misread(silver: Silver) -> str:
    """The condition that `from_json` accepts a payload that says something else or more: it takes U+FFFD for bytes that
    are not UTF-8 (RFC 8259, 8.1), and leaves out what follows the first document. The function that counts documents
    does not know NaN."""
    if silver.decode != "json" or not payload_fields(silver):
        return ""
    one = f"coalesce({DOCUMENTS}, if({DOCUMENT} RLIKE '{NO_NUMBER}', 1, 0)) = 1"
    return f" OR NOT is_valid_utf8({DOCUMENT}) OR NOT ({one})"


def _of_another_kind(column: Column) -> list[tuple[str, str]]:
    """The check that a field of the payload, and what it is in, has another kind of JSON value than its column needs:
    there is a value, but `from_json`, which reports an error, has none."""
    if not column.path.startswith("payload."):
        return []
    steps = column.path.removeprefix("payload.").split(".")
    if column.wire_type == "string" and len(steps) == 1:
        return []  # any value can be text
    lost = []
    for count in range(1, len(steps) + 1):
        read = ".".join([PARSED, *map(quote, steps[:count])])
        at = literal("$" + "".join(f"['{step}']" for step in steps[:count]))
        lost.append(f"({read} IS NULL AND get_json_object({DOCUMENT}, {at}) IS NOT NULL)")
    condition = f"{PARSED}.{CORRUPT} IS NOT NULL AND coalesce({DOCUMENTS}, 0) = 1 AND ({' OR '.join(lost)})"
    return [(f"type:{column.name}", condition)]


def value_name(column: Column) -> str:
    """The name of the typed value while rows are checked; a column may have the same name as the one from which it is
    read."""
    return f"_v_{column.name}"


def _column_checks(column: Column) -> list[tuple[str, str]]:
    value = quote(value_name(column))
    found = _of_another_kind(column)
    if column.required:
        found.append((f"missing:{column.name}", f"{raw_value(column)} IS NULL"))
    if typed_value(column) != raw_value(column):
        found.append((f"type:{column.name}", f"{value} IS NULL AND {raw_value(column)} IS NOT NULL"))
    if column.type in ("float", "double"):
        found.append((f"not_a_number:{column.name}", f"isnan({value})"))
        found.append((f"type:{column.name}", f"abs({value}) = double('infinity')"))  # what is too large is read as that
    if column.min is not None:
        found.append((f"below_min:{column.name}", f"{value} < {column.min!r}"))
    if column.max is not None:
        found.append((f"above_max:{column.name}", f"{value} > {column.max!r}"))
    if column.pattern is not None:
        found.append((f"pattern:{column.name}", f"NOT ({value} RLIKE {literal(column.pattern)})"))
    if column.values is not None:
        allowed = ", ".join(map(literal, column.values))
        found.append((f"not_allowed:{column.name}", f"NOT (CAST({value} AS string) IN ({allowed}))"))
    return found


def error_expression(silver: Silver) -> str:
    """The SQL expression of the first check that fails, as a code; NULL for a good row."""
    cases = [f"WHEN {DECODE_ERROR} IS NOT NULL THEN concat('decode: ', {DECODE_ERROR})"]
    cases += [f"WHEN {condition} THEN {literal(code)}" for code, condition in checks(silver)]
    return "CASE " + " ".join(cases) + " END"


def warnings_expression(silver: Silver) -> str:
    """The SQL expression of the counted checks that fail, as codes with commas; NULL for a row without any."""
    cases = [f"CASE WHEN {condition} THEN {literal(code)} END" for code, condition in checks(silver, COUNT)]
    return f"nullif(concat_ws(', ', {', '.join(cases)}), '')"


def carried_columns(silver: Silver, there: Sequence[str] = ()) -> list[str]:
    """Message columns that the table does not define itself; with the source's name if the messages have it."""
    own = {column.name for column in silver.columns}
    named = (SOURCE,) if SOURCE in there else ()
    return [name for name in (*named, *CARRIED) if name not in own]


def silver_rows(bronze: Any, silver: Silver, *, foreign_text: bool = True) -> Any:
    """The rows of a silver table, made from those of bronze. Quarantined rows keep their payload, good ones do not.
    `foreign_text`: whether messages may declare text in another character set than UTF-8."""
    from pyspark.sql import functions as f

    rows = bronze.where(silver.when) if silver.when else bronze
    if silver.decode in OF_TEXT and (foreign_text or silver.ccsid not in (0, CCSID_UTF_8)):
        rows = _parsed(_converted(rows, silver), silver)
    else:
        rows = _parsed(_decoded(rows, silver), silver)
    for column in silver.columns:
        rows = rows.withColumn(value_name(column), f.expr(typed_value(column)))
    rows = rows.withColumn("error", f.expr(error_expression(silver)))
    bad = f.col("error").isNotNull()
    warnings = [f.expr(warnings_expression(silver)).alias(WARNINGS)] if silver.counts else []
    return rows.select(
        *carried_columns(silver, bronze.columns),
        *[f.col(value_name(column)).alias(column.name) for column in silver.columns],
        "error",
        *warnings,
        f.when(bad, f.col("payload")).alias("payload"),
        f.when(bad, f.lit(QUARANTINE)).otherwise(f.lit(OK)).alias("status"),
    )


def _decoded(rows: Any, silver: Silver) -> Any:
    """Add the document as JSON text. Payloads other than JSON go through a function over Arrow columns."""
    from pyspark.sql import functions as f

    if silver.decode == "json":
        text = f.expr(PAYLOAD_TEXT)
        return rows.withColumn(DOCUMENT, text).withColumn(DECODE_ERROR, f.lit(None).cast("string"))
    decode = arrow_decoder(silver.decode)
    both = f.col("_both")
    rows = rows.withColumn("_both", decode(f.col("payload")))
    return rows.withColumn(DOCUMENT, both["document"]).withColumn(DECODE_ERROR, both["error"]).drop("_both")


def character_set(silver: Silver) -> str:
    """The SQL expression of a payload's character set: for text the one that its message names, else the job's."""
    return f"if(format = '{STRING}' AND ccsid > 0, ccsid, {silver.ccsid or CCSID_UTF_8})"


def _converted(rows: Any, silver: Silver) -> Any:
    """As `_decoded`, for text in character sets of its own. JSON in UTF-8 goes through no function here either."""
    from pyspark.sql import functions as f

    ccsid = character_set(silver)
    foreign, document, payload = f"{ccsid} <> {CCSID_UTF_8}", "_both.document", "payload"
    if silver.decode == "json":
        document, payload = f"if({foreign}, {document}, {PAYLOAD_TEXT})", f"if({foreign}, payload, NULL)"
    decode = arrow_text_decoder(silver.decode)
    rows = rows.withColumn("_both", decode(f.expr(payload), f.expr(ccsid), f.col("encoding")))
    return rows.withColumn(DOCUMENT, f.expr(document)).withColumn(DECODE_ERROR, f.expr("_both.error")).drop("_both")


def arrow_text_decoder(name: str) -> Any:
    """A Spark function from payloads, CCSIDs and Encodings to documents and errors."""
    import pyarrow as pa
    from pyspark.sql.functions import arrow_udf

    def decode(payloads, ccsids, encodings):  # type: ignore[no-untyped-def]
        return _both(decode_texts(name, payloads.to_pylist(), ccsids.to_pylist(), encodings.to_pylist()))

    decode.__annotations__ = dict.fromkeys(("payloads", "ccsids", "encodings", "return"), pa.Array)
    return arrow_udf(decode, "document string, error string")


def _both(decoded: Decoded) -> Any:
    import pyarrow as pa

    documents, errors = decoded
    return pa.StructArray.from_arrays(
        [pa.array(documents, pa.string()), pa.array(errors, pa.string())], ["document", "error"]
    )


def arrow_decoder(name: str) -> Any:
    """A Spark function from payloads to documents and errors."""
    import pyarrow as pa
    from pyspark.sql.functions import arrow_udf

    def decode(payloads):  # type: ignore[no-untyped-def]
        return _both(decoder(name)(value or b"" for value in payloads.to_pylist()))

    # Spark recognises the kind of a function by real types; annotations of this module are strings.
    decode.__annotations__ = {"payloads": pa.Array, "return": pa.Array}
    return arrow_udf(decode, "document string, error string")


def _parsed(rows: Any, silver: Silver) -> Any:
    from pyspark.sql import functions as f

    if not payload_fields(silver):
        return rows.withColumn(PARSED, f.expr(f"named_struct('{CORRUPT}', CAST(NULL AS string))"))
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, "maxStringLen": str(LONGEST_STRING)}
    return rows.withColumn(PARSED, f.from_json(f.col(DOCUMENT), payload_schema(silver), options))

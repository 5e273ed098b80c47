"""Bronze rows to silver rows: decoded, typed, checked; good and bad ones in one write, told apart by `status`."""

from __future__ import annotations

from typing import Any

from gateway.pipeline.decode.decoders import decoder
from gateway.pipeline.jobs.job import Silver
from gateway.pipeline.jobs.silver_sql import (
    CORRUPT,
    DECODE_ERROR,
    DOCUMENT,
    OK,
    PARSED,
    QUARANTINE,
    carried_columns,
    error_expression,
    payload_fields,
    payload_schema,
    typed_value,
    value_name,
)


def silver_rows(bronze: Any, silver: Silver) -> Any:
    """All messages this table is for. Quarantined rows keep their payload; good ones do not."""
    from pyspark.sql import functions as f

    rows = bronze.where(silver.when) if silver.when else bronze
    rows = _parsed(_decoded(rows, silver), silver)
    for column in silver.columns:
        rows = rows.withColumn(value_name(column), f.expr(typed_value(column)))
    rows = rows.withColumn("error", f.expr(error_expression(silver)))
    bad = f.col("error").isNotNull()
    return rows.select(
        *carried_columns(silver),
        *[f.col(value_name(column)).alias(column.name) for column in silver.columns],
        "error",
        f.when(bad, f.col("payload")).alias("payload"),
        f.when(bad, f.lit(QUARANTINE)).otherwise(f.lit(OK)).alias("status"),
    )


def _decoded(rows: Any, silver: Silver) -> Any:
    """With the document as JSON text. JSON is left to Spark; other formats go through a function over Arrow columns."""
    from pyspark.sql import functions as f

    if silver.decode == "json":
        text = f.col("payload").cast("string")
        return rows.withColumn(DOCUMENT, text).withColumn(DECODE_ERROR, f.lit(None).cast("string"))
    decode = arrow_decoder(silver.decode)
    both = f.col("_both")
    rows = rows.withColumn("_both", decode(f.col("payload")))
    return rows.withColumn(DOCUMENT, both["document"]).withColumn(DECODE_ERROR, both["error"]).drop("_both")


def arrow_decoder(name: str) -> Any:
    """A Spark function from payloads to documents and errors."""
    import pyarrow as pa
    from pyspark.sql.functions import arrow_udf

    def decode(payloads):  # type: ignore[no-untyped-def]
        documents, errors = decoder(name)(value or b"" for value in payloads.to_pylist())
        return pa.StructArray.from_arrays(
            [pa.array(documents, pa.string()), pa.array(errors, pa.string())], ["document", "error"]
        )

    # Spark tells kinds of functions by real types; annotations of this module are text.
    decode.__annotations__ = {"payloads": pa.Array, "return": pa.Array}
    return arrow_udf(decode, "document string, error string")


def _parsed(rows: Any, silver: Silver) -> Any:
    from pyspark.sql import functions as f

    if not payload_fields(silver):
        return rows.withColumn(PARSED, f.expr(f"named_struct('{CORRUPT}', CAST(NULL AS string))"))
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    return rows.withColumn(PARSED, f.from_json(f.col(DOCUMENT), payload_schema(silver), options))

"""What can go wrong in the pipeline, each with a text that says what to do. Imports nothing but the root error."""

from __future__ import annotations

from gateway.errors import MqgateError


class PipelineError(MqgateError):
    """The pipeline cannot go on; the root of this package's errors."""


class JavaMissing(PipelineError):
    """No Java 17 or later was found for Spark."""


class SparkMissing(PipelineError):
    """pyspark or pyarrow is not installed, or too old."""


class LeaseHeld(PipelineError):
    """Another driver reads for this consumer group, or one that ended without giving its lease back did."""


class LeaseLost(PipelineError):
    """Another driver has taken this consumer group over."""


class DataLost(PipelineError):
    """Messages of a planned range are no longer there."""


class QueueUnreachable(PipelineError):
    """Neither the journal nor the gateway could be reached."""


class WrongOption(PipelineError):
    """An option of the data source or a job is missing or not allowed."""

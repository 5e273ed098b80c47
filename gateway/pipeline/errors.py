"""The pipeline's errors. Their texts say what to do; `jobs/run.py` recognises their names in what Spark reports."""

from __future__ import annotations

from gateway.errors import MqgateError


class PipelineError(MqgateError):
    """The root of the errors of this package."""


class JavaMissing(PipelineError):
    """No Java 17 or later was found for Spark."""


class SparkMissing(PipelineError):
    """pyspark or pyarrow is not installed, or too old."""


class LeaseHeld(PipelineError):
    """The consumer group's lease belongs to another driver, which may have ended without giving it back."""


class LeaseLost(PipelineError):
    """Another driver has taken this consumer group over."""


class DataLost(PipelineError):
    """Messages of a planned range are no longer on their queues."""


class QueueUnreachable(PipelineError):
    """Neither the journal nor the gateway could be reached."""


class WrongOption(PipelineError):
    """An option of the data source or a job is missing or not allowed."""

"""The pipeline's errors. Their texts say what to do; `jobs/run.py` recognises their names in what Spark reports."""

from __future__ import annotations

from gateway.errors import MqgateError


class PipelineError(MqgateError):
    """The root of the errors of this package."""


class JavaMissing(PipelineError):
    """No Java 17 or later was found for Spark."""


class SparkMissing(PipelineError):
    """pyspark or pyarrow is not installed, or too old."""


class SparkEnded(PipelineError):
    """Spark's JVM has ended. No other one can be started in the same process."""


class LeaseHeld(PipelineError):
    """The consumer group's lease belongs to another driver, which may have ended without giving it back."""


class LeaseLost(PipelineError):
    """Another driver has taken this consumer group over."""


class DataLost(PipelineError):
    """Messages of a planned range are no longer on their queues."""


class QueueUnreachable(PipelineError):
    """Neither the journal nor the gateway could be reached."""


class GatewayRefuses(QueueUnreachable):
    """A gateway cannot be reached with what is configured: its scheme, its certificate, the token. A job that begins
    does not wait for that to get better."""


class GatewayMissing(QueueUnreachable):
    """There is no host of a gateway's name, or no file with its token: a mistake, or a gateway that has not started, as
    the names of containers appear with them. A job that is to end by itself does not wait for it; a service does."""


class WrongOption(PipelineError):
    """An option of the data source or a job is missing or not allowed."""


class QueueRefuses(PipelineError):
    """A queue does not take what is to be put on it: it is full, inhibited, or wants shorter messages."""


class StoreRefuses(PipelineError):
    """Object storage refuses what a warehouse needs: credentials, a missing bucket, no conditional puts."""


class StoreUnreachable(PipelineError):
    """Object storage did not answer, or answered with an error that may pass."""


class Overtaken(PipelineError):
    """Something else was committed to the warehouse while a batch was on its way: the batch begins again."""


class CatalogMissing(PipelineError):
    """The catalog of Iceberg tables cannot be reached, or refuses."""


class TableDiffers(PipelineError):
    """A table is of another kind than what the job would add to it."""

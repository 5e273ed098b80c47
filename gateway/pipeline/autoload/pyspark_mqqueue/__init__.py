"""Spark looks for packages named pyspark_* with a DefaultSource, so that `format("mqqueue")` needs no registration."""

from gateway.pipeline.source.source import MqQueueDataSource as DefaultSource

__all__ = ["DefaultSource"]

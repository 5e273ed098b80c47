"""What a user is told of an error: one sentence, which says what to do."""

from __future__ import annotations

import errno
import os

import pytest

from gateway.pipeline.errors import QueueRefuses
from gateway.pipeline.sentences import WHY_FULL, WHY_MEMORY, WHY_NO_MEMORY, first_cause, sentence

ARROW = "OSError: [Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device"


@pytest.mark.parametrize("text", [ARROW, "java.io.IOException: No space left on device"])
def test_a_full_disk_is_told_with_what_to_do(text: str) -> None:
    """It said to correct the path, or only what Arrow says."""
    report = f"org.apache.spark.SparkException: a task has failed\nTraceback (most recent call last):\n{text}\n"
    assert first_cause(report) == sentence(RuntimeError(report)) == WHY_FULL
    assert sentence(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))) == WHY_FULL


def test_an_error_of_ours_says_itself_what_is_full() -> None:
    told = "the queue manager's disk is full: No space left on device"
    report = f"Traceback (most recent call last):\ngateway.pipeline.errors.QueueRefuses: {told}\n"
    assert first_cause(report) == sentence(RuntimeError(report)) == told
    assert sentence(QueueRefuses(told)) == told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Lost task 0.0 in stage 1.0: java.lang.OutOfMemoryError: Java heap space", WHY_MEMORY),
        ("MemoryError", WHY_NO_MEMORY),
        ("pyarrow.lib.ArrowMemoryError: malloc of size 95000000 failed", WHY_NO_MEMORY),
    ],
)
def test_a_batch_that_does_not_fit_into_memory_is_told_with_what_to_set(text: str, told: str) -> None:
    report = f"org.apache.spark.SparkException: a task has failed\nTraceback (most recent call last):\n{text}\n"
    assert first_cause(report) == sentence(RuntimeError(report)) == told
    assert sentence(MemoryError()) == WHY_NO_MEMORY

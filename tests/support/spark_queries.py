"""Streaming queries of tests at their end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

STARTS = 18


def ended(start: Callable[[], Any]) -> Any:
    """A query that has ended. Spark gives a Python process ten seconds to start; where a busy machine has not got
    them the query is started again."""
    for tried in range(1, STARTS + 1):
        query = start()
        try:
            query.awaitTermination()
        except Exception as error:
            if tried == STARTS or "failed to connect back" not in str(error):
                raise
        else:
            return query
    raise AssertionError("unreachable")

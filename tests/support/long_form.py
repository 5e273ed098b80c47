"""What only the long form runs: `tests/run --long`."""

from __future__ import annotations

import os
from typing import Any

import pytest

LONG = bool(os.environ.get("MQGATE_LONG"))
only_long = pytest.mark.skipif(not LONG, reason="the long form: tests/run --long")


def in_long_form(*values: Any) -> list[Any]:
    """Parameters that come in the long form only; in the short one others stand for them."""
    return [pytest.param(*value if isinstance(value, tuple) else (value,), marks=only_long) for value in values]


def examples(number: int) -> int:
    """How many Hypothesis makes for a test that takes seconds: of so many a tenth in the short form, where they are
    always the same."""
    return number if LONG or "MQGATE_EXPLORE" in os.environ else max(10, number // 10)

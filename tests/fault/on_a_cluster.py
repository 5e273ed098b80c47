"""How tests are marked that run the pipeline on a cluster: the long form alone, and one of them at a time."""

from __future__ import annotations

import os

import pytest

MARKS = [
    pytest.mark.skipif(not os.environ.get("MQGATE_LONG"), reason="the long form: tests/run --long"),
    pytest.mark.spark,
    pytest.mark.stress,
    pytest.mark.timeout(1200),
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("default"),
]

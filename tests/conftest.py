"""Shared test set-up: `tests` is importable (strategies_*.py); Hypothesis has a CI and a long profile."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

# What CI says depends on the change alone; new examples are looked for by the long form, and by MQGATE_EXPLORE=1.
settings.register_profile(
    "ci", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow],
    derandomize="MQGATE_EXPLORE" not in os.environ,
)  # fmt: skip
settings.register_profile("long", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("long" if os.environ.get("MQGATE_LONG") else "ci")

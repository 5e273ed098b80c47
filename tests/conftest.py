"""Shared test set-up: Hypothesis has a CI and a long profile."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# What CI says depends on the change alone; new examples are looked for by the long form, and by MQGATE_EXPLORE=1.
settings.register_profile(
    "ci", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow],
    derandomize="MQGATE_EXPLORE" not in os.environ,
)  # fmt: skip
settings.register_profile("long", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("long" if os.environ.get("MQGATE_LONG") else "ci")


@pytest.fixture(scope="module", autouse=True)
def _folders_go_with_the_module(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """pytest keeps what `tmp_path_factory` made until the whole run ends: with a journal in each, gigabytes."""
    base, failed = tmp_path_factory.getbasetemp(), request.session.testsfailed
    before = set(base.iterdir())
    yield
    if request.session.testsfailed == failed:
        for folder in set(base.iterdir()) - before:
            shutil.rmtree(folder, ignore_errors=True)

"""A gateway to be attacked, one for each module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from stall_attacks import Attacked

SETTINGS = "mqtt: {max_inflight: 1000}\nlisteners: [{name: plain, port: 0}]\n"


@pytest.fixture(scope="module")
def attacked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """With the settings of the module, if it has some."""
    settings = getattr(request.module, "SETTINGS", SETTINGS)
    with Attacked(tmp_path_factory.mktemp("attacked"), settings).serve() as one:
        yield one

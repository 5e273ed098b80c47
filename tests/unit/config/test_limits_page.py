"""Every setting that limits something is on the page that says what happens beyond the limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config.limits import Limits, ListenerRates
from gateway.config.model import Listener, Mqtt

PAGE = (Path(__file__).parents[3] / "docs/reference/limits.md").read_text()
KEYS = {
    *Limits.model_fields,
    *ListenerRates.model_fields,
    *(
        name
        for name in (*Mqtt.model_fields, *Listener.model_fields)
        if name.startswith("max_") or name.endswith("_max")
    ),
}


@pytest.mark.parametrize("key", sorted(KEYS))
def test_a_limit_is_described(key: str) -> None:
    assert f"`{key}`" in PAGE or f"`limits.{key}`" in PAGE

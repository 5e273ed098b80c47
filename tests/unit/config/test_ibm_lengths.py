"""What fits into MQ's structures: the bindings would silently cut a longer text."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config.load import load_settings
from gateway.errors import ConfigurationError

LONG_LIST = ",".join(f"mq{number}.a.rather.long.domain.example(1414)" for number in range(8))


@pytest.mark.parametrize(
    ("key", "value", "limit"),
    [
        ("connection", LONG_LIST, 264),
        ("channel", "A.CHANNEL.NAME.TOO.LONG", 20),
        ("name", "Q" * 49, 48),
        ("tls.cipher", "X" * 33, 32),
        ("tls.key_repository", "/" + "k" * 256, 256),
        ("tls.certificate_label", "l" * 65, 64),
    ],
)
def test_a_text_that_does_not_fit_is_refused_with_its_limit(key: str, value: str, limit: int, tmp_path: Path) -> None:
    section = {"connection": "mq(1414)", "channel": "C"}
    outer, _, inner = key.rpartition(".")
    if not outer:
        section[inner] = value
    lines = [f"    {name}: {text}" for name, text in section.items()]
    if outer:
        lines += ["    tls:", f"      {inner}: {value}"]
    path = tmp_path / "mqgate.yaml"
    path.write_text("\n".join(["queue_manager:", "  ibm:", *lines, ""]))
    with pytest.raises(ConfigurationError) as refused:
        load_settings(str(path), {}, {})
    text = str(refused.value.findings[0])
    assert inner in text
    assert str(limit) in text

"""What the process keeps in its directory: private, the same after a restart, and no reason not to start."""

from __future__ import annotations

import stat
from pathlib import Path

from gateway.app.data_directory import own_secret


def test_the_secret_of_salts_is_kept_and_private(tmp_path: Path) -> None:
    first = own_secret(tmp_path)
    assert len(first) == 32
    assert own_secret(tmp_path) == first
    assert stat.S_IMODE((tmp_path / "salt.secret").stat().st_mode) == 0o600


def test_one_that_cannot_be_kept_or_read_is_replaced_for_this_time(tmp_path: Path) -> None:
    assert len(own_secret(tmp_path / "missing")) == 32
    (tmp_path / "salt.secret").write_bytes(b"short")
    assert len(own_secret(tmp_path)) == 32

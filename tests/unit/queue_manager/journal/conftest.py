"""Stores of these tests lie in memory where there is such a place: what is tested is not the disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    path = Path(tempfile.mkdtemp(prefix="mqgate-", dir=place))
    yield path / "store"
    shutil.rmtree(path)

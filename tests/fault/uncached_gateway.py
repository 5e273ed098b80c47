"""mqgate that keeps nothing of its journal in memory: what is read comes from the disk each time."""

from __future__ import annotations

import sys

from gateway.cli import main
from gateway.queue_manager.journal import read_ahead, reader

reader.RowCache.keep = lambda *_: None  # type: ignore[method-assign]
read_ahead.LARGEST_KEPT = 0

sys.exit(main.main())

"""The command line. Exit codes: 0 done, 1 the answer is no, 2 wrong use, 3 cannot reach what it needs."""

from __future__ import annotations

from gateway.cli.main import main

__all__ = ["main"]

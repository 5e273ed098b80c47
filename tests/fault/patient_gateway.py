"""mqgate that waits for what new rules consume as long as that takes on a slow machine."""

from __future__ import annotations

import sys

from gateway.broker.deliver import consumers
from gateway.cli.main import main

consumers.PATIENCE = 120.0

if __name__ == "__main__":
    sys.exit(main())

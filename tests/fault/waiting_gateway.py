"""A gateway that waits for ever, as good as, for what it reads of its queue manager: whoever waits with it is seen."""

from __future__ import annotations

import sys

from gateway.backends.ibm import reader
from gateway.cli.main import main

reader.ANSWER_SECONDS = 120.0

if __name__ == "__main__":
    sys.exit(main())

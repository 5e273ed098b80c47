"""mqgate to which a publication for twenty subscribers is one for very many."""

from __future__ import annotations

import sys

from gateway.broker.publish import router
from gateway.cli import main

router.WIDE = 20

sys.exit(main.main())

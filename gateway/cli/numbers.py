"""Numbers given as options: seconds, and ports."""

from __future__ import annotations

import math
from typing import Any

import click


class Finite(click.FloatRange):
    """A number in a range. `nan` and `inf` are refused, although Python reads them as numbers."""

    name = "float"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the number, or ends the command."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a number that can be used here.", param, ctx)
        return number


SECONDS = Finite(min=0, max=1e6, min_open=True)
"""How long to wait for something."""
OWN_PORT = click.IntRange(0, 65535)
"""A port to listen on; 0 is a free one, or none."""
PORT = click.IntRange(1, 65535)
"""A port of something else, to connect to."""

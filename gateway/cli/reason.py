"""The reason of a dead letter, as it is given to commands."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import click


class Reason(click.ParamType):  # type: ignore[type-arg]  # click 8.1 cannot say it
    """A number, or a name as `mqgate dlq list` shows it, in upper or lower case."""

    name = "reason"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Returns the number."""
        text = str(value).strip()
        if text.isascii() and text.isdigit():
            return int(text)
        known = _by_name()
        if text.upper() not in known:
            near = get_close_matches(text.upper(), known, 1)
            fix = f"did you mean {near[0]}?" if near else "give its number, or its name as `mqgate dlq list` shows it"
            self.fail(f"{text!r} is not a reason: {fix}", param, ctx)
        return known[text.upper()]


def _by_name() -> dict[str, int]:
    from gateway.mq.constants import mqrc
    from gateway.rules.feedback import Feedback

    theirs = {name: code for name, code in vars(mqrc).items() if name.startswith("MQRC_")}
    return theirs | {one.name: int(one) for one in Feedback}

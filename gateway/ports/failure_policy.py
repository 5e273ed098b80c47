"""What a rule does about a message that its queue refuses. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Policy(NamedTuple):
    """A rule's `on_failure` and `too_long`, ready for use."""

    rule: str
    retry_times: int
    retry_first: float
    """How many seconds to wait before trying again for the first time; doubled for each further attempt."""
    retry_longest: float
    then: str
    """What happens after the last attempt: `dead_letter`, `hold`, `drop` or `disconnect`."""
    too_long: str
    """What happens to a message that is longer than its queue takes: `dead_letter`, `segment` or `reject`."""

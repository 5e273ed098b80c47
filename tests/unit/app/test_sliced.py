"""gateway.app.api.sliced: whoever asks is answered, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from broker_harness import Harness

from gateway.app.api.sliced import sliced
from gateway.net.calls import Problem

DEFECT, AWAY = ValueError("a defect"), Problem(503, "Away", "the queue manager does not answer")


def steps(error: Exception | None = None) -> Iterator[None]:
    yield
    if error is not None:
        raise error


def refused(error: Exception) -> object:
    raise error


@pytest.mark.parametrize("error", [DEFECT, AWAY])
@pytest.mark.parametrize("is_step", [True, False])
def test_who_asks_is_told_what_was_met(error: Exception, is_step: bool) -> None:
    told: list[object] = []
    sliced(Harness().engine, steps(error if is_step else None), lambda: refused(error)).begin(told.append)
    assert told == [error]


def test_who_asks_gets_the_answer_that_there_is_behind_the_last_step() -> None:
    told: list[object] = []
    sliced(Harness().engine, steps(), lambda: "answer").begin(told.append)
    assert told == [(200, "answer")]

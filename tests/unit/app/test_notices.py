"""gateway.app.notices: a defect costs what met it, and nothing else."""

from __future__ import annotations

from gateway.app.notices import kept_on


def test_what_is_called_every_second_goes_on_after_a_defect() -> None:
    called = []

    def call() -> None:
        called.append(1)
        if len(called) == 1:
            raise ValueError("a defect")

    guarded = kept_on(call)
    guarded()
    guarded()
    assert len(called) == 2

"""gateway.app.log_lines: a defect costs what met it, and nothing else."""

from __future__ import annotations

from gateway.app.log_lines import guarded


def test_what_is_called_every_second_goes_on_after_a_defect() -> None:
    called = []

    def call() -> None:
        called.append(1)
        if len(called) == 1:
            raise ValueError("a defect")

    kept_on = guarded(call)
    kept_on()
    kept_on()
    assert len(called) == 2

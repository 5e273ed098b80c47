"""`mqgate pipeline groups`, on the store of a gateway that is stopped."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from device_fleet import SMALL, Fleet, put

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[spark]'")

from gateway.pipeline.commands import pipeline
from gateway.pipeline.journal.groups import ConsumerGroup
from gateway.pipeline.journal.owner import opened
from gateway.queue_manager.journal.store import Store

JOB = "version: 1\nname: plant\nsource: {queue: Q, path: journal}\nwarehouse: lake\n"


def test_groups_are_listed_and_removed(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    store = Store.open(tmp_path / "journal", clock=time.time, options=SMALL)
    put(store, "Q", *Fleet().batch(3))
    store.close()

    def said(*words: str) -> str:
        done = CliRunner().invoke(pipeline, ["groups", *words])
        assert done.exit_code == 0, done.output
        return done.output

    assert said("list", str(file)) == "no groups\n"
    with opened(tmp_path / "journal") as owner:
        owner.acquire(ConsumerGroup("plant", "Q", True, 0.0), "driver", 0.0)
    assert said("list", str(file)) == "group plant on Q: 3 behind, nobody reads\n"
    assert [(one["name"], one["lag"]) for one in json.loads(said("list", str(file), "--json"))] == [("plant", 3)]
    assert said("remove", str(file), "plan") == (
        "there is no group plan: `mqgate pipeline groups list` shows those there are\n"
    )
    assert said("remove", str(file), "plant") == "removed\n"
    assert said("list", str(file)) == "no groups\n"


def test_a_status_has_the_groups_of_its_job_alone(tmp_path: Path) -> None:
    """A job with one source showed those of all jobs of the queue manager, and its metrics their lag as its own."""
    file = tmp_path / "job.yaml"
    file.write_text(JOB.replace("path: journal", "path: journal, group: plant"))
    store = Store.open(tmp_path / "journal", clock=time.time, options=SMALL)
    put(store, "Q", *Fleet().batch(3))
    store.close()
    with opened(tmp_path / "journal") as owner:
        for name in ("other", "plant"):
            owner.acquire(ConsumerGroup(name, "Q", True, 0.0), "driver", 0.0)
    done = CliRunner().invoke(pipeline, ["status", str(file), "--json"])
    assert [one["name"] for one in json.loads(done.output)["groups"]] == ["plant"]

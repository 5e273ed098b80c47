"""The pipeline's service on a running gateway: groups, leases, cursors and lag over HTTP, with the admin token."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
from running_gateway import TOKEN, Running, publish, running

from gateway.pipeline.errors import LeaseHeld, PipelineError
from gateway.pipeline.jobs.job import parse_job
from gateway.pipeline.jobs.progress import JobProgress
from gateway.pipeline.jobs.replay import target_options
from gateway.pipeline.jobs.telling import GatewayReports
from gateway.pipeline.journal.groups import ConsumerGroup
from gateway.pipeline.source.http_access import HttpAccess, HttpAddress
from gateway.pipeline.source.options import Options

pytestmark = pytest.mark.ops
QUEUE = "MQGATE.DEFAULT"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("gateway")) as found:
        publish(found, "plant/lima/line/7/temperature", "21.5", 300)
        yield found


@pytest.fixture(scope="module")
def access(gateway: Running) -> HttpAccess:
    return HttpAccess(Options(url=f"http://127.0.0.1:{gateway.admin}", token=TOKEN, queue=QUEUE))


def lag(gateway: Running) -> dict[str, Any]:
    (queue,) = json.loads(gateway.text("/api/v1/pipeline", TOKEN))["queues"]
    return dict(queue)


def test_a_group_reads_acknowledges_and_its_lag_is_shown(gateway: Running, access: HttpAccess) -> None:
    group = access.acquire(ConsumerGroup("spark", QUEUE), "driver-1", 60.0)
    extent = access.extent(QUEUE, group.cursor, None)
    assert extent.messages == 300
    assert lag(gateway)["lag_messages"] == 300
    with pytest.raises(LeaseHeld):
        access.acquire(ConsumerGroup("spark", QUEUE), "driver-2", 60.0)
    access.acknowledge("spark", group.epoch, extent.next, 60.0)
    shown = lag(gateway)
    assert (shown["lag_messages"], shown["job"]) == (0, "spark")
    assert shown["last_commit"] is not None
    access.release("spark", group.epoch)


def test_a_replay_to_a_queue_that_is_not_defined_is_told_before_spark_starts(gateway: Running) -> None:
    (gateway.folder / "token").write_text(TOKEN)
    source = f"{{queue: Q, url: 'http://127.0.0.1:{gateway.admin}', token_file: {gateway.folder}/token}}"
    job = parse_job("job.yaml", f"version: 1\nname: plant\nsource: {source}\nwarehouse: lake\n")
    with pytest.raises(PipelineError, match=r"NOT\.THERE is not a local queue here: define it"):
        target_options(job, "NOT.THERE", "", "")
    before = gateway.text(f"/api/v1/queues/{QUEUE}", TOKEN)
    assert target_options(job, QUEUE, "", "")["queue"] == QUEUE
    assert json.loads(gateway.text(f"/api/v1/queues/{QUEUE}", TOKEN))["depth"] == json.loads(before)["depth"]


def test_a_job_tells_how_it_goes(gateway: Running) -> None:
    """The reports of a running job, as the page shows them; what says nothing of a group is not shown."""
    text = (
        f"version: 1\nname: plant\nsource: {{queue: {QUEUE}, url: 'http://127.0.0.1:{gateway.admin}', group: told}}\n"
    )
    job = parse_job("job.yaml", text + "warehouse: lake\n")
    address = HttpAddress(f"http://127.0.0.1:{gateway.admin}", TOKEN, "", "")
    group = HttpAccess(Options(url=address.url, token=TOKEN, queue=QUEUE)).acquire(
        ConsumerGroup("told", QUEUE), "driver-3", 60.0
    )
    reports = GatewayReports(job)
    reports._addresses = [(address, "told"), (address, "of nobody")]
    progress = JobProgress("plant", state="running", rows_per_second=1234.5, batch=7, last_batch=1000.0)
    upkeep = {"tables": [{"parts": 3}, {"parts": 4}], "next_compaction": "due"}
    reports.tell(progress, lambda: upkeep)
    jobs = {each["group"]: each for each in json.loads(gateway.text("/api/v1/pipeline", TOKEN))["jobs"]}
    assert "of nobody" not in jobs
    shown = jobs["told"]
    assert (shown["name"], shown["state"], shown["parts"], shown["last_batch"]) == ("plant", "running", 7, 7)
    assert (shown["rows_per_second"], shown["last_commit"], shown["next_compaction"]) == (1234.5, 1000.0, "due")
    with pytest.raises(PipelineError):
        address.call("POST", "report", body={"job": "plant"})
    HttpAccess(Options(url=address.url, token=TOKEN, queue=QUEUE)).release("told", group.epoch)
    address.call("POST", "remove", body={"name": "told"})


def test_messages_are_streamed_or_it_is_said_what_is_missing(access: HttpAccess) -> None:
    (piece,) = access.pieces(QUEUE, 0, access.extent(QUEUE, 0, None).next, 1)
    if find_spec("numpy") is None or find_spec("pyarrow") is None:
        with (
            pytest.raises(PipelineError, match=r"no numpy and no pyarrow: .*pip install"),
            access.address.open("GET", "messages", {}),
        ):
            pass
        return
    assert sum(chunk.rows for chunk in piece.chunks(1000)) == 300


def test_who_has_no_token_learns_nothing(gateway: Running) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{gateway.admin}/api/pipeline/groups", timeout=60)
    assert refused.value.code == 401
    refused.value.close()

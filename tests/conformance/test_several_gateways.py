"""The cases in *.yaml against three gateways on one queue manager, behind a load balancer that takes them in turn.

Nothing is different from one gateway: every case is the same.
"""

from __future__ import annotations

import os

import pytest
from conformance_runner import Runner, load_cases, selected
from gateways_behind_balancer import GatewaysBehindBalancer

pytestmark = [
    pytest.mark.mqi, pytest.mark.timeout(600),
    pytest.mark.skipif(not os.environ.get("MQGATE_LONG"), reason="the long form: tests/run --long"),
]  # fmt: skip


@pytest.fixture(scope="module")
def runner(request, tmp_path_factory):
    runner = Runner(tmp_path_factory.mktemp("several"), selected(request.session, __file__), GatewaysBehindBalancer)
    yield runner
    runner.stop()


@pytest.mark.parametrize(("case", "tag", "version", "profile"), list(load_cases()))
def test_case(runner, case, tag, version, profile):
    failure = runner.outcome(tag, version)
    if failure:
        pytest.fail(failure, pytrace=False)

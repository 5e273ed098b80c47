"""The cases in *.yaml against three gateways on one queue manager, behind a load balancer that takes them in turn.

Nothing is different from one gateway: every case is the same. The short form has some of each file, in each version of
the protocol, of those that are over in a moment and need no restart.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from conformance_runner import Runner, duration, load_cases, restarts, selected
from gateways_behind_balancer import GatewaysBehindBalancer

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(600)]
OF_EACH_FILE = 6


def cases() -> Iterator:
    """All of them, or those of the short form."""
    if os.environ.get("MQGATE_LONG"):
        yield from load_cases()
        return
    by_file: dict[str, list] = {}
    for one in load_cases():
        case, _, _, profile = one.values
        if profile == "default" and not restarts(case) and duration(case) <= 1:
            by_file.setdefault(one.id.partition(":")[0], []).append(one)
    for found in by_file.values():  # as they come, versions take turns in a file
        step = max(1, len(found) // OF_EACH_FILE)
        yield from found[:: step + (step % 3 == 0)][:OF_EACH_FILE]


@pytest.fixture(scope="module")
def runner(request, tmp_path_factory):
    runner = Runner(tmp_path_factory.mktemp("several"), selected(request.session, __file__), GatewaysBehindBalancer)
    yield runner
    runner.stop()


@pytest.mark.parametrize(("case", "tag", "version", "profile"), list(cases()))
def test_case(runner, case, tag, version, profile):
    failure = runner.outcome(tag, version)
    if failure:
        pytest.fail(failure, pytrace=False)

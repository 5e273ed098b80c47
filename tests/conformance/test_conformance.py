"""The cases in *.yaml against one gateway on its embedded queue manager; conformance_runner.py says what a case is."""

from __future__ import annotations

import pytest
from conformance_runner import Runner, load_cases, selected


@pytest.fixture(scope="module")
def runner(request, tmp_path_factory):
    runner = Runner(tmp_path_factory.mktemp("conformance"), selected(request.session, __file__))
    yield runner
    runner.stop()


@pytest.mark.parametrize(("case", "tag", "version", "profile"), list(load_cases()))
def test_case(runner, case, tag, version, profile):
    failure = runner.outcome(tag, version)
    if failure:
        pytest.fail(failure, pytrace=False)

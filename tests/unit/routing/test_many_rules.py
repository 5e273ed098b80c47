"""Ten thousand rules are matched as fast as ten: counted in calls, which no busy machine changes."""

from __future__ import annotations

import pytest
from calls import calls

from gateway.bridge.inbound import Origin, plan
from gateway.routing.table import Context, Table, compile_mappings
from gateway.rules.check import check_inbound
from gateway.rules.mappings import Mappings
from gateway.rules.model import ToMq, When


def table(count: int) -> Table:
    made = []
    for n in range(count):
        spec = ToMq(name=f"r{n}", topic=f"plant/{{site}}/line-{n}/+/#", queue=f"Q{n}.{{site}}", when=When(qos=[1, 2]))
        rule, problems = check_inbound(spec, n, "many.yaml", n + 1, None)
        assert rule is not None, problems
        made.append(rule)
    return compile_mappings(Mappings(tuple(made)))


@pytest.fixture(scope="module")
def tables() -> tuple[Table, Table]:
    return table(10), table(10_000)


@pytest.mark.parametrize("topic", ["plant/lima/line-3/t/x", "plant/lima/nothing/t/x", "elsewhere"])
def test_a_topic_costs_the_same(tables: tuple[Table, Table], topic: str) -> None:
    few, many = (calls(lambda one=one: one.match(topic, Context(qos=1))) for one in tables)
    assert many == few


def test_a_plan_costs_the_same_and_is_the_same(tables: tuple[Table, Table]) -> None:
    origin = Origin("dev", "", "plant/lima/line-3/t/x", 1)
    few, many = (calls(lambda one=one: plan(one, origin, {})) for one in tables)
    assert many <= few + 2  # what is made once for a rule may be made now
    assert [one.queue for one in plan(tables[1], origin, {}).prepared] == ["Q3.LIMA"]


def test_the_last_of_ten_thousand_is_found_like_the_first(tables: tuple[Table, Table]) -> None:
    first, last = (calls(lambda n=n: tables[1].match(f"plant/x/line-{n}/a/b", Context(qos=1))) for n in (0, 9_999))
    assert first == last

"""Which files can have rows that meet a condition, by the least and greatest values in their footers.

Spark does this for the files that it opens itself; those of silver tables are read by tasks of ours. What the condition
asks is taken from Spark's own plan, where times and numbers already have the form in which they will be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gateway.pipeline.jobs.tables.footers import has_between

COMPARED = {"integer", "long", "short", "byte", "timestamp", "string"}
"""Types whose order is that of the statistics. Floats are not among them: they have NaN, which Spark takes for the
greatest and a footer leaves out."""
OF_THE_SAME_ROWS = {"Filter", "Project"}
_TURNED = {"LessThan": "GreaterThan", "GreaterThan": "LessThan", "EqualTo": "EqualTo"}
_TURNED |= {f"{one}OrEqual": f"{other}OrEqual" for one, other in _TURNED.items() if one != "EqualTo"}


class Asked(NamedTuple):
    """A column that must have a value between these two, both included; None: there is no such end."""

    column: str
    low: int | str | None
    high: int | str | None


def can_have(footers: Sequence[Any], rows: Any) -> list[bool]:
    """Whether each file can have rows that a frame of all of them lets through."""
    names = {name.lower() for footer in footers for name in footer.schema.to_arrow_schema().names}
    asked = [one for one in _asked(rows) if one.column.lower() in names]
    return [all(has_between(footer, *one) for one in asked) for footer in footers]


def _asked(rows: Any) -> Iterator[Asked]:
    """What every row of a frame must meet."""
    plan = rows._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 -- there is no other way to Spark's plan
    while plan.nodeName() in OF_THE_SAME_ROWS:
        if plan.nodeName() == "Filter":
            yield from _of_condition(plan.condition())
        plan = plan.child()


def _of_condition(condition: Any) -> Iterator[Asked]:
    kind = _kind(condition)
    if kind == "And":
        yield from _of_condition(condition.left())
        yield from _of_condition(condition.right())
    elif kind == "In":
        yield from _of_list(condition)
    elif kind in _TURNED:
        one, other = condition.left(), condition.right()
        if _kind(one) == "Literal":
            kind, one, other = _TURNED[kind], other, one
        value = _value(other)
        if _kind(one) == "AttributeReference" and value is not None:
            yield _compared(one.name(), kind, value)


def _compared(column: str, kind: str, value: int | str) -> Asked:
    if isinstance(value, int) and kind in ("LessThan", "GreaterThan"):
        value += 1 if kind == "GreaterThan" else -1
    return Asked(column, None if kind.startswith("Less") else value, None if kind.startswith("Greater") else value)


def _of_list(condition: Any) -> Iterator[Asked]:
    listed = condition.list()
    values = [_value(listed.apply(at)) for at in range(listed.size())]
    if _kind(condition.value()) == "AttributeReference" and values and None not in values:
        yield Asked(condition.value().name(), min(values), max(values))  # type: ignore[type-var]


def _kind(expression: Any) -> str:
    return str(expression.getClass().getSimpleName())


def _value(expression: Any) -> int | str | None:
    """The value of a literal, if it can be compared with statistics; else None."""
    if _kind(expression) != "Literal" or expression.dataType().typeName() not in COMPARED:
        return None
    value = expression.value()
    return value if value is None or isinstance(value, int) else str(value.toString())

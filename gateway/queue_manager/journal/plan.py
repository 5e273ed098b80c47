"""A unit of work, looked up and numbered: what its frame will say, and what it changes in memory alone. Nothing is
written or changed here.

Numbers go to new persistent rows first, then to moved messages, then to non-persistent ones, in the order of the
unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TypeVar

from gateway.errors import StoreError
from gateway.queue_manager.journal.decode import Links, Rows
from gateway.queue_manager.journal.encode import TOO_LARGE, Columns
from gateway.queue_manager.journal.layout import MAX_KEY
from gateway.queue_manager.journal.reader import Reader
from gateway.queue_manager.store.changes import Changes
from gateway.queue_manager.store.index import LaneName, MoveRun, TokenRun, consecutive, neighbours
from gateway.queue_manager.store.place import MAX_ROWS, NUMBER_BITS, NUMBER_MASK, PRIORITIES, priority_of
from gateway.queue_manager.store.rows import extent
from gateway.queue_manager.store.space import BIG_ROW
from gateway.queue_manager.store.under_way import UnderWay
from gateway.queue_manager.store.unit import NO_ID, LaneMoves, LanePuts, Replaced, StoreUnit

T = TypeVar("T")
_NEW = tuple.__new__
"""Makes a named tuple without a call into Python: a frame has several."""
NO_COLUMNS = Columns((), ())


class Plan:
    """A unit with its numbers."""

    __slots__ = (
        "columns", "first_number", "first_volatile", "links", "missing", "next_number", "replaced", "rows",
        "volatile_groups", "volatile_moves", "volatile_rows", "volatile_takes",
    )  # fmt: skip

    def __init__(self, first_number: int, links: Links, next_number: int = 0) -> None:
        self.first_number = self.first_volatile = first_number
        self.next_number = next_number
        self.links = links
        self.columns = NO_COLUMNS
        self.rows = 0
        self.replaced: Sequence[Replaced] = ()
        self.volatile_groups: list[tuple[LaneName, int]] = []
        self.volatile_takes: list[TokenRun] = []
        self.volatile_moves: list[MoveRun] = []
        self.volatile_rows: Rows | None = None
        self.missing: list[int] = []

    @classmethod
    def empty(cls, number: int) -> Plan:
        """The plan of a frame without content."""
        return cls(number, Links([], [], [], [], {}), next_number=number)

    def changes(self, frame: int, used: int) -> Changes:
        """What the frame does to the index once it is durable."""
        links, longest, lengths = self.links, 0, []
        if used >= BIG_ROW and self.rows:
            longest = extent(self.columns.bodies)[1]
            lengths = [len(body) for body in self.columns.bodies] if longest >= BIG_ROW else []
        return _NEW(Changes, (
            frame, self.first_number, links.groups, self.columns.numbers, links.takes, links.moves, links.backouts,
            links.state, used, longest, lengths, self.replaced,
        ))  # fmt: skip

    def volatile_changes(self, batch: int) -> Changes | None:
        """The same of messages that are kept in memory; None: there are none."""
        if not (self.volatile_groups or self.volatile_takes or self.volatile_moves):
            return None
        return Changes(
            batch, self.first_volatile, self.volatile_groups, None, self.volatile_takes, self.volatile_moves
        )  # fmt: skip


def plan_unit(reader: Reader, under_way: UnderWay, unit: StoreUnit, number: int, time: int) -> Plan:
    """Look up what leaves and number what comes; returns the plan. Fills in the tokens of the unit's puts and moves."""
    if unit.state and max(map(len, unit.state)) > MAX_KEY:
        raise StoreError(f"keys of state records have at most {MAX_KEY} bytes")
    links = _NEW(Links, ([], [], [], [], dict(unit.state)))
    plan = Plan(number, links)
    puts = [group for group in unit.puts if group.heads]
    if not (unit.takes or unit.replaced or unit.moves or unit.backouts) and not [
        group for group in puts if not group.persistent
    ]:
        _plan_puts(plan, puts)
        return plan
    takes = [(queue, key, tokens) for (queue, key), tokens in _takes_by_key(unit).items()] if unit.takes else []
    rewritten = [_rewrite(reader, under_way, move, plan) for move in unit.moves if move.heads is not None]
    for groups, move in rewritten:
        puts += groups
        takes.append((move.queue, move.key, move.tokens))
    if unit.replaced:
        _plan_replaced(under_way, plan, unit.replaced, puts)
    _plan_puts(plan, [group for group in puts if group.persistent])
    if takes:
        _plan_takes(reader, under_way, plan, takes)
    if unit.moves:
        _plan_moves(reader, under_way, plan, [move for move in unit.moves if move.heads is None])
    _plan_volatile(plan, [group for group in puts if not group.persistent], time)
    for groups, move in rewritten:
        move.new_tokens = [token for group in groups for token in group.tokens]
    if unit.backouts:
        _plan_backouts(reader, plan, unit)
    return plan


def check_lane(queue: str, key: bytes, priority: int) -> None:
    """Refuse names that the format cannot express, by raising StoreError."""
    if len(key) > MAX_KEY or (len(queue) > 63 and len(queue.encode()) > 255):
        raise StoreError(f"{queue[:48]}: queue names have at most 255 bytes, keys at most {MAX_KEY}")
    if not 0 <= priority < PRIORITIES:
        raise StoreError(f"{queue}: priority {priority} is not one of 0 to {PRIORITIES - 1}")


def _name_groups(groups: list[LanePuts], number: int, named: list[tuple[LaneName, int]]) -> int:
    """Number the groups from this number on, and set their tokens; returns the next number. Neighbours in one lane,
    which group commit brings, become one group."""
    queue, key, priority, base = "", b"", -1, 0
    for group in groups:
        rows = len(group.heads)
        if rows != len(group.bodies):
            raise StoreError(f"{group.queue}: {rows} heads for {len(group.bodies)} bodies")
        if group.groups is not None:
            named += group.groups
            queue, number = "", number + rows
            continue
        if group.queue == queue and group.key == key and group.priority == priority:
            name, before = named[-1]
            named[-1] = name, before + rows
        else:
            queue, key, priority = group.queue, group.key, group.priority
            if len(queue) > 48 or len(key) > MAX_KEY or not 0 <= priority < PRIORITIES:
                check_lane(queue, key, priority)
            base = (PRIORITIES - 1 - priority) << NUMBER_BITS
            named.append(((queue, key, PRIORITIES - 1 - priority), rows))
        group.tokens = range(base + number, base + number + rows)
        number += rows
    return number


def _takes_by_key(unit: StoreUnit) -> dict[tuple[str, bytes], Sequence[int]]:
    """The tokens that leave each queue and key, gathered, as group commit brings many takes of a few messages."""
    if len(unit.takes) == 1:
        only = unit.takes[0]
        return {(only.queue, only.key): only.tokens}
    gathered: dict[tuple[str, bytes], Sequence[int]] = {}
    joined: dict[tuple[str, bytes], list[int]] = {}
    for take in unit.takes:
        name = take.queue, take.key
        first = gathered.setdefault(name, take.tokens)
        if first is take.tokens:
            continue
        if name not in joined:
            gathered[name] = joined[name] = list(first)
        joined[name] += take.tokens
    return gathered


def _columns_of(groups: Sequence[LanePuts]) -> Columns:
    """The columns of several groups, one group after the other; those of a single group are used as they are."""
    if len(groups) == 1:
        only = groups[0]
        return _NEW(Columns, (
            only.heads, only.bodies, only.msg_ids, only.correl_ids, only.expiries, only.put_times, None, False,
        ))  # fmt: skip
    heads: list[bytes] = []
    bodies: list[bytes] = []
    plain = True
    for group in groups:
        heads += group.heads
        bodies += group.bodies
        plain = plain and group.plain
    if plain:
        return Columns(heads, bodies, shared=True)
    return Columns(
        heads,
        bodies,
        _optional([group.msg_ids for group in groups], groups, NO_ID),
        _optional([group.correl_ids for group in groups], groups, NO_ID),
        _optional([group.expiries for group in groups], groups, 0),
        _optional([group.put_times for group in groups], groups, 0),
        shared=True,
    )


def _optional(columns: list[Sequence[T] | None], groups: Sequence[LanePuts], none: T) -> list[T] | None:
    if not any(column is not None for column in columns):
        return None
    filled: list[T] = []
    for column, group in zip(columns, groups, strict=True):
        filled.extend(repeat(none, len(group.heads)) if column is None else column)
    return filled


def _plan_puts(plan: Plan, groups: list[LanePuts]) -> None:
    first = plan.first_number
    number = _name_groups(groups, first, plan.links.groups)
    for one in plan.replaced:
        groups = [*groups, LanePuts(one.queue, heads=[one.head] * len(one.keys), bodies=one.bodies)]
        number += len(one.keys)
    plan.rows, plan.next_number = number - first, number
    if plan.rows >= MAX_ROWS:
        raise StoreError(TOO_LARGE.format(limit=MAX_ROWS - 1, what="messages", found=plan.rows))
    if groups:
        plan.columns = _columns_of(groups)


def _plan_replaced(under_way: UnderWay, plan: Plan, replaced: list[Replaced], puts: list[LanePuts]) -> None:
    """Plan replaced records; one by one if messages leave in a frame under way."""
    leaving = under_way.leaving
    if not leaving:
        plan.replaced = replaced
        return
    for one in replaced:
        puts.append(one.puts)
        for run in one.takes:
            if run.first in leaving:
                plan.missing.append(run.lane[2] << NUMBER_BITS | run.first)
            else:
                plan.links.takes.append(run)


def _staying(under_way: UnderWay, plan: Plan, tokens: Sequence[int]) -> Sequence[int]:
    """The tokens without those that leave in a frame under way."""
    leaving = under_way.leaving
    if not leaving or leaving.isdisjoint([token & NUMBER_MASK for token in tokens]):
        return tokens
    plan.missing += [token for token in tokens if token & NUMBER_MASK in leaving]
    return [token for token in tokens if token & NUMBER_MASK not in leaving]


def _plan_takes(
    reader: Reader, under_way: UnderWay, plan: Plan, takes: Iterable[tuple[str, bytes, Sequence[int]]]
) -> None:
    index, all_stay = reader.index, not under_way.leaving
    for queue, key, tokens in takes:
        count = len(tokens)
        if all_stay and (count == 1 or (count and isinstance(tokens, range) and tokens.step == 1)):
            found = index.run_of(queue, key, tokens[0], count)
            if found is not None:
                (plan.volatile_takes if found[1] else plan.links.takes).append(found[0])
                continue
        lookup = index.runs_of(queue, key, consecutive(_staying(under_way, plan, tokens)))
        for run, volatile in lookup.runs:
            (plan.volatile_takes if volatile else plan.links.takes).append(run)
        plan.missing += lookup.missing


def _plan_moves(reader: Reader, under_way: UnderWay, plan: Plan, moves: list[LaneMoves]) -> None:
    looked_up: list[tuple[LaneMoves, list[tuple[TokenRun, bool]]]] = []
    for move in moves:
        check_lane(move.to_queue, move.to_key, move.to_priority or 0)
        lookup = reader.index.runs_of(move.queue, move.key, neighbours(_staying(under_way, plan, move.tokens)))
        plan.missing += lookup.missing
        looked_up.append((move, lookup.runs))
    placed: dict[TokenRun, int] = {}
    for volatile_pass in (False, True):
        for move, runs in looked_up:
            for run, volatile in runs:
                if volatile is volatile_pass:
                    placed[run] = plan.next_number
                    target = plan.volatile_moves if volatile else plan.links.moves
                    target.append(_move_run(move, run, plan.next_number))
                    plan.next_number += run.length
    for move, runs in looked_up:
        if len(runs) == 1:
            first = placed[runs[0][0]] | _rank(move, runs[0][0]) << NUMBER_BITS
            move.new_tokens = range(first, first + runs[0][0].length)
            continue
        tokens: list[int] = []
        for run, _volatile in runs:
            first = placed[run] | _rank(move, run) << NUMBER_BITS
            tokens.extend(range(first, first + run.length))
        move.new_tokens = tokens


def _rank(move: LaneMoves, run: TokenRun) -> int:
    return run.lane[2] if move.to_priority is None else PRIORITIES - 1 - move.to_priority


def _move_run(move: LaneMoves, run: TokenRun, to_first: int) -> MoveRun:
    return MoveRun(run.lane, (move.to_queue, move.to_key, _rank(move, run)), run.first, to_first, run.length)


def _plan_volatile(plan: Plan, groups: list[LanePuts], time: int) -> None:
    plan.first_volatile = plan.next_number
    if not groups:
        return
    rows = _name_groups(groups, plan.next_number, plan.volatile_groups) - plan.next_number
    if rows >= MAX_ROWS:
        raise StoreError(TOO_LARGE.format(limit=MAX_ROWS - 1, what="messages", found=rows))
    columns = _columns_of(groups)
    size = sum(map(len, columns.bodies)) + sum(map(len, set(columns.heads))) + 64 * rows
    plan.volatile_rows = Rows(
        time, columns.heads, columns.bodies, columns.msg_ids, columns.correl_ids, columns.expiries, columns.put_times,
        size,
    )  # fmt: skip
    plan.next_number += rows


def _plan_backouts(reader: Reader, plan: Plan, unit: StoreUnit) -> None:
    for queue, key, token, count in unit.backouts:
        lookup = reader.index.runs_of(queue, key, [(token, 1)])
        plan.missing += lookup.missing
        plan.links.backouts.extend((run.lane, run.first, count) for run, _volatile in lookup.runs)


def _rewrite(reader: Reader, under_way: UnderWay, move: LaneMoves, plan: Plan) -> tuple[list[LanePuts], LaneMoves]:
    """Turn a move with new heads into puts and a take: the bodies are read and written again in this frame. Returns the
    puts, and the move."""
    messages = reader.read_all(move.queue, move.key, _staying(under_way, plan, move.tokens))
    heads = dict(zip(move.tokens, move.heads or (), strict=True))
    volatile = {
        token
        for run, is_volatile in reader.index.runs_of(move.queue, move.key, neighbours([m.token for m in messages])).runs
        if is_volatile
        for token in range(run.first, run.first + run.length)
    }
    groups: list[LanePuts] = []
    for message in messages:
        priority = priority_of(message.token) if move.to_priority is None else move.to_priority
        persistent = message.token & NUMBER_MASK not in volatile
        if not groups or (groups[-1].priority, groups[-1].persistent) != (priority, persistent):
            groups.append(LanePuts(move.to_queue, move.to_key, priority, persistent, expiries=[], put_times=[]))
        group = groups[-1]
        group.heads.append(heads[message.token])
        group.bodies.append(message.body)
        group.expiries.append(message.expiry)  # type: ignore[union-attr]
        group.put_times.append(message.put_time)  # type: ignore[union-attr]
    return groups, move

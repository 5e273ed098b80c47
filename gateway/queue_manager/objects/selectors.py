"""Message selectors: the subset of SQL92 conditions over message properties and descriptor fields. Pure.

A comparison with an absent property is unknown, not false; NOT unknown is unknown; only true selects.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from gateway.errors import HeaderError, MQError
from gateway.mq import constants as mq
from gateway.mq import jms_names, mqmd, properties, property_names
from gateway.ports.mqi import PropertyValue

Truth = bool | None
Lookup = Callable[[str], PropertyValue]
Evaluate = Callable[[Lookup], PropertyValue]

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<whole>0[xX][0-9A-Fa-f]+[lL]?|\d+(?![\d.eEdDfF])[lL]?)
  | (?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)[dDfF]?
  | (?P<text>'(?:[^']|'')*')
  | (?P<quoted>"(?:[^"]|"")*")
  | (?P<word>(?:[^\W\d]|\$)[\w.$]*)
  | (?P<operator><>|<=|>=|[=<>()+\-*/,])
    )""",
    re.VERBOSE,
)
_KEYWORDS = frozenset({"AND", "OR", "NOT", "BETWEEN", "LIKE", "IN", "IS", "NULL", "ESCAPE", "TRUE", "FALSE"})
_BYTES = re.compile(r"0[xX][0-9A-Fa-f]*")
"""Bytes are written in double quotes: "0x414d51"."""
MAX_LENGTH = 10_240
MAX_DEPTH = 64
MAX_OPERATIONS, MAX_DIGITS = 200, 1000
MAX_LIKE_COST = 10_000_000
"""The limit of a comparison with LIKE: characters of the value times characters of a part of the pattern that has
wildcards for single characters. Beyond it nothing is compared, and nothing is selected."""


class Selector:
    """A compiled selector."""

    __slots__ = ("_evaluate", "text")

    def __init__(self, text: str, evaluate: Evaluate) -> None:
        self.text = text
        self._evaluate = evaluate

    def accepts(self, md: bytes, data: bytes) -> bool:
        """Whether the message is selected. Its properties are read only if the selector depends on them."""
        known: dict[str, PropertyValue] | None = None

        def said() -> dict[str, PropertyValue]:
            nonlocal known
            if known is None:
                known = _properties_of(md, data)
            return known

        def lookup(name: str) -> PropertyValue:
            if name in jms_names.NAMES:
                return jms_names.value(name, md, said() if name in jms_names.IN_FOLDERS else {})
            full = property_names.SYNONYMS.get(name) or name.removeprefix("usr.")
            if full.startswith(property_names.DESCRIPTOR):
                return _of_descriptor(md, full)
            return said().get(full)

        return self._evaluate(lookup) is True


def _properties_of(md: bytes, data: bytes) -> dict[str, PropertyValue]:
    try:
        return {one.name: one.value for one in properties.properties_of(md, data)}
    except (MQError, HeaderError):
        return {}


def _of_descriptor(md: bytes, name: str) -> PropertyValue:
    try:
        return properties.descriptor_property(md, name).value
    except MQError:
        return None


@lru_cache(maxsize=1024)
def compile_selector(text: str) -> Selector:
    """Compile a selector. Raises 2459 if it is not a condition."""
    if len(text) > MAX_LENGTH:
        raise MQError(mq.MQRC_SELECTION_STRING_ERROR, f"a selector has at most {MAX_LENGTH} characters")
    parser = _Parser(text)
    evaluate = parser.condition()
    parser.end()
    return Selector(text, evaluate)


class _Parser:
    """A recursive-descent parser; each level is one line of the grammar."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(text)
        self._at = 0
        self._depth = 0
        self._operations = 0

    def _nest(self) -> None:
        """Count one more operation that is evaluated within another."""
        self._operations += 1
        if self._operations > MAX_OPERATIONS:
            raise self._error()

    def _split(self, text: str) -> list[tuple[str, str]]:
        tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._wrong(at)
            kind = match.lastgroup or ""
            value = match.group(kind)
            if kind == "word" and value.upper() in _KEYWORDS:
                kind, value = "keyword", value.upper()
            tokens.append((kind, value))
            at = match.end()
        return tokens

    def _wrong(self, at: int) -> MQError:
        text = f"selector {self._text!r} cannot be parsed at {self._text[at : at + 20]!r}"
        return MQError(mq.MQRC_SELECTOR_SYNTAX_ERROR, text)

    def _error(self) -> MQError:
        found = self._tokens[self._at][1] if self._at < len(self._tokens) else "its end"
        return MQError(mq.MQRC_SELECTOR_SYNTAX_ERROR, f"selector {self._text!r} cannot be parsed at {found!r}")

    def _next_is(self, kind: str, value: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at] == (kind, value):
            self._at += 1
            return True
        return False

    def _expect(self, kind: str, value: str) -> None:
        if not self._next_is(kind, value):
            raise self._error()

    def end(self) -> None:
        """Check that nothing follows."""
        if self._at != len(self._tokens):
            raise self._error()

    def condition(self) -> Evaluate:
        """term OR term ..."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error()
        parts = [self._conjunction()]
        while self._next_is("keyword", "OR"):
            parts.append(self._conjunction())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else _any_of(parts)

    def _conjunction(self) -> Evaluate:
        parts = [self._negation()]
        while self._next_is("keyword", "AND"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else _all_of(parts)

    def _negation(self) -> Evaluate:
        if self._next_is("keyword", "NOT"):
            self._nest()
            inner = self._negation()
            return lambda lookup: _not(_truth(inner(lookup)))
        return self._predicate()

    def _predicate(self) -> Evaluate:
        left = self._sum()
        for operator, compare in _COMPARISONS.items():
            if self._next_is("operator", operator):
                right = self._sum()
                left, right = self._delivery_modes(left, right)
                return lambda lookup, c=compare: _compare(c, left(lookup), right(lookup))  # type: ignore[misc]
        if self._next_is("keyword", "IS"):
            absent = not self._next_is("keyword", "NOT")
            self._expect("keyword", "NULL")
            return lambda lookup: (left(lookup) is None) is absent
        negated = self._next_is("keyword", "NOT")
        found = self._ranged(left)
        if found is None:
            if negated:
                raise self._error()
            return left
        chosen = found
        return (lambda lookup: _not(_truth(chosen(lookup)))) if negated else chosen

    @staticmethod
    def _delivery_modes(left: Evaluate, right: Evaluate) -> tuple[Evaluate, Evaluate]:
        """Returns both sides of a comparison, in which JMSDeliveryMode has words for its numbers."""
        if left is _delivery_mode:
            return left, lambda lookup: _mode(right(lookup))
        if right is _delivery_mode:
            return lambda lookup: _mode(left(lookup)), right
        return left, right

    def _ranged(self, left: Evaluate) -> Evaluate | None:
        if self._next_is("keyword", "BETWEEN"):
            low = self._sum()
            self._expect("keyword", "AND")
            high = self._sum()
            return lambda lookup: _between(left(lookup), low(lookup), high(lookup))
        if self._next_is("keyword", "IN"):
            values = self._list()
            if left is _delivery_mode:
                values = frozenset(map(_mode, values))
            return lambda lookup: None if left(lookup) is None else left(lookup) in values
        if self._next_is("keyword", "LIKE"):
            pattern = self._pattern()
            return lambda lookup: _matches(pattern, left(lookup))
        return None

    def _list(self) -> frozenset[PropertyValue]:
        self._expect("operator", "(")
        values = {self._text_literal()}
        while self._next_is("operator", ","):
            values.add(self._text_literal())
        self._expect("operator", ")")
        return frozenset(values)

    def _text_literal(self) -> str:
        if self._at < len(self._tokens) and self._tokens[self._at][0] == "text":
            self._at += 1
            return self._tokens[self._at - 1][1][1:-1].replace("''", "'")
        raise self._error()

    def _pattern(self) -> Like:
        text = self._text_literal()
        if not self._next_is("keyword", "ESCAPE"):
            return Like(text, "")
        escape = self._text_literal()
        if len(escape) != 1:
            raise self._error()
        return Like(text, escape)

    def _sum(self) -> Evaluate:
        left = self._product()
        while True:
            if self._next_is("operator", "+"):
                self._nest()
                left = _arithmetic(lambda a, b: a + b, left, self._product())
            elif self._next_is("operator", "-"):
                self._nest()
                left = _arithmetic(lambda a, b: a - b, left, self._product())
            else:
                return left

    def _product(self) -> Evaluate:
        left = self._unary()
        while True:
            if self._next_is("operator", "*"):
                self._nest()
                left = _arithmetic(lambda a, b: a * b, left, self._unary())
            elif self._next_is("operator", "/"):
                self._nest()
                left = _arithmetic(lambda a, b: a / b, left, self._unary())
            else:
                return left

    def _unary(self) -> Evaluate:
        if self._next_is("operator", "-"):
            self._nest()
            return _arithmetic(lambda a, b: a - b, lambda _: 0, self._unary())
        if self._next_is("operator", "+"):
            self._nest()
            return self._unary()
        return self._operand()

    def _operand(self) -> Evaluate:
        if self._next_is("operator", "("):
            inner = self.condition()
            self._expect("operator", ")")
            return inner
        if self._at >= len(self._tokens):
            raise self._error()
        kind, value = self._tokens[self._at]
        self._at += 1
        if kind in {"whole", "number"}:
            number = self._whole_number(value) if kind == "whole" else float(value)
            return lambda _: number
        if kind == "text":
            content = value[1:-1].replace("''", "'")
            return lambda _: content
        if kind == "keyword" and value in {"TRUE", "FALSE"}:
            truth = value == "TRUE"
            return lambda _: truth
        if kind in {"word", "quoted"}:
            name = value[1:-1].replace('""', '"') if kind == "quoted" else value
            if name == "JMSDeliveryMode":
                return _delivery_mode
            if kind == "quoted" and _BYTES.fullmatch(name):
                raw = self._bytes(name)
                return lambda _: raw
            self._check(name)
            return lambda lookup: lookup(name)
        self._at -= 1
        raise self._error()

    def _whole_number(self, text: str) -> float:
        """Returns the value of a whole number: 0x1F is hexadecimal, 017 octal; an L at the end means nothing (MQ,
        message selector syntax)."""
        digits = text.rstrip("lL")
        if len(digits) > MAX_DIGITS:
            return float(digits)
        octal = digits[0] == "0" and digits.isdigit()
        try:
            return int(digits, 8 if octal else 0)
        except ValueError:
            self._at -= 1
            raise self._error() from None

    def _bytes(self, text: str) -> bytes:
        """Check that a text is one or more pairs of hexadecimal digits, and return it."""
        if len(text) % 2 or len(text) == len("0x"):
            self._at -= 1
            raise self._error()
        return bytes.fromhex(text[2:])

    def _check(self, name: str) -> None:
        """Refuse a field that the descriptor does not have: it would never select anything."""
        if name.startswith(property_names.DESCRIPTOR):
            try:
                properties.descriptor_property(mqmd.build(), name)
            except MQError:
                self._at -= 1
                raise self._error() from None


def _delivery_mode(lookup: Lookup) -> PropertyValue:
    return lookup("JMSDeliveryMode")


def _mode(value: PropertyValue) -> PropertyValue:
    """Returns the numbers for which `PERSISTENT` and `NON_PERSISTENT` stand, and any other value as it is."""
    return jms_names.DELIVERY_MODES.get(value, value) if isinstance(value, str) else value


def _truth(value: PropertyValue) -> Truth:
    return value if isinstance(value, bool) else None


def _not(value: Truth) -> Truth:
    return None if value is None else not value


def _decided(parts: list[Evaluate], lookup: Lookup, *, by: bool) -> Truth:
    """Returns `by` if a part has that value; the parts after the first such part are not evaluated. Otherwise it
    returns the opposite, or unknown if a part is unknown."""
    found: Truth = not by
    for part in parts:
        truth = _truth(part(lookup))
        if truth is by:
            return by
        if truth is None:
            found = None
    return found


def _any_of(parts: list[Evaluate]) -> Evaluate:
    def evaluate(lookup: Lookup) -> Truth:
        return _decided(parts, lookup, by=True)

    return evaluate


def _all_of(parts: list[Evaluate]) -> Evaluate:
    def evaluate(lookup: Lookup) -> Truth:
        return _decided(parts, lookup, by=False)

    return evaluate


def _numeric(value: PropertyValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _compare(
    compare: Callable[[PropertyValue, PropertyValue], bool], left: PropertyValue, right: PropertyValue
) -> Truth:
    if left is None or right is None:
        return None
    both_numbers = _numeric(left) and _numeric(right)
    if not both_numbers and type(left) is not type(right):
        return False
    if not both_numbers and compare not in {_EQUAL, _UNEQUAL}:
        return False  # texts and truth values have no order
    return compare(left, right)


def _between(value: PropertyValue, low: PropertyValue, high: PropertyValue) -> Truth:
    values = [_compare(_COMPARISONS[">="], value, low), _compare(_COMPARISONS["<="], value, high)]
    return False if False in values else None if None in values else True


def _matches(pattern: Like, value: PropertyValue) -> Truth:
    return None if value is None else isinstance(value, str) and pattern.matches(value)


class Like:
    """A pattern of LIKE. For a part between percent signs the first place where it matches is as good as any other, so
    no place is tried twice, and the time grows with the length of the value."""

    __slots__ = ("_longest", "_parts")

    def __init__(self, text: str, escape: str) -> None:
        parts: list[list[str]] = [[]]
        """The characters of each part between percent signs; empty for any one character."""
        characters = iter(text)
        for character in characters:
            if escape and character == escape:
                parts[-1] += [*next(characters, "")]
            elif character == "%":
                parts.append([])
            else:
                parts[-1].append("" if character == "_" else character)
        self._parts = [_Part(part) for part in parts]
        self._longest = max((part.length for part in self._parts if part.pattern is not None), default=0)

    def matches(self, value: str) -> bool:
        """Whether the whole value matches."""
        parts, at = self._parts, 0
        if self._longest * len(value) > MAX_LIKE_COST:
            return False
        if not parts[0].fits(value, 0):
            return False
        at = parts[0].length
        if len(parts) == 1:
            return at == len(value)
        for part in parts[1:-1]:
            at = part.find(value, at)
            if at < 0:
                return False
            at += part.length
        end = len(value) - parts[-1].length
        return at <= end and parts[-1].fits(value, end)


class _Part:
    """The part of a pattern between two percent signs."""

    __slots__ = ("length", "pattern", "text")

    def __init__(self, characters: list[str]) -> None:
        self.length = len(characters)
        self.text = "".join(characters)
        self.pattern: re.Pattern[str] | None = None
        if "" in characters:
            self.pattern = re.compile("".join(re.escape(one) or "." for one in characters), re.DOTALL)

    def fits(self, value: str, at: int) -> bool:
        if self.pattern is None:
            return value.startswith(self.text, at)
        return self.pattern.match(value, at) is not None

    def find(self, value: str, at: int) -> int:
        if self.pattern is None:
            return value.find(self.text, at)
        found = self.pattern.search(value, at)
        return -1 if found is None else found.start()


def _arithmetic(operation: Callable[[float, float], float], left: Evaluate, right: Evaluate) -> Evaluate:
    def evaluate(lookup: Lookup) -> PropertyValue:
        first, second = left(lookup), right(lookup)
        if isinstance(first, int | float) and isinstance(second, int | float):
            try:
                return operation(first, second)
            except (ZeroDivisionError, OverflowError):
                return None
        return None

    return evaluate


def _EQUAL(left: PropertyValue, right: PropertyValue) -> bool:  # noqa: N802  a constant of the table below
    return left == right


def _UNEQUAL(left: PropertyValue, right: PropertyValue) -> bool:  # noqa: N802
    return left != right


_COMPARISONS: dict[str, Callable[[PropertyValue, PropertyValue], bool]] = {
    "<>": _UNEQUAL,
    "<=": lambda left, right: left <= right,  # type: ignore[operator]
    ">=": lambda left, right: left >= right,  # type: ignore[operator]
    "=": _EQUAL,
    "<": lambda left, right: left < right,  # type: ignore[operator]
    ">": lambda left, right: left > right,  # type: ignore[operator]
}

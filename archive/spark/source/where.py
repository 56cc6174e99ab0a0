"""The option `where`: a filter in SQL syntax that is part of the read, not of a query on it.

Spark 4.3 plans a scan whose filters were pushed down once for all scans of the same relation: the next query on the
same DataFrame, or another branch of the same query, gets the rows of the filter before (fixed upstream after 4.3 was
cut). So filters of queries are never taken over; `where` is the way to leave parts of a log unread, and belongs to the
DataFrame. The grammar, where NOT binds more than AND, and AND more than OR:

    where      = both { OR both }
    both       = negation { AND negation }
    negation   = NOT negation | ( where ) | condition
    condition  = column ( = | == | <=> | <> | != | < | <= | > | >= ) literal
               | column [NOT] IN ( literal { , literal } )
               | column [NOT] BETWEEN literal AND literal
               | column IS [NOT] NULL
    literal    = integer | 'text'       a text is a timestamp, in UTC unless it says otherwise
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from ....service_api.errors import ConfigurationError
from ....service_api.quantities import microseconds_of
from ...reading.frame_columns import FRAME_COLUMNS, GROUP_COLUMN
from .filters import UNHANDLED_COLUMNS, AllOf, AnyOf, Condition, RowFilter

_COLUMNS: Final = tuple(name for name in (*FRAME_COLUMNS, GROUP_COLUMN) if name not in UNHANDLED_COLUMNS)
_TOKEN: Final = re.compile(r"\s*(?:(<=>|<=|>=|<>|!=|==|[=<>(),])|(-?\d+)\b|'([^']*)'|([A-Za-z_]\w*)|(\S))", re.ASCII)
_COMPARISONS: Final = {
    **dict.fromkeys(("=", "==", "<=>", "<>", "!="), "equal"),
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}


_DEPTH_LIMIT: Final = 64
"""How deep parentheses and NOT may be nested: what a person writes is far below."""


def parse_where(text: str) -> RowFilter:
    """Read a filter such as `timestamp >= '2026-11-21 04:01:25' AND template_id IN (1, 20)`.

    Raises:
        ConfigurationError: it is none; the message says at which word.
    """
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [(match.lastindex or 0, match[match.lastindex or 0]) for match in _TOKEN.finditer(text)]
        self._next = 0
        self._depth = 0

    def parse(self) -> RowFilter:
        found = self._either()
        if self._next < len(self._tokens):
            raise self._wrong("AND, OR or the end")
        return found

    def _either(self) -> RowFilter:
        parts = [self._both()]
        while self._take("OR"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _both(self) -> RowFilter:
        parts = [self._negation()]
        while self._take("AND"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def _negation(self) -> RowFilter:
        is_negated = self._take("NOT")
        if not is_negated and not self._take("("):
            return self._condition()
        if self._depth >= _DEPTH_LIMIT:
            raise self._wrong(f"at most {_DEPTH_LIMIT} parentheses and NOTs within each other")
        self._depth += 1
        if is_negated:
            found = self._negation().negate()
        else:
            found = self._either()
            self._expect(")")
        self._depth -= 1
        return found

    def _condition(self) -> RowFilter:
        column = self._column()
        is_negated = self._take("NOT")
        if self._take("IN"):
            return Condition(column, "in", self._list(column), is_negated)
        if self._take("BETWEEN"):
            low = Condition(column, "greater_equal", (self._literal(column),))
            self._expect("AND")
            between = AllOf((low, Condition(column, "less_equal", (self._literal(column),))))
            return between.negate() if is_negated else between
        if is_negated:
            raise self._wrong("IN or BETWEEN")
        if self._take("IS"):
            is_negated = self._take("NOT")
            self._expect("NULL")
            return Condition(column, "is_valid" if is_negated else "is_null")
        _, word = self._peek()
        comparison = _COMPARISONS.get(word)
        if comparison is None:
            raise self._wrong("a comparison, IN, BETWEEN or IS")
        self._next += 1
        values = (self._literal(column),)
        return Condition(column, comparison, values, word in ("<>", "!="), word == "<=>")

    def _column(self) -> str:
        _, word = self._peek()
        name = word.lower()
        if name not in _COLUMNS:
            raise self._wrong(f"a column out of {', '.join(_COLUMNS)}")
        self._next += 1
        return name

    def _list(self, column: str) -> tuple[int, ...]:
        self._expect("(")
        values = [self._literal(column)]
        while self._take(","):
            values.append(self._literal(column))
        self._expect(")")
        return tuple(values)

    def _literal(self, column: str) -> int:
        if column == "timestamp":
            self._take("TIMESTAMP")
            kind, word = self._peek()
            try:
                when = datetime.fromisoformat(word)
            except ValueError:
                when = None
            if kind != 3 or when is None:
                raise self._wrong("a timestamp such as '2026-11-21 04:01:25'")
            self._next += 1
            return microseconds_of(when)
        kind, word = self._peek()
        if kind != 2 or not -(1 << 63) <= int(word) < 1 << 63:
            raise self._wrong("an integer")
        self._next += 1
        return int(word)

    def _peek(self) -> tuple[int, str]:
        return self._tokens[self._next] if self._next < len(self._tokens) else (0, "")

    def _take(self, word: str) -> bool:
        kind, found = self._peek()
        is_it = kind in (1, 4) and found.upper() == word
        self._next += is_it
        return is_it

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise self._wrong(word)

    def _wrong(self, expected: str) -> ConfigurationError:
        _, word = self._peek()
        return ConfigurationError(f"option where: {word or 'the end'!r} in {self._text!r} expected {expected}")

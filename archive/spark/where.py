"""The option `where`: a filter in SQL syntax that is part of the read, not of a query on it.

Spark 4.3 plans a scan whose filters were pushed down once for all scans of the same relation: the next query on the
same DataFrame, or another branch of the same query, gets the rows of the filter before (fixed upstream after 4.3 was
cut). So filters are not taken over from queries unless somebody asks for it; and this is the way to leave segments
unopened that is always right. The grammar is a conjunction of comparisons of a column with literals:

    where      = condition { AND condition }
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

from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.quantities import microseconds_of

from ..reading.frame_columns import FRAME_COLUMNS
from .source.filters import UNHANDLED_COLUMNS, Condition, Conditions

_TOKEN: Final = re.compile(r"\s*(?:(<=>|<=|>=|<>|!=|==|[=<>(),])|(-?\d+)\b|'([^']*)'|([A-Za-z_]\w*)|(\S))", re.ASCII)
_COMPARISONS: Final = {
    **dict.fromkeys(("=", "==", "<=>"), "equal"),
    **dict.fromkeys(("<>", "!="), "not equal"),
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}


def parse_where(text: str) -> Conditions:
    """Read a filter such as `timestamp >= '2026-11-21 04:01:25' AND template_id IN (1, 20)`.

    Raises:
        ConfigurationError: it is none; the message says at which word.
    """
    return Conditions(tuple(_Parser(text).conditions()))


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [(match.lastindex or 0, match[match.lastindex or 0]) for match in _TOKEN.finditer(text)]
        self._next = 0

    def conditions(self) -> list[Condition]:
        found = self._condition()
        while self._next < len(self._tokens):
            self._expect("AND")
            found += self._condition()
        return found

    def _condition(self) -> list[Condition]:
        column = self._column()
        is_negated = self._take("NOT")
        if self._take("IN"):
            return [Condition(column, "in", self._list(column), is_negated)]
        if self._take("BETWEEN"):
            low = self._literal(column)
            self._expect("AND")
            high = self._literal(column)
            if not is_negated:
                return [Condition(column, "greater_equal", (low,)), Condition(column, "less_equal", (high,))]
            return [Condition(column, "outside", (low, high))]
        if is_negated:
            raise self._wrong("IN or BETWEEN")
        if self._take("IS"):
            is_negated = self._take("NOT")
            self._expect("NULL")
            return [Condition(column, "is_valid" if is_negated else "is_null")]
        _, word = self._peek()
        comparison = _COMPARISONS.get(word)
        if comparison is None:
            raise self._wrong("a comparison, IN, BETWEEN or IS")
        self._next += 1
        values = (self._literal(column),)
        if comparison == "not equal":
            return [Condition(column, "equal", values, is_negated=True)]
        return [Condition(column, comparison, values)]

    def _column(self) -> str:
        _, word = self._peek()
        name = word.lower()
        if name not in FRAME_COLUMNS or name in UNHANDLED_COLUMNS:
            raise self._wrong(f"a column out of {', '.join(c for c in FRAME_COLUMNS if c not in UNHANDLED_COLUMNS)}")
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

"""Searches for one order of operations that explains what every client saw.

Two answers that know nothing of each other:

`check_log_order` asks the witness. Every acknowledged operation came with the log position at which it was applied, so
the order is claimed already, and only has to be held against real time, against what the model answers in that order,
and against the promise that a client's messages keep their order. It takes one pass.

`check_linearizability` believes no position and searches: Wing and Gong's algorithm with Lowe's memoisation. Calls and
returns stand in a linked list by time. The search takes a call out of the list (it is linearized now) if the model
answers as the client saw, and begins again at the front; at a return whose call is still in the list it has come too
far, and takes back its last step. A pair of (operations linearized, state) that was seen before is not tried again.
Objects are independent, so each key is searched alone: the cost is linear in the length of a history and exponential in
how many operations of one key overlap. Ten are fine, twenty are not; beyond the step limit the answer is UNDECIDED,
which is neither yes nor no.

An operation that was not answered may have had any outcome. Unless its effect was seen, it has no return in the list
and may be left there: it never happened, or later than everything else.

Source: Wing & Gong 1993; Lowe 2017, "Testing for linearizability"; Horn & Kroening 2015 (P-compositionality).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import pairwise
from typing import Final, Generic, Protocol, TypeVar

from .history import ClientOperation, by_key

DEFAULT_STEP_LIMIT: Final = 500_000
"""Calls of the model for one key: a second or two, and at most some 150 MB of remembered pairs."""

_VIOLATION_LIMIT: Final = 20
_EXCERPT_LIMIT: Final = 16

_NOTHING: Final = ClientOperation(-1, None, None, "", None, invoked_ns=-1)
"""Stands at the head of a list."""

StateT = TypeVar("StateT", bound=Hashable)


class SequentialModel(Protocol[StateT]):
    """What one object does when operations come one at a time."""

    def initial_state(self) -> StateT:
        """Return the state of an object that nobody has touched."""

    def apply(self, state: StateT, operation: ClientOperation) -> tuple[StateT, Hashable]:
        """Return the state after an operation, and its outcome; defined for every operation in every state."""


class SearchVerdict(Enum):
    """The end of a search."""

    LINEARIZABLE = auto()
    UNDECIDED = auto()
    NOT_LINEARIZABLE = auto()


@dataclass(slots=True)
class KeyResult:
    """What the search found for one key."""

    key: Hashable
    verdict: SearchVerdict
    step_count: int
    culprit: ClientOperation | None = None
    """The operation whose return nobody can explain, while everything that returned before it can be."""
    excerpt: str = ""
    """The culprit among those around it, to be read by a human."""


@dataclass(slots=True)
class LinearizabilityReport:
    """The results of all keys."""

    results: list[KeyResult] = field(default_factory=list)

    @property
    def verdict(self) -> SearchVerdict:
        """The worst of all keys."""
        verdicts = [result.verdict for result in self.results]
        for verdict in (SearchVerdict.NOT_LINEARIZABLE, SearchVerdict.UNDECIDED):
            if verdict in verdicts:
                return verdict
        return SearchVerdict.LINEARIZABLE

    @property
    def undecided_count(self) -> int:
        """Keys whose search was given up."""
        return sum(result.verdict is SearchVerdict.UNDECIDED for result in self.results)

    @property
    def violations(self) -> list[str]:
        """An excerpt for each key whose history cannot be."""
        return [result.excerpt for result in self.results if result.verdict is SearchVerdict.NOT_LINEARIZABLE]


def check_linearizability(
    operations: Iterable[ClientOperation], model: SequentialModel[StateT], *, step_limit: int = DEFAULT_STEP_LIMIT
) -> LinearizabilityReport:
    """Search an order for each key; `step_limit` bounds each of the searches."""
    partition = by_key(operations)
    return LinearizabilityReport([_Search(key, some, model).run(step_limit) for key, some in partition.items()])


def check_log_order(operations: Iterable[ClientOperation], model: SequentialModel[StateT]) -> list[str]:
    """Hold what clients saw against the order of the log; give what is wrong, at most 20 of it.

    Operations without a position are left out: nobody has seen that they were applied.
    """
    placed = sorted(
        (operation for operation in operations if operation.log_position is not None),
        # What reads a state comes after what made it; of two that read the same one, either may have come first.
        key=lambda some: (some.log_position or 0, some.is_query, some.invoked_ns if some.is_query else 0),
    )
    violations = [*_shared_positions(placed), *_against_real_time(placed), *_against_client_order(placed)]
    states: dict[Hashable, StateT] = {}
    for operation in placed:
        state = states[operation.key] if operation.key in states else model.initial_state()
        states[operation.key], expected = model.apply(state, operation)
        if operation.is_acknowledged and expected != operation.outcome:
            violations.append(f"key={operation.key} {operation}: in log order the answer is {expected}")
    return violations[:_VIOLATION_LIMIT]


def _shared_positions(placed: Sequence[ClientOperation]) -> Iterable[str]:
    for before, after in pairwise(some for some in placed if not some.is_query):
        if before.log_position == after.log_position:
            yield f"two operations at one log position: key={before.key} {before}; key={after.key} {after}"


def _against_real_time(placed: Sequence[ClientOperation]) -> Iterable[str]:
    """Find operations that had returned before another one, which stands before them, was invoked."""
    latest: ClientOperation | None = None
    for operation in placed:
        if latest is not None and operation.returned_ns is not None and operation.returned_ns < latest.invoked_ns:
            yield (
                f"log order against real time: key={operation.key} {operation} had returned before the invocation"
                f" of key={latest.key} {latest}"
            )
        if latest is None or operation.invoked_ns > latest.invoked_ns:
            latest = operation


def _against_client_order(placed: Sequence[ClientOperation]) -> Iterable[str]:
    last: dict[int, ClientOperation] = {}
    for operation in placed:
        if operation.client_id is None:
            continue
        before = last.setdefault(operation.client_id, operation)
        if before.operation_id > operation.operation_id:
            yield f"a client's operations changed places: key={before.key} {before}; key={operation.key} {operation}"
        last[operation.client_id] = operation


class _Entry:
    """A call or a return in the list of events that are not explained yet."""

    __slots__ = ("bit", "following", "is_call", "operation", "preceding", "return_entry")

    def __init__(self, operation: ClientOperation, *, is_call: bool) -> None:
        self.operation = operation
        self.is_call = is_call
        self.bit = 0
        """The number of its operation among those that returned, or among those that did not."""
        self.return_entry: _Entry | None = None
        self.preceding: _Entry | None = None
        self.following: _Entry | None = None


class _Search(Generic[StateT]):
    """The search for one key."""

    def __init__(self, key: Hashable, operations: Sequence[ClientOperation], model: SequentialModel[StateT]) -> None:
        self._key = key
        self._operations = operations
        self._model = model
        self._head, self._returned_count = _linked(operations)
        self._blocked_ns = -1
        self._culprit: ClientOperation | None = None
        self._path: list[ClientOperation] = []
        self._state: StateT | None = None

    def run(self, step_limit: int) -> KeyResult:
        """Search until every returned operation is explained, none of the orders is left, or the limit is reached."""
        verdict, step_count = self._search(step_limit)
        if verdict is not SearchVerdict.NOT_LINEARIZABLE:
            return KeyResult(self._key, verdict, step_count)
        return KeyResult(self._key, verdict, step_count, self._culprit, self._excerpt())

    def _search(self, step_limit: int) -> tuple[SearchVerdict, int]:
        apply = self._model.apply
        state = self._model.initial_state()
        base = mask = endless_mask = 0
        seen: set[tuple[int, int, int, StateT]] = set()
        taken: list[tuple[_Entry, StateT, int, int, int]] = []
        left, steps = self._returned_count, 0
        entry = self._head.following
        while left:
            # A return that was not taken out stands after every call while some are left.
            assert entry is not None
            if not entry.is_call:
                self._note_blocked(entry.operation, taken, state)
                if not taken:
                    return SearchVerdict.NOT_LINEARIZABLE, steps
                entry, state, base, mask, endless_mask = taken.pop()
                _put_back(entry)
                left += entry.return_entry is not None
                entry = entry.following
                continue
            steps += 1
            if steps > step_limit:
                return SearchVerdict.UNDECIDED, steps - 1
            after, expected = apply(state, entry.operation)
            is_endless = entry.return_entry is None
            if not entry.operation.is_acknowledged or expected == entry.operation.outcome:
                if is_endless:
                    pair = (base, mask, endless_mask | 1 << entry.bit, after)
                else:
                    with_it = mask | 1 << (entry.bit - base)
                    full = (with_it ^ (with_it + 1)).bit_length() - 1
                    pair = (base + full, with_it >> full, endless_mask, after)
                if pair not in seen:
                    seen.add(pair)
                    taken.append((entry, state, base, mask, endless_mask))
                    base, mask, endless_mask, state = pair
                    _take_out(entry)
                    left -= not is_endless
                    entry = self._head.following
                    continue
            entry = entry.following
        return SearchVerdict.LINEARIZABLE, steps

    def _note_blocked(
        self, operation: ClientOperation, taken: Sequence[tuple[_Entry, StateT, int, int, int]], state: StateT
    ) -> None:
        """Remember the latest return that was reached: everything that returned before it can be explained."""
        assert operation.returned_ns is not None
        if operation.returned_ns > self._blocked_ns:
            self._blocked_ns = operation.returned_ns
            self._culprit = operation
            self._path = [entry.operation for entry, *_ in taken[-_EXCERPT_LIMIT // 2 :]]
            self._state = state

    def _excerpt(self) -> str:
        culprit = self._culprit
        assert culprit is not None
        assert culprit.returned_ns is not None
        around = [
            operation
            for operation in self._operations
            if operation is not culprit
            and operation.invoked_ns <= culprit.returned_ns
            and (operation.returned_ns is None or operation.returned_ns >= culprit.invoked_ns)
        ]
        lines = [f"key={self._key} cannot be linearized: {culprit}"]
        lines += ["  an order that explains all that returned earlier ends with"]
        lines += [f"    {operation}" for operation in self._path]
        lines += [f"  which leave {self._state}", f"  concurrent with it: {len(around)}"]
        lines += [f"    {operation}" for operation in around[-_EXCERPT_LIMIT:]]
        return "\n".join(lines)


def _linked(operations: Sequence[ClientOperation]) -> tuple[_Entry, int]:
    """Build the list of calls and returns by time; give its head, and the number of returns.

    At one instant calls stand before returns: what might overlap does.
    """
    events: list[tuple[int, int, int, _Entry]] = []
    returned_count = endless_count = 0
    for order, operation in enumerate(sorted(operations, key=lambda some: (some.invoked_ns, some.operation_id))):
        call = _Entry(operation, is_call=True)
        events.append((operation.invoked_ns, 0, order, call))
        if operation.returned_ns is None:
            call.bit = endless_count
            endless_count += 1
            continue
        call.bit = returned_count
        returned_count += 1
        call.return_entry = _Entry(operation, is_call=False)
        events.append((operation.returned_ns, 1, order, call.return_entry))
    head = last = _Entry(_NOTHING, is_call=False)
    for *_, entry in sorted(events, key=lambda event: event[:3]):
        last.following, entry.preceding = entry, last
        last = entry
    return head, returned_count


def _take_out(call: _Entry) -> None:
    """Take a call and its return out of the list; both remember where they stood."""
    for entry in (call, call.return_entry):
        if entry is not None:
            assert entry.preceding is not None
            entry.preceding.following = entry.following
            if entry.following is not None:
                entry.following.preceding = entry.preceding


def _put_back(call: _Entry) -> None:
    """Undo the last `_take_out`."""
    for entry in (call.return_entry, call):
        if entry is not None:
            assert entry.preceding is not None
            entry.preceding.following = entry
            if entry.following is not None:
                entry.following.preceding = entry

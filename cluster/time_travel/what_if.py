"""Delivers the same log to two services side by side, and compares what they do.

The log stays what it is. A timer that the new code sets does not fire unless the log has it firing, what the new code
offers comes back only where the old code offered something, a session that it closes goes on as long as the log says.
So the first difference is exact, and what follows it may be its consequence.

Memory is that of two services and of what they give out over one step of the log, `STEP_BYTES`; of the differences
only a sample is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from ...service_api import ClusteredService, ConfigurationError
from ...service_api.wire.frame import iter_whole_messages
from ...service_api.wire.log.fields import MESSAGE_HEADER_LENGTH, read_log_fields
from .difference import Change, OutputDifference, compare_outputs
from .member_log import Bound, MemberLog, SnapshotSet
from .output_texts import OutputTexts
from .outputs import Output, OutputKind
from .replay import Progress, ReplayedService, SnapshotChoice, choose_snapshot, find_target
from .services import ServiceLike, make_services
from .state_comparison import compare_states
from .witness import LogWitness

STEP_BYTES: Final = 256 << 10
SAMPLE_LIMIT: Final = 20

StateOf = Callable[[ClusteredService], object]
"""What of a service is compared: anything that has `==`."""


@dataclass(slots=True, frozen=True)
class StateDifference:
    """Where the states of two services began to differ, or that they do at the end."""

    position: int
    """The end of the entry after which they differ."""
    detail: str


@dataclass(slots=True)
class WhatIf:
    """What came of a comparison."""

    start_position: int
    """Where both began: at a snapshot, or at the log's begin."""
    end_position: int
    """The end of the last entry that was delivered."""
    old_counts: Counter[OutputKind] = field(default_factory=Counter)
    """Outputs of the old service; empty where the log alone is the old one."""
    new_counts: Counter[OutputKind] = field(default_factory=Counter)
    changes: Counter[tuple[OutputKind, Change]] = field(default_factory=Counter)
    """How many differences there are of each kind."""
    sample: list[OutputDifference] = field(default_factory=list)
    """The first ones, in order of position."""
    state: StateDifference | None = None
    """None if the states are equal, or were not compared."""
    is_state_compared: bool = False
    uncompared_fields: list[str] = field(default_factory=list)
    """Fields of declared state that one side has and the other has not: they are no difference."""
    texts: OutputTexts = field(default_factory=lambda: OutputTexts(()), repr=False, compare=False)
    """The words for the outputs of both sides."""
    handlers: dict[int, str] = field(default_factory=dict)
    """By position: the method of the new service that handled the entry, with file and line, where it is known."""

    @property
    def first(self) -> OutputDifference | None:
        """The first difference of the outputs."""
        return self.sample[0] if self.sample else None

    @property
    def difference_count(self) -> int:
        """How many outputs differ."""
        return sum(self.changes.values())

    @property
    def is_same(self) -> bool:
        """Whether nothing differs, of what was compared."""
        return not self.changes and self.state is None


@dataclass(slots=True, frozen=True, kw_only=True)
class Comparison:
    """What is compared with what, and from where to where; `make` begins one of the sides again."""

    log: MemberLog
    start: SnapshotSet | None
    target: int
    make_old: Callable[[], list[ClusteredService]] | None
    make_new: Callable[[], list[ClusteredService]]

    def replay(
        self,
        services: Sequence[ClusteredService],
        sink: Callable[[Output], None] | None = None,
        *,
        witness: LogWitness | None = None,
    ) -> ReplayedService:
        """Begin to deliver the log to one side."""
        return ReplayedService(
            self.log,
            services,
            self.start,
            end_position=self.target,
            sink=sink,
            step_bytes=STEP_BYTES,
            witness=witness,
        )


def what_if(
    directory: Path | str | MemberLog,
    *,
    old: ServiceLike | Sequence[ServiceLike] | None,
    new: ServiceLike | Sequence[ServiceLike],
    snapshot: SnapshotChoice = "oldest",
    position: int | None = None,
    time: int | datetime | None = None,
    state: StateOf | None = None,
    sample_limit: int = SAMPLE_LIMIT,
    service_id: int = 0,
    service_count: int | None = None,
    bound: Bound = "committed",
    on_progress: Progress = lambda count: None,
    service_dir: Path | str = ".",
) -> WhatIf:
    """Deliver a member's log to two services and compare what they give out, and their states.

    `old` and `new` are classes, or `module:Class`; with `old` None the new service is held against what the log shows
    by itself: offers, timers and closed sessions. Both begin as early as can be, or where `snapshot` says, with what
    the old code wrote there, and end at `position` or `time`. `state` takes out of a service what is compared: the
    first entry after which it differs is found. Without it, what services write into a snapshot at the end is compared,
    where they write any. The rest is as for `replay_service`.

    Raises:
        ConfigurationError: a position or time that is not in the log, or a service that cannot be loaded.
        ClusterError: a file is damaged; the error says where.
        Exception: what `state` or a service raises that loads or writes a snapshot.
    """
    log = directory if isinstance(directory, MemberLog) else MemberLog.open(directory)
    comparison = make_comparison(
        log,
        old=old,
        new=new,
        snapshot=snapshot,
        target=find_target(log, position=position, time=time, end_position=log.end_of(bound)),
        service_id=service_id,
        service_count=service_count,
        service_dir=Path(service_dir),
    )
    if comparison.make_old is None:
        return _compare_with_log(comparison, sample_limit, on_progress)
    return _compare_services(comparison, state, sample_limit, on_progress)


def make_comparison(
    log: MemberLog,
    *,
    old: ServiceLike | Sequence[ServiceLike] | None,
    new: ServiceLike | Sequence[ServiceLike],
    snapshot: SnapshotChoice,
    target: int,
    service_id: int = 0,
    service_count: int | None = None,
    service_dir: Path = Path(),
) -> Comparison:
    """Decide where to begin, and check that both sides can be made.

    Raises:
        ConfigurationError: a side cannot be made, is made already, or has not as many services as the other.
    """
    for name, side in (("old", old), ("new", new)):
        parts = side if isinstance(side, Sequence) and not isinstance(side, str) else [side]
        if any(isinstance(part, ClusteredService) for part in parts):
            raise ConfigurationError(f"{name}={side!r} expected a class: each comparison makes a new service")
    make = partial(make_services, directory=service_dir, service_id=service_id, service_count=service_count, log=log)
    services = make(new)
    if old is not None and len(make(old)) != len(services):
        raise ConfigurationError(f"services of old={len(make(old))} expected as many as of new={len(services)}")
    return Comparison(
        log=log,
        start=choose_snapshot(log, snapshot, service_count=len(services), target=target),
        target=target,
        make_old=None if old is None else partial(make, old),
        make_new=partial(make, new),
    )


def differences(
    comparison: Comparison,
    *,
    on_step: Callable[[ReplayedService, ReplayedService | None], None] = lambda new, old: None,
) -> Iterator[list[OutputDifference]]:
    """Deliver the log to both sides, and yield the differences of each step; `on_step` is called after each."""
    if comparison.make_old is None:
        yield from _witnessed_differences(comparison, on_step)
        return
    old_outputs: list[Output] = []
    new_outputs: list[Output] = []
    old = comparison.replay(comparison.make_old(), old_outputs.append)
    new = comparison.replay(comparison.make_new(), new_outputs.append)
    try:
        while old.step(comparison.target) and new.step(comparison.target):
            on_step(new, old)
            yield [*compare_outputs(old_outputs, new_outputs)]
            old_outputs.clear()
            new_outputs.clear()
    finally:
        comparison.log.close_files()


def _witnessed_differences(
    comparison: Comparison, on_step: Callable[[ReplayedService, ReplayedService | None], None]
) -> Iterator[list[OutputDifference]]:
    found: list[OutputDifference] = []
    witness = LogWitness(found.append)
    new = comparison.replay(comparison.make_new(), witness.on_output, witness=witness)
    try:
        while new.step(comparison.target):
            on_step(new, None)
            yield [*found]
            found.clear()
    finally:
        comparison.log.close_files()
    witness.finish()
    yield sorted(found, key=lambda difference: difference.position)


class _Tally:
    """Adds up the differences of a comparison, and remembers where the states were equal last."""

    def __init__(self, comparison: Comparison, sample_limit: int, on_progress: Progress, state: StateOf | None) -> None:
        start = comparison.log.log.start_position if comparison.start is None else comparison.start.log_position
        self.result = WhatIf(start, start)
        self.sides: tuple[ReplayedService, ReplayedService | None] | None = None
        self.equal_position = start
        self.differing_position: int | None = None
        self._delivered_position = self._step_position = start
        self._log = comparison.log
        self._state = state
        self._sample_limit = sample_limit
        self._on_progress = on_progress

    def on_step(self, new: ReplayedService, old: ReplayedService | None) -> None:
        """Both were delivered some more."""
        if self.sides is None:
            self.result.texts = OutputTexts((*new.services, *(() if old is None else old.services)))
        self.sides = new, old
        self._on_progress(new.delivered_position - self._delivered_position)
        self._step_position, self._delivered_position = self._delivered_position, new.delivered_position
        if self._state is None or old is None or self.differing_position is not None:
            return
        if self._state(old.service) == self._state(new.service):
            self.equal_position = new.delivered_position
        else:
            self.differing_position = new.delivered_position

    def add(self, found: list[OutputDifference]) -> None:
        """Take in the differences of a step."""
        result = self.result
        for difference in found:
            result.changes[difference.output.kind, difference.change] += 1
        sample = found[: max(0, self._sample_limit - len(result.sample))]
        result.sample += sample
        if sample:
            self._find_handlers({difference.position for difference in sample})

    def _find_handlers(self, positions: set[int]) -> None:
        """Look at the entries of the step for what handled those at which outputs differ."""
        begin, log = self._step_position, self._log
        data = log.read(log.log.recording_id, begin, STEP_BYTES, stop_position=log.recorded_position)
        for end, message in iter_whole_messages(data):
            block_length = read_log_fields(message).block_length
            if begin + end in positions and block_length is not None:
                handler = self.result.texts.handler(message[MESSAGE_HEADER_LENGTH + block_length :])
                if handler is not None:
                    self.result.handlers[begin + end] = handler

    def finish(self) -> WhatIf:
        """Return the result, as far as outputs go."""
        if self.sides is not None:
            new, old = self.sides
            self.result.end_position = new.log_position
            self.result.new_counts = Counter(new.output_counts)
            self.result.old_counts = Counter() if old is None else Counter(old.output_counts)
        return self.result


def _compare_with_log(comparison: Comparison, sample_limit: int, on_progress: Progress) -> WhatIf:
    tally = _Tally(comparison, sample_limit, on_progress, None)
    for found in differences(comparison, on_step=tally.on_step):
        tally.add(found)
    return tally.finish()


def _compare_services(
    comparison: Comparison, state: StateOf | None, sample_limit: int, on_progress: Progress
) -> WhatIf:
    tally = _Tally(comparison, sample_limit, on_progress, state)
    for found in differences(comparison, on_step=tally.on_step):
        tally.add(found)
    result = tally.finish()
    if state is not None:
        result.is_state_compared = True
        if tally.differing_position is not None:
            result.state = _locate(comparison, state, tally.equal_position, tally.differing_position)
    elif tally.sides is not None:
        new, old = tally.sides
        assert old is not None
        states = compare_states(old, new)
        result.is_state_compared, result.uncompared_fields = states.is_compared, states.uncompared
        if states.differences:
            result.state = StateDifference(new.log_position, "; ".join(states.differences))
    return result


def _locate(comparison: Comparison, state: StateOf, equal_position: int, differing_position: int) -> StateDifference:
    """Find the entry after which the states differ: begin both again, and look after every frame of the step."""
    assert comparison.make_old is not None
    old, new = comparison.replay(comparison.make_old()), comparison.replay(comparison.make_new())
    old.advance(equal_position)
    new.advance(equal_position)
    try:
        while old.step(differing_position, is_single=True) and new.step(differing_position, is_single=True):
            before, after = state(old.service), state(new.service)
            if before != after:
                return StateDifference(new.log_position, f"old={_short(before)} new={_short(after)}")
    finally:
        comparison.log.close_files()
    return StateDifference(differing_position, "they differ at the end of a step, and did not when replayed again")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."

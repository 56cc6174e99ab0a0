"""`replay_log`: recorded traffic as a regression test of a service.

A log is delivered to the service again, and what the service gives out, and what it has become, are held against a
file that an earlier run wrote, or against other code. The file holds digests only: it stays small, and a difference is
told with the entries between which it lies and with what the service gives out there now.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, Final

from ...service_api import ConfigurationError
from ...service_api.typed.state_fields import (
    DeclaredValues,
    ValueDigest,
    compare_field_digests,
    digest_fields,
    read_fields,
)
from ..service.digests import digest_of
from ..service.kept_snapshot import state_of
from ..settings.variables import RECORD_VARIABLE
from ..time_travel.difference import Change
from ..time_travel.output_texts import OutputTexts
from ..time_travel.outputs import Output, OutputKind
from ..time_travel.replay import ReplayedService, replay_service
from ..time_travel.what_if import what_if
from .harness import Code, MakeService, makers_of

_BOUND: Final = "recorded"
"""A directory that was copied from a running member does not know how far its log is committed."""
_MARK_LIMIT: Final = 500
"""The most places at which a file can tell where a difference begins."""
_SHOWN_LIMIT: Final = 5
_CALLER_DEPTH: Final = 4
"""From `warnings.warn` to who has called `replay_log`."""


class UncomparedFieldWarning(UserWarning):
    """A field of declared state is in the code of one side only, so `replay_log` did not compare it."""


@dataclass(slots=True)
class RecordedState:
    """The state of one service at the end of a replay."""

    digest: str | None = None
    """Of the whole, or of what an author writes after declared fields; None where there is no such thing."""
    fields: dict[str, ValueDigest] | None = None
    """Of each declared field, where the service is typed."""


@dataclass(slots=True)
class RecordedRun:
    """What came of a replay, as it stands in a file."""

    end_position: int
    output_counts: dict[str, int] = field(default_factory=dict)
    states: list[RecordedState] = field(default_factory=list)
    """Of each service, by id."""
    marks: list[tuple[int, int, str]] = field(default_factory=list)
    """How many outputs there were up to a position, and a digest of them all."""


def replay_log(
    directory: Path | str,
    service: Code,
    *,
    expected: Path | str | None = None,
    old: Code | None = None,
) -> ReplayedService:
    """Deliver a log to a service, and compare what it gives out with an earlier run; return the service as it is then.

        def test_recorded_traffic():
            replay_log("tests/orders", OrderBook, expected="tests/orders.json")

    The first time run it with `TRIMARAN_RECORD=1 pytest`: that writes the file. So does it after a change that is
    meant, and the difference of the file shows in the review. Replies, messages to clients, timers, offers to the
    cluster, errors, and the state at the end are compared. The outputs of the whole log are held in memory.

    The declared state of typed services is compared by value, field by field. A field that only one side has is no
    difference: it is named in an `UncomparedFieldWarning`.

    Args:
        directory: A member's, of our cluster or of Aeron's; it is read as far as it is recorded, and not changed.
        service: The class, or a function that makes the service; a list where the members ran several.
        expected: The file of an earlier run.
        old: The code to compare with instead, as many services: the first output that differs is told.

    Raises:
        AssertionError: something differs, with what and where.
        ConfigurationError: neither or both of `expected` and `old`, no file and no word to write it, or no such log.
    """
    __tracebackhide__ = True  # pytest shows the test and the message, nothing between
    makers = makers_of(service)
    if (expected is None) == (old is None):
        raise ConfigurationError(
            "replay_log compares with a file (expected=...) or other code (old=...): name one of them"
        )
    if old is not None:
        _compare_with_code(directory, makers, makers_of(old))
        return replay_service(directory, makers, bound=_BOUND)
    outputs: list[Output] = []
    replayed = replay_service(directory, makers, snapshot="oldest", bound=_BOUND, sink=outputs.append)
    if not replayed.log_position:
        raise ConfigurationError(f"directory={directory}: its log has no entries, so nothing would be compared")
    run, file = _summary(replayed, outputs), Path(str(expected))
    if os.environ.get(RECORD_VARIABLE, "") not in ("", "0"):
        file.write_text(json.dumps(asdict(run), indent=1) + "\n")
        return replayed
    problems = [*_differences(_read(file), run, outputs, replayed)]
    if problems:
        problems.append(f"  if that is meant: {RECORD_VARIABLE}=1 pytest writes {file} again")
        raise AssertionError("\n".join([f"the log in {directory} gives another result than {file} says", *problems]))
    return replayed


def _compare_with_code(directory: Path | str, new: Sequence[MakeService], old: Sequence[MakeService]) -> None:
    __tracebackhide__ = True
    found = what_if(directory, old=old, new=new, bound=_BOUND)
    _warn(found.uncompared_fields)
    if found.is_same:
        return
    lines = [f"the log in {directory} gives another result with the new code: differences={found.difference_count}"]
    for difference in islice(found.sample, _SHOWN_LIMIT):
        handler = found.handlers.get(difference.position)
        by = f" handler={handler}" if handler else ""
        lines.append(f"  at log_position={difference.position}: {difference.change.value}{by}")
        lines += [f"    old: {_shown(difference.old, found.texts)}"] if difference.old is not None else []
        lines += [f"    new: {_shown(difference.new, found.texts)}"] if difference.new is not None else []
        if difference.change is Change.CHANGED and found.texts.message(difference.output.payload):
            lines.append(f"    differs in {found.texts.difference(difference)}")
    if found.state is not None:
        lines.append(f"  state at log_position={found.state.position}: {found.state.detail}")
    raise AssertionError("\n".join(lines))


def _summary(replayed: ReplayedService, outputs: Sequence[Output]) -> RecordedRun:
    states = [_recorded_state(replayed, service_id) for service_id in range(len(replayed.services))]
    run = RecordedRun(replayed.log_position, _counts(outputs), states)
    step = -(-len(outputs) // _MARK_LIMIT) or 1
    digest = blake2b(digest_size=8)
    for number, output in enumerate(outputs, start=1):
        digest.update(_encoded(output))
        if number % step == 0 or number == len(outputs):
            run.marks.append((number, output.position, digest.hexdigest()))
    return run


def _recorded_state(replayed: ReplayedService, service_id: int) -> RecordedState:
    service = replayed.services[service_id]
    fields = _read_fields(replayed, service_id)
    if fields is not None:
        return RecordedState(digest_of(fields.others).hex() if fields.others else None, digest_fields(fields))
    state = state_of(service, write=lambda service, publication: replayed.write_snapshot(publication, service_id))
    return RecordedState(None if state is None else digest_of(state).hex())


def _read_fields(replayed: ReplayedService, service_id: int) -> DeclaredValues | None:
    """Read the declared state of a service; None if it is not typed, or writes no snapshots."""
    if not replayed.services[service_id].takes_snapshots:
        return None
    return read_fields(replayed.snapshot_messages(service_id))


def _counts(outputs: Sequence[Output]) -> dict[str, int]:
    counts = {kind.value: 0 for kind in OutputKind}
    for output in outputs:
        counts[output.kind.value] += 1
    return {kind: count for kind, count in counts.items() if count}


def _read(file: Path) -> RecordedRun:
    try:
        text = file.read_text()
    except FileNotFoundError:
        raise ConfigurationError(
            f"no such file: expected={file}; {RECORD_VARIABLE}=1 pytest writes it from what the service does now"
        ) from None
    try:
        read: dict[str, Any] = json.loads(text)
        run = RecordedRun(**read)
        run.marks = [(int(count), int(position), str(digest)) for count, position, digest in run.marks]
        states: list[Any] = run.states
        run.states = [_read_state(**state) for state in states]
    except (ValueError, TypeError) as error:
        raise ConfigurationError(f"expected={file}: not what replay_log wrote: {error}") from error
    return run


def _read_state(digest: str | None, fields: dict[str, list[Any]] | None) -> RecordedState:
    return RecordedState(
        digest, None if fields is None else {name: ValueDigest(*each) for name, each in fields.items()}
    )


def _differences(
    before: RecordedRun, now: RecordedRun, outputs: Sequence[Output], replayed: ReplayedService
) -> Iterator[str]:
    if before.end_position != now.end_position:
        yield f"  the log ends at log_position={now.end_position}, it was {before.end_position}: another log?"
        return
    if before.marks != now.marks:
        yield f"  outputs: {now.output_counts}, they were {before.output_counts}"
        yield from _first_difference(before, now, outputs, OutputTexts(replayed.services))
    if len(before.states) != len(now.states):
        yield f"  services: {len(now.states)}, they were {len(before.states)}"
        return
    for service_id, (was, is_now) in enumerate(zip(before.states, now.states, strict=True)):
        place = "state" if len(now.states) == 1 else f"state of service {service_id}"
        fields = _read_fields(replayed, service_id)
        if was.fields is not None and fields is not None:
            found = compare_field_digests(was.fields, fields)
            _warn([f"{name}: only the earlier run has it" for name in found.only_expected])
            _warn([f"{name}: only this code has it" for name in found.only_actual])
            yield from (f"  {place}: {each}" for each in found.differences)
        if was.digest != is_now.digest:
            yield f"  {place}: digest={is_now.digest}, it was {was.digest}"


def _warn(fields: Sequence[str]) -> None:
    """Name fields that were not compared; the warning points at the call of `replay_log`."""
    if fields:
        warnings.warn(f"not compared: {'; '.join(fields)}", UncomparedFieldWarning, stacklevel=_CALLER_DEPTH)


def _first_difference(
    before: RecordedRun, now: RecordedRun, outputs: Sequence[Output], texts: OutputTexts
) -> Iterator[str]:
    """Tell between which entries the outputs begin to differ, and what they are there now."""
    digests = {count: digest for count, _, digest in now.marks}
    equal_count, equal_position = 0, 0
    for count, position, digest in before.marks:
        known = digests.get(count) or _digest_up_to(outputs, count)
        if known != digest:
            yield f"  they differ after log_position={equal_position}, at {position} at the latest; now they are there:"
            break
        equal_count, equal_position = count, position
    else:
        yield f"  there are more than there were, after log_position={equal_position}:"
    for output in islice(outputs, equal_count, equal_count + _SHOWN_LIMIT):
        yield f"    {_shown(output, texts)}"


def _digest_up_to(outputs: Sequence[Output], count: int) -> str | None:
    if count > len(outputs):
        return None
    digest = blake2b(digest_size=8)
    for output in islice(outputs, count):
        digest.update(_encoded(output))
    return digest.hexdigest()


def _encoded(output: Output) -> bytes:
    return repr((*output[:2], output.kind.value, *output[3:])).encode()


def _shown(output: Output, texts: OutputTexts) -> str:
    facts = {name: value for name, value in output._asdict().items() if value not in (None, b"") and name != "kind"}
    shown = {name: repr(value) for name, value in facts.items()}
    message = texts.message(output.payload)
    if message is not None:
        shown["payload"] = message
    return f"{output.kind.value} " + " ".join(f"{name}={value}" for name, value in shown.items())

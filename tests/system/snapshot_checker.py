"""What a log and its snapshots say about each other, message by message. Nothing of ours imported.

ClusterTool prints the newest snapshot of the consensus module; an Aeron member that starts reads it and the services'.
What is in there must be what the log says at that position: the sessions that are open, the messages of services that
were delivered, the position and the time of the action.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

from tests.system.directory_views import Message, RecordingView, SnapshotEntry, TermEntry

SCHEMA_ID: Final = 111
SESSION_MESSAGE, TIMER_EVENT, SESSION_OPEN, SESSION_CLOSE, ACTION, NEW_TERM = 1, 20, 21, 22, 23, 24
MEMBERSHIP_CHANGE = 25
CLUSTER_MEMBERS = 106
FEATURE_LEVEL = 8120
MARKER, CLIENT_SESSION, CLUSTER_SESSION, TIMER, MODULE, TRACKER = 100, 102, 103, 104, 105, 107
BEGIN, END = 0, 2
PASSED_OVER: Final = range(8100, 8200)
"""Template ids that no version of Aeron's schema has: its loader passes over them, and stops at another schema id."""
SNAPSHOT_ACTION: Final = 2
NULL_ENUM: Final = -(1 << 31)
SERVICE_ACTION: Final = 1
SERVICE_SESSION_BASE: Final = -(1 << 63)

_HEAD: Final = struct.Struct("<HHHH")
_MARKER: Final = struct.Struct("<qqqiiii")


@dataclass(slots=True)
class LogState:
    """What a log has said up to some position."""

    sessions: dict[int, int] = field(default_factory=dict)
    """Open sessions, with where each was opened."""
    next_session_id: int = 1
    delivered: dict[int, int] = field(default_factory=dict)
    """By service, the id of its last message."""
    time_unit: int = 0


@dataclass(slots=True, frozen=True)
class Action:
    """A SNAPSHOT action, and what the log had said there."""

    leadership_term_id: int
    timestamp: int
    state: LogState


def check_log_and_snapshots(
    log: RecordingView,
    recordings: list[RecordingView],
    terms: list[TermEntry],
    snapshots: list[SnapshotEntry],
    faults: list[str],
    *,
    by_aeron: bool,
) -> None:
    """Hold the entries of the log against the recording log, and each snapshot against the log.

    A snapshot at 0 is a seed: the log begins with its state, which is of another log.
    """
    is_whole = log.start_position == 0 and all(entry.log_position for entry in snapshots)
    actions = _read_log(log, terms, faults, is_time_checked=not by_aeron, is_whole=is_whole)
    known = {recording.recording_id: recording for recording in recordings}
    named = {entry.recording_id for entry in snapshots}
    clients: dict[int, list[set[int]]] = {}
    for entry in snapshots:
        what = f"snapshot at {entry.log_position} of service {entry.service_id}"
        action = actions.get(entry.log_position)
        if action is None and entry.log_position > log.start_position:
            faults.append(f"{what}: the log has no SNAPSHOT action that ends there")
        elif action is not None and (action.leadership_term_id, action.timestamp) != (
            entry.leadership_term_id,
            entry.timestamp,
        ):
            faults.append(f"{what}: the action is of term {action.leadership_term_id} at {action.timestamp}")
        recording = known.get(entry.recording_id)
        if recording is None:
            continue  # told by the check of recording.log
        if recording.start_position != 0:
            faults.append(f"{what}: the recording begins at {recording.start_position}")
        messages = [*recording.messages()]
        read = _check_module if entry.service_id == -1 else _check_service
        state = action.state if action is not None and is_whole else None
        clients.setdefault(entry.log_position, []).append(read(messages, entry, state, what, faults))
    for position, found in clients.items():
        if any(each != found[0] for each in found):
            faults.append(f"snapshot at {position}: module and services do not hold the same sessions: {found}")
    for recording in recordings:
        if recording.stream_id in (106, 107) and recording.recording_id not in named and not by_aeron:
            recording_id = recording.recording_id
            if recording.stop_position is not None:
                faults.append(f"recording {recording_id}: a snapshot that recording.log does not name")


def _read_log(
    log: RecordingView, terms: list[TermEntry], faults: list[str], *, is_time_checked: bool, is_whole: bool
) -> dict[int, Action]:
    """Follow the log; gives its SNAPSHOT actions by the position where each ends."""
    bases = {term.leadership_term_id: term.term_base_log_position for term in terms}
    state, actions, time, units = LogState(), dict[int, Action](), 0, set[int]()
    for message in log.messages():
        block_length, template_id, schema_id, _ = _HEAD.unpack_from(message.encoded)
        where, encoded = f"log position={message.position}", message.encoded
        if schema_id != SCHEMA_ID or (template_id not in range(20, 26) and template_id != SESSION_MESSAGE):
            faults.append(f"{where}: schema_id={schema_id} template_id={template_id}")
            continue
        timestamp = 0
        if template_id in (SESSION_MESSAGE, TIMER_EVENT):
            session_id, timestamp = struct.unpack_from("<qq", encoded, 16)
            if template_id == SESSION_MESSAGE and session_id < 0:
                service_id = (session_id - SERVICE_SESSION_BASE) >> 56
                first = SERVICE_SESSION_BASE + (service_id << 56) if is_whole else session_id - 1
                before = state.delivered.get(service_id, first)
                if session_id != before + 1:
                    faults.append(f"{where}: message {session_id} of service {service_id} after {before}")
                state.delivered[service_id] = session_id
        elif template_id == SESSION_OPEN:
            session_id, timestamp = struct.unpack_from("<qq", encoded, 24)
            if session_id in state.sessions:
                faults.append(f"{where}: session {session_id} is opened again")
            state.sessions[session_id] = message.end_position
            state.next_session_id = max(state.next_session_id, session_id + 1)
        elif template_id == SESSION_CLOSE:
            session_id, timestamp = struct.unpack_from("<qq", encoded, 16)
            if state.sessions.pop(session_id, None) is None and is_whole:
                faults.append(f"{where}: session {session_id} is closed and was not open")
        elif template_id in (ACTION, NEW_TERM, MEMBERSHIP_CHANGE):
            term_id, log_position, timestamp = struct.unpack_from("<qqq", encoded, 8)
            if log_position != message.end_position:
                faults.append(f"{where}: log_position={log_position}, the entry ends at {message.end_position}")
            if template_id == NEW_TERM:
                (base,) = struct.unpack_from("<q", encoded, 32)
                if bases.get(term_id) != base or base > message.position:
                    faults.append(f"{where}: term {term_id} from {base}, recording.log has {bases.get(term_id)}")
                if block_length >= 48:
                    (state.time_unit,) = struct.unpack_from("<i", encoded, 48)
                    units.add(state.time_unit)
            elif template_id == ACTION and struct.unpack_from("<i", encoded, 32) == (SNAPSHOT_ACTION,):
                copy = LogState(
                    dict(state.sessions), state.next_session_id, dict(state.delivered), time_unit=state.time_unit
                )
                actions[message.end_position] = Action(term_id, timestamp, copy)
        if timestamp < time and is_time_checked:
            faults.append(f"{where}: timestamp={timestamp} after {time}")
        time = max(time, timestamp)
    if len(units) > 1:
        faults.append(f"log: several time units: {units}")
    return actions


def _check_markers(messages: list[Message], entry: SnapshotEntry, state: LogState | None, what: str) -> list[str]:
    """The two markers: at the beginning and after what the container or the module wrote."""
    found, faults = [], list[str]()
    for index, message in enumerate(messages):
        if _HEAD.unpack_from(message.encoded.ljust(8, b"\0"))[1:3] == (MARKER, SCHEMA_ID):
            found.append((index, _MARKER.unpack_from(message.encoded, 8)))
    if len(found) != 2 or found[0][0] != 0:
        return [f"{what}: markers at messages {[index for index, _ in found]}, expected two, the first at 0"]
    for (_, fields), mark in zip(found, (BEGIN, END), strict=True):
        type_id, log_position, term_id, index, actual_mark, time_unit, _ = fields
        place = entry.log_position or found[0][1][1]
        expected = (1 if entry.service_id == -1 else 2, place, entry.leadership_term_id, 0, mark)
        if (type_id, log_position, term_id, index, actual_mark) != expected:
            faults.append(f"{what}: marker {fields[:5]} expected {expected}")
        if state is not None and time_unit != state.time_unit:
            faults.append(f"{what}: marker with time_unit={time_unit}, the log has {state.time_unit}")
    if found[0][1][6] != found[1][1][6]:
        faults.append(f"{what}: markers with different app versions")
    return faults


def _check_service(
    messages: list[Message], entry: SnapshotEntry, state: LogState | None, what: str, faults: list[str]
) -> set[int]:
    """Marker, client sessions, what Trimaran keeps for requests, marker; then the application's own. Gives sessions."""
    faults += _check_markers(messages, entry, state, what)
    sessions, kinds = set[int](), list[int]()
    for message in messages[1:]:
        _, template_id, schema_id, _ = _HEAD.unpack_from(message.encoded.ljust(8, b"\0"))
        if (template_id, schema_id) == (MARKER, SCHEMA_ID):
            break
        if (template_id, schema_id) == (CLIENT_SESSION, SCHEMA_ID):
            sessions.add(struct.unpack_from("<q", message.encoded, 8)[0])
        elif schema_id != SCHEMA_ID or template_id not in PASSED_OVER:
            faults.append(f"{what}: Aeron's loader stops or errs at schema_id={schema_id} template_id={template_id}")
        kinds.append(template_id == CLIENT_SESSION)
    if kinds != sorted(kinds, reverse=True):
        faults.append(f"{what}: client sessions after other messages")
    _check_sessions(sessions, state, what, faults)
    return sessions


def _check_module(
    messages: list[Message], entry: SnapshotEntry, state: LogState | None, what: str, faults: list[str]
) -> set[int]:
    """Marker, module, members, sessions, timers, each service's tracker and pending messages, marker."""
    faults += _check_markers(messages, entry, state, what)
    heads = [_HEAD.unpack_from(message.encoded.ljust(8, b"\0")) for message in messages]
    order = dict.fromkeys((MODULE, CLUSTER_MEMBERS, FEATURE_LEVEL), 1)
    order |= {MARKER: 0, CLUSTER_SESSION: 2, TIMER: 3, TRACKER: 4, SESSION_MESSAGE: 4}
    kinds = [template_id for _, template_id, _, _ in heads]
    places = [order.get(kind, -1) for kind in kinds[1:-1]]
    if any(schema_id != SCHEMA_ID for _, _, schema_id, _ in heads) or places != sorted(places) or -1 in places:
        faults.append(f"{what}: messages in the order {kinds}")
    if kinds.count(MODULE) != 1 or kinds[-1:] != [MARKER]:
        faults.append(f"{what}: ConsensusModule messages={kinds.count(MODULE)}, the last message is {kinds[-1:]}")
    sessions, service_id, next_id, end_id = list[int](), -1, 0, 0
    for message, kind in zip(messages, kinds, strict=True):
        encoded = message.encoded
        if kind == MODULE and state is not None:
            (next_session_id,) = struct.unpack_from("<q", encoded, 8)
            if next_session_id != state.next_session_id:
                faults.append(f"{what}: next_session_id={next_session_id}, the log says {state.next_session_id}")
        elif kind == CLUSTER_SESSION:
            session_id, _, opened, activity, reason = struct.unpack_from("<qqqqi", encoded, 8)
            sessions.append(session_id)
            if activity != -1 or reason not in (NULL_ENUM, SERVICE_ACTION) or opened > entry.log_position > 0:
                faults.append(f"{what}: session {session_id} opened={opened} activity={activity} reason={reason}")
            if state is not None and state.sessions.get(session_id) != opened:
                faults.append(f"{what}: session {session_id} opened at {opened}, by the log {state.sessions}")
        elif kind == TRACKER:
            if next_id != end_id:
                faults.append(f"{what}: service {service_id} has messages pending up to {next_id}, expected {end_id}")
            end_id, log_id, _, tracked_id = struct.unpack_from("<qqii", encoded, 8)
            next_id, service_id = min(log_id + 1, end_id), service_id + 1
            base = SERVICE_SESSION_BASE + (service_id << 56)
            if tracked_id != service_id or end_id <= base or log_id < base:
                faults.append(f"{what}: tracker of service {tracked_id}, expected {service_id}; next={end_id}")
            if state is not None and log_id != state.delivered.get(service_id, base):
                faults.append(f"{what}: service {service_id} log_id={log_id}, the log says {state.delivered}")
        elif kind == SESSION_MESSAGE:
            (session_id,) = struct.unpack_from("<q", encoded, 16)
            if session_id != next_id:
                faults.append(f"{what}: pending message {session_id} of service {service_id}, expected {next_id}")
            next_id = session_id + 1
    if next_id != end_id:
        faults.append(f"{what}: service {service_id} has messages pending up to {next_id}, expected {end_id}")
    if sessions != sorted(set(sessions)):
        faults.append(f"{what}: sessions in the order {sessions}")
    _check_sessions(set(sessions), state, what, faults)
    return set(sessions)


def _check_sessions(sessions: set[int], state: LogState | None, what: str, faults: list[str]) -> None:
    if state is not None and sessions != state.sessions.keys():
        faults.append(f"{what}: sessions {sorted(sessions)}, by the log {sorted(state.sessions)}")

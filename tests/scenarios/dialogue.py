"""Writes down what the members of a simulated cluster say and do, as one would tell it.

Messages to several members in one breath are one line. What a member only repeats (heartbeats and canvasses whose
fields are those of the last time) is left out. Field names are those on the wire.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.unit.cluster.core.harness import Cluster
from tests.unit.cluster.core.node import MS, Node
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core.log.log_buffer import LogBuffer
from trimaran.cluster.core.log.log_publisher import LogPublisher
from trimaran.cluster.core.log.recording_log import RecordingLog
from trimaran.cluster.core.vocabulary.election_state import ElectionState
from trimaran.cluster.messages.condition import ConditionQuery, MemberCondition
from trimaran.service_api.types import NULL_POSITION, MemberId
from trimaran.service_api.wire.message import Message

SETTINGS: dict[str, object] = {
    "startup_canvass_timeout_ns": 10_000 * MS,
    "election_timeout_ns": 1_000 * MS,
    "election_status_interval_ns": 100 * MS,
    "leader_heartbeat_timeout_ns": 10_000 * MS,
    "leader_heartbeat_interval_ns": 200 * MS,
    "session_timeout_ns": 60_000 * MS,
    "term_length_bytes": 64 << 10,
}
"""The times of the seed page's example; every message takes a millisecond."""

_TERM_ENDS = (1312, 2848, 4064)
"""Where the seed page's terms end, and so do frames in every log."""

_INDENT = " " * 23

_UNSAID = {"timestamp"}
"""Fields that differ at every repetition and say nothing new."""


class Dialogue(Cluster):
    """A cluster in which nothing is left to chance but the nomination, and of which a record is kept."""

    def __init__(self, title: str, chances: Mapping[int, float]) -> None:
        super().__init__(0)
        self.settings.update(SETTINGS)
        self._chances = chances
        self.is_told = True
        """Whether what happens is written down."""
        self._lines = [title, "=" * len(title)]
        self._start_ns = self.now_ns
        self._said: dict[tuple[object, ...], list[str]] = {}
        self._sending: tuple[int, Node, list[int], Message] | None = None
        self.delay = lambda: MS
        self.on_effect = self._write

    def random_of(self, member_id: int) -> Callable[[], float]:
        """The same chance every time, so that who nominates itself first is part of the story."""
        return lambda: self._chances[member_id]

    def tell(self, *sentences: str) -> None:
        """Write what the story is about to show."""
        self._flush()
        self._lines += ["", *(f"# {sentence}".rstrip() for sentence in sentences), ""]

    def text(self) -> str:
        """Give the record."""
        self._flush()
        return "\n".join(self._lines) + "\n"

    def prepare(self, member_id: int, position: int, *, terms: Sequence[tuple[int, int]] = ((0, 0),)) -> None:
        """Give a member that has not started a log that ends at a position; `terms` are (term, base) in order."""
        disk = self.nodes[MemberId(member_id)].disk
        buffer = LogBuffer(position=0, retained_bytes=1 << 20)
        publisher = LogPublisher(
            buffer,
            log_session_id=1,
            initial_term_id=0,
            term_length_bytes=64 << 10,
            mtu_length_bytes=288,
            checksums=True,
        )
        for end_position in [*(end for end in _TERM_ENDS if end < position), position]:
            while (missing := end_position - buffer.append_position) > 0:
                payload_length = 64 if missing == 96 else 32
                publisher.append_message(bytes.fromhex("180001006f001000") + bytes(payload_length - 8))
        disk.log += b"".join(buffer.take_pending())
        recording_log = RecordingLog()
        for term_id, base in terms:
            recording_log.append_term(
                recording_id=0, leadership_term_id=term_id, term_base_log_position=base, timestamp=0
            )
        disk.persist(recording_log)
        disk.candidate_term_id = terms[-1][0]

    # --- the record

    def _write(self, node: Node, effect: fx.Effect) -> None:
        if not self.is_told:
            return
        if isinstance(effect, fx.SendToMember) and not isinstance(effect.message, ConditionQuery | MemberCondition):
            self._write_message(node, effect)
            return
        sentence = _SENTENCES.get(type(effect))
        if sentence is not None:
            self._line(node, sentence(effect, node))

    def _write_message(self, node: Node, effect: fx.SendToMember) -> None:
        now_ns = self.now_ns
        if self._sending is not None and (self._sending[:2], self._sending[3]) == ((now_ns, node), effect.message):
            if effect.member_id not in self._sending[2]:
                self._sending[2].append(effect.member_id)
            return
        self._flush()
        self._sending = (now_ns, node, [effect.member_id], effect.message)

    def _flush(self) -> None:
        """Write the message that was being sent, if it is news."""
        if self._sending is None:
            return
        (time_ns, node, member_ids, message), self._sending = self._sending, None
        fields = [f"{camel(name)}={value_of(value)}" for name, value in message if name not in _UNSAID]
        key = (node.member_id, tuple(member_ids), type(message))
        if self._said.get(key) == fields:
            return
        self._said[key] = fields
        to = " and ".join(str(member_id) for member_id in member_ids)
        self._put(time_ns, node, f"to {to}: {type(message).__name__}")
        self._lines += textwrap.wrap(" ".join(fields), 100, initial_indent=_INDENT, subsequent_indent=_INDENT)

    def _line(self, node: Node, text: str) -> None:
        self._flush()
        self._put(self.now_ns, node, text)

    def _put(self, time_ns: int, node: Node, text: str) -> None:
        seconds = (time_ns - self._start_ns) / 1e9
        self._lines.append(f"{seconds:7.3f}  member {node.member_id}  {text}")


def camel(name: str) -> str:
    """Give a field its name on the wire."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def value_of(value: object) -> str:
    """Write a value as the seed page does."""
    if isinstance(value, bool):
        return str(value).upper()
    return repr(value) if isinstance(value, str) else str(value)


def _state_changed(effect: fx.StateChanged, node: Node) -> str:
    line = f"{effect.old.name} -> {effect.new.name}: {effect.reason}"
    if effect.new is ElectionState.CANVASS:
        line += f" (term {effect.leadership_term_id}, log ends at {effect.append_position})"
    return line


def _recording_log(effect: fx.PersistRecordingLog, node: Node) -> str:
    terms = [
        f"{entry.leadership_term_id} from {entry.term_base_log_position}"
        + ("" if entry.log_position == NULL_POSITION else f" to {entry.log_position}")
        for entry in node.ctx.recording_log.entries
    ]
    return f"[disk] terms: {', '.join(terms)}"


_SENTENCES: dict[type, Callable[[Any, Node], str]] = {  # Any: each takes the effect that it is keyed by
    fx.StateChanged: _state_changed,
    fx.PersistRecordingLog: _recording_log,
    fx.PersistCandidateTerm: lambda effect, _: f"[disk] candidate term: {effect.candidate_term_id}",
    fx.TruncateLog: lambda effect, _: f"[disk] log cut back to {effect.position}",
    fx.ElectionStarted: lambda effect, _: f"enters an election: {effect.reason}",
    fx.OpenLogPublication: lambda effect, _: "opens its log to the followers",
    fx.StartReplay: lambda effect, _: f"processes its log up to {effect.to_position}",
    fx.StartLogReplication: lambda effect, node: (
        f"asks the archive of member {effect.leader_member_id} for a replay of recording {effect.leader_recording_id}: "
        f"position={node.ctx.append_position} length={effect.stop_position - node.ctx.append_position}"
    ),
    fx.StartCatchupReplay: lambda effect, _: f"replays its log from {effect.position} to member {effect.member_id}",
    fx.CloseCatchup: lambda effect, _: "drops the catch-up link",
    fx.JoinLiveLog: lambda effect, node: f"joins the live log at {node.ctx.append_position}",
    fx.CommitAdvanced: lambda effect, _: f"may deliver up to {effect.position}",
    fx.TransferNoted: lambda effect, _: f"hands over to member {effect.target_id}: {effect.step}: {effect.detail}",
    fx.HoldIngress: lambda effect, _: "reads no client" if effect.is_held else "reads its clients again",
    fx.ElectionClosed: lambda effect, _: (
        f"the election is over: member {effect.leader_member_id} leads term {effect.leadership_term_id}"
    ),
}

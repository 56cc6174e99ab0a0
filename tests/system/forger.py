"""A process that speaks the consensus protocol as a member does, and lies: it hears the others, and says anything.

It takes the place of a member that is not started: it listens where that one would, so the others dial it and tell it
what they tell every member, and it dials them and greets them with the right settings. What it says carries its own
name, or it repeats what it has heard.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from tests.system.hostile import STREAM_IDS, _greeting
from tests.waiting import wait_until
from trimaran.cluster.core.peers.message_rules import SENDER_FIELDS
from trimaran.cluster.messages.condition import ConditionQuery, MemberCondition
from trimaran.cluster.messages.consensus import (
    AppendPosition,
    CanvassPosition,
    CatchupPosition,
    CommitPosition,
    NewLeadershipTerm,
    RequestVote,
    StopCatchup,
    TerminationAck,
    TerminationPosition,
    Vote,
)
from trimaran.cluster.messages.digests import ServiceDigest
from trimaran.cluster.messages.reads import LeadershipProbe, ReadPosition
from trimaran.service_api.documents.member_status import MemberStatus
from trimaran.service_api.types import MemberId, RecordingId, TermId
from trimaran.service_api.wire.fields import BlockField, MessageLayout
from trimaran.service_api.wire.frame import HEADER_LENGTH, TYPE_DATA, encode_frame
from trimaran.service_api.wire.link_frames import SetupFrame
from trimaran.service_api.wire.message import Message, decode_message, registry_of
from trimaran.service_api.wire.stream import FrameParser
from trimaran.service_api.wire.versioned import build

_STREAM_ID: Final = STREAM_IDS["consensus"]
_KNOWN: Final = registry_of(*SENDER_FIELDS)
_EXTREMES: Final = (-(1 << 63) + 1, -2, -1, 0, 1, 31, 32, 64, 1 << 31, 1 << 61, 1 << 62, (1 << 63) - 1)
_EXTREMES_32: Final = (-(1 << 31) + 1, -1, 0, 1, 2, 77, (1 << 31) - 1)
_BARRIER: Final = 1 << 40
"""Nonces from here on are the forger's own questions."""


class Forger:
    """The links of a false member with the others."""

    def __init__(self, member_id: int, endpoint_of: Callable[[int], tuple[str, int]]) -> None:
        self.member_id = MemberId(member_id)
        self.heard: dict[int, list[bytes]] = {}
        """By member: the messages that it has sent here, as they came."""
        self._endpoint_of = endpoint_of
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._answered: set[int] = set()
        self._barrier_count = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._accepted: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._listen, *self._endpoint_of(self.member_id))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for writer in (*self._writers.values(), *self._accepted):
            writer.transport.abort()
        await asyncio.wait(self._tasks)

    async def say(self, member_id: int, *messages: Message | bytes) -> None:
        """Send messages to a member; on a new link where the last one was closed."""
        writer = self._writers.get(member_id)
        if writer is None or writer.is_closing():
            reader, writer = await asyncio.open_connection(*self._endpoint_of(member_id))
            self._writers[member_id] = writer
            self._tasks.append(asyncio.ensure_future(_drop_all(reader, writer)))
            writer.write(SetupFrame(session_id=self.member_id, stream_id=_STREAM_ID, member_id=self.member_id).encode())
            writer.write(_greeting(self.member_id))
        for message in messages:
            encoded = message if isinstance(message, bytes) else message.encode()
            writer.write(encode_frame(encoded, stream_id=_STREAM_ID))
        with suppress(ConnectionError):
            await writer.drain()

    async def wait_heard(self, *member_ids: int) -> None:
        """Wait until members have found this one, and talk to it."""
        for member_id in member_ids:
            await wait_until(partial(self.heard.__contains__, member_id), timeout_s=60, what=f"member {member_id}")

    async def wait_handled(self, member_id: int) -> None:
        """Wait until a member has handled all that it was sent: it answers a question that comes after."""
        self._barrier_count += 1
        nonce = _BARRIER + self._barrier_count
        await self.say(member_id, ConditionQuery(nonce=nonce, member_id=self.member_id))
        await wait_until(lambda: nonce in self._answered, timeout_s=60, what=f"an answer of member {member_id}")

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hear what a member tells, and answer its greeting."""
        parser, peer_id = FrameParser(), -1
        self._accepted.append(writer)
        self._tasks.append(_current_task())
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                for frame in parser.feed(data):
                    if frame.type != TYPE_DATA:
                        peer_id = SetupFrame.decode(frame.raw).member_id
                        writer.write(_greeting(self.member_id))
                        continue
                    self._hear(peer_id, frame.raw[HEADER_LENGTH:])
        writer.close()

    def _hear(self, peer_id: int, encoded: bytes) -> None:
        self.heard.setdefault(peer_id, []).append(encoded)
        del self.heard[peer_id][:-256]
        with suppress(Exception):
            message = decode_message(encoded, registry=_KNOWN)
            if isinstance(message, MemberCondition):
                self._answered.add(message.nonce)


def _current_task() -> asyncio.Task[None]:
    task: asyncio.Task[None] | None = asyncio.current_task()
    assert task is not None
    return task


async def _drop_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read what a member answers on the link, and close it when the member does."""
    with suppress(ConnectionError):
        while await reader.read(65536):
            pass
    writer.close()


@dataclass(slots=True, frozen=True)
class Facts:
    """What a member says of itself, for lies that fit."""

    term_id: int
    commit_position: int
    append_position: int

    @classmethod
    def of(cls, status: MemberStatus) -> Facts:
        return cls(status.leadership_term_id or 0, status.commit_position, status.append_position)


def lies_of_a_leader(me: MemberId, target: int, facts: Facts) -> Iterator[Message]:
    """What only the leader of the term may say: each is refused by name."""
    term, end = TermId(facts.term_id), facts.append_position
    yield TerminationPosition(leadership_term_id=term, log_position=facts.commit_position)
    yield TerminationPosition(leadership_term_id=term, log_position=end + (1 << 20))
    yield StopCatchup(leadership_term_id=term, follower_member_id=MemberId(target))
    yield CommitPosition(leadership_term_id=term, log_position=end + (1 << 20), leader_member_id=me)
    yield LeadershipProbe(leadership_term_id=term, probe_id=1, leader_member_id=me)
    yield ReadPosition(leadership_term_id=term, asked_ns=0, log_position=1 << 40, leader_member_id=me)
    yield NewLeadershipTerm(
        log_leadership_term_id=term,
        next_leadership_term_id=TermId(-1),
        next_term_base_log_position=-1,
        next_log_position=-1,
        leadership_term_id=term,
        term_base_log_position=0,
        log_position=end,
        leader_recording_id=RecordingId(0),
        timestamp=0,
        leader_member_id=me,
        log_session_id=77,
        app_version=256,
        is_startup=False,
        commit_position=end,
    )


def lies_of_a_follower(me: MemberId, target: int, facts: Facts, endpoint: str) -> Iterator[Message]:
    """What a follower may say, with numbers that no follower has."""
    term = TermId(facts.term_id)
    yield AppendPosition(leadership_term_id=term, log_position=1 << 40, follower_member_id=me, flags=0)
    yield CatchupPosition(
        leadership_term_id=term,
        log_position=facts.commit_position,
        follower_member_id=me,
        catchup_endpoint=endpoint,
    )
    yield TerminationAck(leadership_term_id=term, log_position=facts.commit_position, member_id=me)
    yield ServiceDigest(
        member_id=me, kind=0, service_id=0, code_digest=0, log_position=1 << 60, digest=b"x", value="y\x1b[2J"
    )
    yield Vote(
        candidate_term_id=term,
        log_leadership_term_id=term,
        log_position=0,
        candidate_member_id=MemberId(target),
        follower_member_id=me,
        vote=False,
    )


def lies_that_unsettle(me: MemberId, facts: Facts) -> Iterator[Message]:
    """Higher terms, near and far: the near ones may cost an election, the far ones nothing."""
    term = TermId(facts.term_id)
    for leap in (1, 16, 1 << 40):
        higher = TermId(term + leap)
        yield CanvassPosition(
            log_leadership_term_id=term,
            log_position=facts.append_position,
            leadership_term_id=higher,
            follower_member_id=me,
        )
        yield RequestVote(
            log_leadership_term_id=TermId(0), log_position=0, candidate_term_id=higher, candidate_member_id=me
        )


def draw_lie(chance: random.Random, me: MemberId) -> Message:
    """Draw a message of any kind with extreme numbers, in the forger's own name.

    It never gives a vote: two leaders of one term would be a lie that the two believe rightly.
    """
    kind = chance.choice([*SENDER_FIELDS])
    values = _draw_values(kind.LAYOUT, chance)
    for group in kind.LAYOUT.groups:
        elements = (_draw_values(group.layout, chance) for _ in range(chance.randrange(4)))
        values[group.name] = tuple(build(group.element, drawn) for drawn in elements)
    if (name := SENDER_FIELDS[kind]) is not None:
        values[name] = me
    if kind is Vote:
        values["vote"] = False
    return build(kind, values)


def _draw_values(layout: MessageLayout, chance: random.Random) -> dict[str, Any]:
    """Draw every field of a block and every variable one; groups are the caller's."""
    values = {field.name: _draw_value(field, chance) for field in layout.block}
    for var in layout.var_data:
        text = chance.choice(("", "127.0.0.1:1", "x" * 300))
        values[var.name] = text if var.is_text else text.encode()
    return values


def _draw_value(field: BlockField, chance: random.Random) -> Any:  # of the field's type
    if field.values is not None:
        return chance.choice([None, *(meaning for _, meaning in field.values)])
    if field.format == "q":
        return chance.choice(_EXTREMES)
    return chance.choice(_EXTREMES_32) if field.format == "i" else chance.choice((0, 1, 2, 127))

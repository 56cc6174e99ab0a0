"""Asking the members of a cluster how far its log is committed.

The question is the one that `trimaran status` asks: a connection to a member's consensus endpoint whose setup frame
names `STATUS_STREAM_ID`, answered by one frame with a JSON document. Of that only the term and the commit position are
looked at. It is asked here with a plain socket, because Spark's planner blocks anyway, and the archive does not know
the cluster's package.

Any member's answer is true for ever, only more or less late; the leader's is the newest. So the member that answered
as leader is asked first, and as long as it does, alone. Nobody answering is no error: a stream then goes as far as it
knows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.errors import RemoteProtocolError
from trimaran.service_api.transport import SOCKETS, Purpose
from trimaran.service_api.types import NULL_VALUE, STATUS_STREAM_ID
from trimaran.service_api.wire.frame import TYPE_DATA, SetupFrame
from trimaran.service_api.wire.stream import FrameParser

from ...log.commit_claims import CommitClaim

ANSWER_TIMEOUT_S: Final = 0.5
"""How long one member has to answer; in an election, with all paused, a look takes this for each of them."""

ANSWER_LENGTH_LIMIT_BYTES: Final = 16384
REMEMBERED_TERM_LIMIT: Final = 64
"""Of more terms than these, the oldest claims are forgotten: a log that needs them is late, never wrong."""

RECEIVE_LIMIT: Final = 16
"""In so many pieces an answer may come, which is one as a rule: what trickles is no member."""

_RECEIVE_BYTES: Final = 4096


class CommitAsker:
    """Asks for the commit position; remembers who led, and the furthest answer in each of the last terms.

    The older terms matter for a log that was not fitted to the newest one: what it can be trusted with is in them.
    """

    def __init__(self, endpoints: Sequence[Endpoint], *, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._endpoints = list(endpoints)
        self._timeout_s = timeout_s
        self._positions: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<CommitAsker endpoints={self._endpoints} positions={self._positions}>"

    def ask(self) -> list[CommitClaim]:
        """Give the furthest claim in each term, of those who answer now and before; empty if nobody ever did."""
        for endpoint in tuple(self._endpoints):
            answer = ask_member(endpoint, self._timeout_s)
            if answer is None:
                continue
            claim, is_leader = answer
            self._note(claim)
            if is_leader:
                self._endpoints.remove(endpoint)
                self._endpoints.insert(0, endpoint)
                break
        return [CommitClaim(*item) for item in self._positions.items()]

    def _note(self, claim: CommitClaim) -> None:
        term_id = claim.leadership_term_id
        self._positions[term_id] = max(claim.position, self._positions.get(term_id, 0))
        if len(self._positions) > REMEMBERED_TERM_LIMIT:
            del self._positions[min(self._positions)]


def ask_member(endpoint: Endpoint, timeout_s: float) -> tuple[CommitClaim, bool] | None:
    """Ask one member: what it claims, and whether it leads; None when it does not say.

    `timeout_s` is how long it may be silent, before and in the middle of its answer.
    """
    parser = FrameParser(ANSWER_LENGTH_LIMIT_BYTES)
    try:
        with SOCKETS.dial_blocking(Purpose.DOCUMENTS, endpoint, timeout_s) as connection:
            connection.sendall(SetupFrame(session_id=NULL_VALUE, stream_id=STATUS_STREAM_ID).encode())
            for _ in range(RECEIVE_LIMIT):
                data = connection.recv(_RECEIVE_BYTES)
                frames = parser.feed(data)
                if frames or not data:
                    break
        if not frames or frames[0].type != TYPE_DATA or frames[0].stream_id != STATUS_STREAM_ID:
            return None
        return _read_answer(json.loads(frames[0].payload))
    except (OSError, RemoteProtocolError, ValueError, UnicodeError):
        return None


def _read_answer(document: Any) -> tuple[CommitClaim, bool] | None:
    """Take the claim from a status document; None of a member that was never in a term, or of something else."""
    if not isinstance(document, dict):
        return None
    term_id, position = document.get("leadership_term_id"), document.get("commit_position")
    if not (isinstance(term_id, int) and isinstance(position, int) and term_id >= 0 and position >= 0):
        return None
    return CommitClaim(term_id, position), document.get("role") == "LEADER"

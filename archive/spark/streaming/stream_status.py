"""Asks the members of a cluster for their commit positions.

The question is the one that `trimaran status` asks: a connection to a member's consensus endpoint whose setup frame
names `STATUS_STREAM_ID`, answered by one frame with a `MemberStatus`. Of that only the term, the commit position and
the role are looked at. It is asked here with a plain socket, because Spark's planner blocks anyway.

A member of another group of the cluster answers for another log: its answer is refused where the stream knows which
group it asks. Any other member's answer is true for ever, only more or less late; the leader's is the newest. So the
member that answered as leader is asked first, and as long as it does, alone. Nobody answering is no error: a stream
then goes as far as it knows. Only where all that answer do so in a version of the document that is not read here, or
say that the caller may not ask, it says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ....service_api.cluster_id import NULL_CLUSTER_ID, ClusterId
from ....service_api.documents.document import DocumentVersionError, Refusal, read_document
from ....service_api.documents.member_status import STATUS_LENGTH_LIMIT_BYTES, MemberStatus, leads
from ....service_api.endpoint import Endpoint
from ....service_api.errors import ConfigurationError, RemoteProtocolError
from ....service_api.groups.group import Group
from ....service_api.net.transport import SOCKETS, Purpose, SocketStack
from ....service_api.types import NULL_VALUE, REFUSAL_STREAM_ID, STATUS_STREAM_ID
from ....service_api.wire.frame import TYPE_DATA
from ....service_api.wire.link_frames import SetupFrame
from ....service_api.wire.stream import FrameParser
from ...log.commit_proof import CommitClaim

ANSWER_TIMEOUT_S: Final = 0.5
"""How long one member has to answer; in an election, with all paused, a look takes this for each of them."""

REMEMBERED_TERM_LIMIT: Final = 64
"""Of more terms than these, the oldest claims are forgotten: a log that needs them is late, never wrong."""

RECEIVE_LIMIT: Final = 16
"""In so many pieces an answer may come, which is one as a rule: what trickles is no member."""

_RECEIVE_BYTES: Final = 4096


class CommitAsker:
    """Asks for the commit position; remembers who led, and the furthest answer in each of the last terms.

    The older terms matter for a log that was not fitted to the newest one: what it can be trusted with is in them.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        *,
        timeout_s: float = ANSWER_TIMEOUT_S,
        network: SocketStack = SOCKETS,
        cluster_id: ClusterId = NULL_CLUSTER_ID,
        group: Group | None = None,
    ) -> None:
        """`group` is the one that has to answer; None: whichever does."""
        self._endpoints = list(endpoints)
        self._group = group
        self._network = network
        self._cluster_id = cluster_id
        self._timeout_s = timeout_s
        self._positions: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<CommitAsker endpoints={self._endpoints} positions={self._positions}>"

    def ask(self) -> list[CommitClaim]:
        """Return the furthest claim in each term, of those who answer now and before; empty if nobody ever did.

        Raises:
            DocumentVersionError: members answer, and none of them in a version that is read here.
            ConfigurationError: the user's: members answer, and none of them to this caller, or none for this group.
        """
        unread: DocumentVersionError | ConfigurationError | None = None
        is_answered = False
        for endpoint in tuple(self._endpoints):
            try:
                status = ask_member(endpoint, self._timeout_s, self._network, cluster_id=self._cluster_id)
                self._check_group(endpoint, status)
            except (DocumentVersionError, ConfigurationError) as error:
                unread = error
                continue
            if status is None:
                continue
            is_answered = True
            if status.leadership_term_id is not None:
                self._note(CommitClaim(status.leadership_term_id, status.commit_position))
            if leads(status):
                self._endpoints.remove(endpoint)
                self._endpoints.insert(0, endpoint)
                break
        if unread is not None and not is_answered:
            raise unread
        return [CommitClaim(*item) for item in self._positions.items()]

    def _check_group(self, endpoint: Endpoint, status: MemberStatus | None) -> None:
        if status is None or self._group is None or status.group == self._group.label:
            return
        answered = f"group={status.group}" if status.group else "a cluster without groups"
        raise ConfigurationError(
            f"{endpoint} answers for {answered}, expected group={self._group.to_text()}; name in commitFrom the "
            "consensus endpoints of group 0, those of the other groups follow from them"
        )

    def _note(self, claim: CommitClaim) -> None:
        term_id = claim.leadership_term_id
        self._positions[term_id] = max(claim.position, self._positions.get(term_id, 0))
        if len(self._positions) > REMEMBERED_TERM_LIMIT:
            del self._positions[min(self._positions)]


def ask_member(
    endpoint: Endpoint,
    timeout_s: float,
    network: SocketStack = SOCKETS,
    *,
    cluster_id: ClusterId = NULL_CLUSTER_ID,
) -> MemberStatus | None:
    """Ask one member how it is; None when it does not say.

    `timeout_s` is how long it may be silent, before and in the middle of its answer.

    Raises:
        DocumentVersionError: it says so in a version that is not read here.
        ConfigurationError: the user's: it does not say so to this caller, or is of another cluster.
    """
    parser = FrameParser(STATUS_LENGTH_LIMIT_BYTES)
    try:
        with network.dial_blocking(Purpose.DOCUMENTS, endpoint, timeout_s) as connection:
            meant = cluster_id or network.cluster_id
            setup = SetupFrame(session_id=NULL_VALUE, stream_id=STATUS_STREAM_ID, cluster_id=meant)
            connection.sendall(setup.encode())
            for _ in range(RECEIVE_LIMIT):
                data = connection.recv(_RECEIVE_BYTES)
                frames = parser.feed(data)
                if frames or not data:
                    break
        if frames and frames[0].stream_id == REFUSAL_STREAM_ID:
            refusal = read_document(Refusal, frames[0].payload)
            raise ConfigurationError(f"{endpoint}: {refusal.refused}; {refusal.advice}")
        if not frames or frames[0].type != TYPE_DATA or frames[0].stream_id != STATUS_STREAM_ID:
            return None
        return read_document(MemberStatus, frames[0].payload)
    except (DocumentVersionError, ConfigurationError):
        raise
    except (OSError, RemoteProtocolError, UnicodeError):
        return None

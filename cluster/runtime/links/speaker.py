"""Holds what the setup frame of a link claims against what its connection has shown: which member, of which cluster.

A member's links are dialled by that member alone. Where connections show who they are, a setup frame that claims
another member's id, or that a client sends, ends that link and nothing else; where they do not, the claim is believed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ....service_api import RemoteProtocolError
from ....service_api.access.audit import AuditTrail
from ....service_api.access.permissions import Permission
from ....service_api.cluster_id import describe_other_cluster, is_other_cluster
from ....service_api.net.connection_gate import AcceptedConnection
from ....service_api.types import MemberId
from ....service_api.wire.link_frames import SetupFrame
from ...messages.settings import MemberSettings, MembersNotice


def expect_speaker(accepted: AcceptedConnection, setup: SetupFrame) -> None:
    """Refuse the link of a member that has not shown that it is the one which its setup frame names.

    Raises:
        RemoteProtocolError: names both.
    """
    is_of_another = accepted.knows_caller and accepted.caller.member_id != setup.member_id
    if is_of_another or not accepted.may(Permission.MEMBER_LINK):
        shown = accepted.caller_detail or str(accepted.caller)
        raise RemoteProtocolError(
            f"setup frame claims member_id={setup.member_id}, and {accepted.address} shows {shown}"
        )


def expect_own_cluster(setup: SetupFrame, cluster_id: int) -> None:
    """Refuse the link of somebody who belongs to another cluster, or means another one.

    Raises:
        RemoteProtocolError: names both.
    """
    if is_other_cluster(setup.cluster_id, cluster_id):
        raise RemoteProtocolError(f"setup frame: {describe_other_cluster(setup.cluster_id, expected=cluster_id)}")


def expect_own_words(said: MemberSettings | MembersNotice, member_id: MemberId) -> None:
    """Refuse what another member says than the one at the other end of the connection.

    Raises:
        RemoteProtocolError: names both.
    """
    if said.member_id != member_id:
        raise RemoteProtocolError(f"{type(said).__name__}.member_id={said.member_id} expected={member_id}")


@contextmanager
def audited(audit: AuditTrail, accepted: AcceptedConnection, setup: SetupFrame) -> Iterator[None]:
    """Tell the audit trail of a link that is refused within, to whom, and which member it claimed to be.

    Raises:
        RemoteProtocolError: what was raised within.
    """
    try:
        yield
    except RemoteProtocolError as error:
        audit.refused(Permission.MEMBER_LINK, accepted, str(error), claimed_member_id=setup.member_id)
        raise

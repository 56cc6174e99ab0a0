"""SBE messages of the cluster schema, grouped by who exchanges them:
`consensus` member to member, `log` in the replicated log, `control` module and service, `snapshot` in
snapshots, `backup` for standbys, `nodestate` and `mark` in files.
"""

from .consensus import CONSENSUS_MESSAGES as CONSENSUS_MESSAGES
from .consensus import AppendPosition as AppendPosition
from .consensus import CanvassPosition as CanvassPosition
from .consensus import CatchupPosition as CatchupPosition
from .consensus import CommitPosition as CommitPosition
from .consensus import NewLeadershipTerm as NewLeadershipTerm
from .consensus import RequestVote as RequestVote
from .consensus import StopCatchup as StopCatchup
from .consensus import TerminationAck as TerminationAck
from .consensus import TerminationPosition as TerminationPosition
from .consensus import Vote as Vote
from .log import LOG_MESSAGES as LOG_MESSAGES
from .log import ChangeType as ChangeType
from .log import ClusterAction as ClusterAction
from .log import ClusterActionRequest as ClusterActionRequest
from .log import MembershipChangeEvent as MembershipChangeEvent
from .log import NewLeadershipTermEvent as NewLeadershipTermEvent
from .log import SessionCloseEvent as SessionCloseEvent
from .log import SessionOpenEvent as SessionOpenEvent
from .log import TimerEvent as TimerEvent

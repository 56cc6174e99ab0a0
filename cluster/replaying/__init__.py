"""A user's service and a log, without a cluster: its state at any position, and what other code would have done.

`replay` delivers a log; `member_log` reads it, `container` listens to the service, `outputs` is what it gives out,
`services` finds the user's class.
"""

from .member_log import MemberLog as MemberLog
from .outputs import Output as Output
from .outputs import OutputKind as OutputKind
from .outputs import ServiceError as ServiceError
from .replay import ReplayedService as ReplayedService
from .replay import SnapshotChoice as SnapshotChoice
from .replay import replay_service as replay_service

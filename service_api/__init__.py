"""The contracts: what an application author implements, and what every package shares.

`service`, `cluster`, `session` are the author's side; `types`, `clock`, `errors` the shared vocabulary; `wire` the
bytes. Imports nothing of the other packages.
"""

from .clock import Clock as Clock
from .cluster import Cluster as Cluster
from .cluster import SnapshotImage as SnapshotImage
from .cluster import SnapshotPublication as SnapshotPublication
from .errors import BackPressureError as BackPressureError
from .errors import ClusterError as ClusterError
from .errors import ClusterTimeoutError as ClusterTimeoutError
from .errors import ConfigurationError as ConfigurationError
from .errors import ErrorCategory as ErrorCategory
from .errors import InvariantViolation as InvariantViolation
from .errors import LocalProtocolError as LocalProtocolError
from .errors import NodeTerminatedError as NodeTerminatedError
from .errors import NotLeaderError as NotLeaderError
from .errors import ProtocolError as ProtocolError
from .errors import RemoteProtocolError as RemoteProtocolError
from .errors import ServiceDivergedError as ServiceDivergedError
from .errors import ServiceFailedError as ServiceFailedError
from .errors import SessionClosedError as SessionClosedError
from .errors import invariant as invariant
from .service import ClusteredService as ClusteredService
from .session import ClientSession as ClientSession
from .types import CloseReason as CloseReason
from .types import ClusterSessionId as ClusterSessionId
from .types import CorrelationId as CorrelationId
from .types import MemberId as MemberId
from .types import RecordingId as RecordingId
from .types import Role as Role
from .types import TermId as TermId
from .types import TimeUnit as TimeUnit

"""An asyncio-native Raft cluster framework with the model and the formats of Aeron Cluster and Aeron Archive.

`from trimaran import ClusteredService, ClusterClient` is all that a service and its client need. The packages below:
`service_api` (contracts and bytes), `archive` (recordings), `client`, `cluster` (members), `benchmarks`.
A name is loaded when it is first asked for, so that an executor of Spark loads only what it reads with.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .client import AdminRefusedError as AdminRefusedError
    from .client import ClientConfig as ClientConfig
    from .client import ClusterClient as ClusterClient
    from .client import Connected as Connected
    from .client import ConnectionEvent as ConnectionEvent
    from .client import ConnectRejectedError as ConnectRejectedError
    from .client import ConnectTimeoutError as ConnectTimeoutError
    from .client import CredentialsSupplier as CredentialsSupplier
    from .client import Disconnected as Disconnected
    from .client import EgressListener as EgressListener
    from .client import EgressMessage as EgressMessage
    from .client import EventCode as EventCode
    from .client import GroupedClient as GroupedClient
    from .client import IndeterminateError as IndeterminateError
    from .client import LeaderLost as LeaderLost
    from .client import NewLeader as NewLeader
    from .client import PasswordCredentials as PasswordCredentials
    from .client import QueryRefusedError as QueryRefusedError
    from .client import QueryResult as QueryResult
    from .client import RejectedError as RejectedError
    from .client import RequestFailedError as RequestFailedError
    from .client import RequestIndeterminateError as RequestIndeterminateError
    from .client import SessionClosed as SessionClosed
    from .client import SessionOpened as SessionOpened
    from .client import SessionPool as SessionPool
    from .client import SharedConnection as SharedConnection
    from .client import SyncClusterClient as SyncClusterClient
    from .client import SyncGroupedClient as SyncGroupedClient
    from .client import SyncSessionPool as SyncSessionPool
    from .client import SyncSharedConnection as SyncSharedConnection
    from .client import TlsSettings as TlsSettings
    from .client.outbox_worker import OutboxWorker as OutboxWorker
    from .client.typed import SyncTypedClient as SyncTypedClient
    from .client.typed import TypedClient as TypedClient
    from .client.typed import UnknownServiceError as UnknownServiceError
    from .client.typed import asks as asks
    from .client.typed import calls as calls
    from .service_api import BackPressureError as BackPressureError
    from .service_api import ClientSession as ClientSession
    from .service_api import Clock as Clock
    from .service_api import CloseReason as CloseReason
    from .service_api import Cluster as Cluster
    from .service_api import ClusteredService as ClusteredService
    from .service_api import ClusterError as ClusterError
    from .service_api import ClusterSessionId as ClusterSessionId
    from .service_api import ClusterTimeoutError as ClusterTimeoutError
    from .service_api import ConfigurationError as ConfigurationError
    from .service_api import CorrelationId as CorrelationId
    from .service_api import ErrorCategory as ErrorCategory
    from .service_api import InvariantViolation as InvariantViolation
    from .service_api import LocalProtocolError as LocalProtocolError
    from .service_api import MemberId as MemberId
    from .service_api import NodeTerminatedError as NodeTerminatedError
    from .service_api import NotLeaderError as NotLeaderError
    from .service_api import ProtocolError as ProtocolError
    from .service_api import RecordingId as RecordingId
    from .service_api import RemoteProtocolError as RemoteProtocolError
    from .service_api import Role as Role
    from .service_api import ServiceDivergedError as ServiceDivergedError
    from .service_api import ServiceFailedError as ServiceFailedError
    from .service_api import SessionClosedError as SessionClosedError
    from .service_api import SnapshotImage as SnapshotImage
    from .service_api import SnapshotPublication as SnapshotPublication
    from .service_api import TermId as TermId
    from .service_api import TimeUnit as TimeUnit
    from .service_api import invariant as invariant
    from .service_api.groups import CrossGroupError as CrossGroupError
    from .service_api.groups import Group as Group
    from .service_api.outbox import EffectKey as EffectKey
    from .service_api.outbox import Outbox as Outbox
    from .service_api.outbox import PendingEffect as PendingEffect
    from .service_api.typed import Command as Command
    from .service_api.typed import Context as Context
    from .service_api.typed import Effect as Effect
    from .service_api.typed import Event as Event
    from .service_api.typed import Query as Query
    from .service_api.typed import Reply as Reply
    from .service_api.typed import ServiceError as ServiceError
    from .service_api.typed import TimerMessage as TimerMessage
    from .service_api.typed import TypedService as TypedService
    from .service_api.typed import answers as answers
    from .service_api.typed import derived as derived
    from .service_api.typed import handles as handles
    from .service_api.typed import on_timer as on_timer
    from .service_api.typed import outbox as outbox
    from .service_api.typed import state as state
    from .service_api.typed import upcasts as upcasts
else:
    from .service_api.lazy_exports import lazy_exports

    __getattr__, __dir__ = lazy_exports(__name__)

"""The client of a Trimaran cluster: for asyncio, and for scripts and notebooks.

cluster_client   ClusterClient, what applications use      egress       listener, messages, queue
sync_clients     SyncClusterClient, on a loop_thread       streams      iterators: egress, connection_events
conductor        asyncio shell: dials, timer, writes       config       settings; errors: raised by a client only
connection       sockets to members                        asking       coroutines of queries and admin requests
protocol         the session's state machine, without I/O
shared           SharedConnection, many sessions over one connection; SessionPool lends them
groups           GroupedClient, which goes to the group that owns a key
blocking         how blocking clients are made of the asyncio ones
outbox_worker    does what services want done outside
reopening        another session where one has ended       deadlines    the limit of a call
"""

from ..service_api.access.credentials import CredentialsSupplier as CredentialsSupplier
from ..service_api.access.credentials import PasswordCredentials as PasswordCredentials
from ..service_api.tls import TlsSettings as TlsSettings
from ..service_api.wire.session import EventCode as EventCode
from .cluster_client import ClusterClient as ClusterClient
from .config import ClientConfig as ClientConfig
from .connection_events import Connected as Connected
from .connection_events import ConnectionEvent as ConnectionEvent
from .connection_events import Disconnected as Disconnected
from .connection_events import LeaderLost as LeaderLost
from .connection_events import NewLeader as NewLeader
from .connection_events import SessionClosed as SessionClosed
from .connection_events import SessionOpened as SessionOpened
from .egress import EgressListener as EgressListener
from .egress import EgressMessage as EgressMessage
from .errors import AdminRefusedError as AdminRefusedError
from .errors import ConnectRejectedError as ConnectRejectedError
from .errors import ConnectTimeoutError as ConnectTimeoutError
from .errors import IndeterminateError as IndeterminateError
from .errors import QueryRefusedError as QueryRefusedError
from .errors import RejectedError as RejectedError
from .errors import RequestFailedError as RequestFailedError
from .errors import RequestIndeterminateError as RequestIndeterminateError
from .groups import GroupedClient as GroupedClient
from .protocol.queries import QueryResult as QueryResult
from .shared import SessionPool as SessionPool
from .shared import SharedConnection as SharedConnection
from .sync_clients import SyncClusterClient as SyncClusterClient
from .sync_clients import SyncGroupedClient as SyncGroupedClient
from .sync_clients import SyncSessionPool as SyncSessionPool
from .sync_clients import SyncSharedConnection as SyncSharedConnection

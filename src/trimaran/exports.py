"""Which package has each public name of `trimaran`; a test holds it against what type checkers see."""

from __future__ import annotations

from typing import Final

from .service_api.lazy_exports import lazy_exports

HOMES: Final = {
    "AdminRefusedError": "client",
    "BackPressureError": "service_api",
    "ClientConfig": "client",
    "ClientSession": "service_api",
    "Clock": "service_api",
    "CloseReason": "service_api",
    "Cluster": "service_api",
    "ClusterClient": "client",
    "ClusterError": "service_api",
    "ClusterSessionId": "service_api",
    "ClusterTimeoutError": "service_api",
    "ClusteredService": "service_api",
    "ConfigurationError": "service_api",
    "ConnectRejectedError": "client",
    "ConnectTimeoutError": "client",
    "Connected": "client",
    "ConnectionEvent": "client",
    "CorrelationId": "service_api",
    "CredentialsSupplier": "client",
    "Disconnected": "client",
    "EgressListener": "client",
    "EgressMessage": "client",
    "ErrorCategory": "service_api",
    "EventCode": "client",
    "IndeterminateError": "client",
    "InvariantViolation": "service_api",
    "LeaderLost": "client",
    "LocalProtocolError": "service_api",
    "MemberId": "service_api",
    "NewLeader": "client",
    "NodeTerminatedError": "service_api",
    "NotLeaderError": "service_api",
    "PasswordCredentials": "client",
    "ProtocolError": "service_api",
    "QueryRefusedError": "client",
    "QueryResult": "client",
    "RecordingId": "service_api",
    "RejectedError": "client",
    "RemoteProtocolError": "service_api",
    "RequestFailedError": "client",
    "RequestIndeterminateError": "client",
    "Role": "service_api",
    "SessionClosed": "client",
    "ServiceFailedError": "service_api",
    "SessionClosedError": "service_api",
    "SessionOpened": "client",
    "SnapshotImage": "service_api",
    "SnapshotPublication": "service_api",
    "SyncClusterClient": "client",
    "TermId": "service_api",
    "TimeUnit": "service_api",
    "invariant": "service_api",
}

__getattr__, __dir__ = lazy_exports("trimaran", HOMES)

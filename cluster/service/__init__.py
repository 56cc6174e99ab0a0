"""The service container: delivers committed entries to a `ClusteredService`, and is the `Cluster` it sees.

`bounded_log_adapter` is the one way from the log to the service; `agent` calls it; `client_session` packs egress.
"""

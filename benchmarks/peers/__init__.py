"""What a user would pick instead: one adapter for each, started, loaded and stopped by the harness.

Every peer does the same work: three members on loopback, messages of some bytes that are replicated before they are
acknowledged, N in flight in a closed loop. `peer` says what an adapter is; `pipeline` is the client of those whose
protocol can be pipelined by a few lines of Python, `store_client` that of our key-value store.
`many_sessions` has every system under many sessions, and `connections` the client of those that have none in C.
"""

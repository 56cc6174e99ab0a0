"""The asyncio shell around the core: turns, sockets, files.

`agent` takes the turns and performs effects; `log_control` does what concerns the log; `ingress`, `member_links`,
`log_links` are the connections; `*_file` the small durable files.
"""

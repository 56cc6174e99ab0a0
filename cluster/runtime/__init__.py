"""The asyncio shell around the core.

`turns` gives the core its events and performs its effects; `links` are the connections, `files` the small durable
files; `snapshots` takes, ships and loads states; `repair` mends a directory and brings a member back; `answering` has
what operators ask for; `watching` what the process sees of itself; `ground` is the machine below all of them, and
`shared_machine` tunes members that share one. Each room's `wiring` makes it of the rooms below.
"""

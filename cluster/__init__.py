"""The consensus module, its asyncio runtime and the service container.

`core` decides and never waits, `runtime` does what takes time, `service` runs the user's code; `messages` is
the wire. `node` puts one member together from a `config`; `cli` is the command `trimaran`.
"""

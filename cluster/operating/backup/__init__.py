"""Backups of a cluster in another directory: `agent` copies, `directory` is what it writes, `choosing` finds a source,
`states` is what it is doing, `status` what it tells of that, `verification` and `restoring` are for what it has
written.
"""

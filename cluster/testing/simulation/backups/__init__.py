"""Backups of a simulated cluster: `actor` runs the real agent and follower on a machine.

`restored` starts a cluster of a copy, `scrubs` checks copies. The object store is in `world`, their rules in `rules`.
"""

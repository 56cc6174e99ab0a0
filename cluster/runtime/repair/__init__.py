"""Mending a member's files from another member: `upkeep` while it runs, `at_start` before, `mender` one place.

What may be taken from whom, `core.log.log_repair` decides; what is written where, `archive.store.mending`.
"""

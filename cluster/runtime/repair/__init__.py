"""Mending a member's files from another member: `fetching` asks and copies, `repairer` mends what was found.

What may be taken from whom, `core.log.log_repair` decides; what is written where, `archive.store.mending`.
"""

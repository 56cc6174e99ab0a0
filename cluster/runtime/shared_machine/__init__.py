"""Tuning of members that share one machine: `tuning` is the only module that others use.

Its parts: `spare_sync` (the disk), `processor_share`, `processor_pressure` and `idle_strategy` (the processors),
`time_share` (the loop of a member whose log is copied).
"""

"""Recordings for programs: Arrow batches, search, verify, follow, compare, export."""

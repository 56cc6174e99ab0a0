"""A member's files, snapshots and recovery."""

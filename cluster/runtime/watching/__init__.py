"""Watching a member: metrics, stalls, errors."""

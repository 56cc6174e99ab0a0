"""Logs made in seconds, without a cluster that runs for hours."""

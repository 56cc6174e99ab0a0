"""Strict mode: calls that leave the log, and the guard that finds them while a service runs."""

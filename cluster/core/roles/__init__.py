"""Roles within a term: leader, follower, hand-over, termination."""

"""Snapshots of a member as recordings: taken, recovered from, shipped, retained."""

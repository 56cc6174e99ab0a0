"""Snapshots of the consensus module, and those that another member ships."""

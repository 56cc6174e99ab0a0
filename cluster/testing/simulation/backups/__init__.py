"""Backups of a simulated cluster, and the object store that they are copied to: `object_store` holds it and fails,
`actor` runs the real agent and follower on a machine, `rules` judges what they have, `restored` starts a cluster of it.
"""

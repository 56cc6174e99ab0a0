"""Clients of a cluster with groups: they go to the group that owns a key.

grouped_client   GroupedClient
group_table      how many groups there are, and the configuration for one of them
"""

from .grouped_client import GroupedClient as GroupedClient

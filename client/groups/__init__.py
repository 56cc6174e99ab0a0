"""Clients of a cluster with groups: they go to the group that owns a key.

grouped_client   GroupedClient, for asyncio      sync_grouped_client   SyncGroupedClient, for scripts and notebooks
group_table      what both know: how many groups there are, and the configuration for one of them
"""

from .grouped_client import GroupedClient as GroupedClient
from .sync_grouped_client import SyncGroupedClient as SyncGroupedClient

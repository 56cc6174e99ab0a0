"""The objects of a cluster in an object store: one layout for backups and cold storage, so that its log is there once.

`index` is the layout and its documents, `cluster_store` reads and writes the objects of one cluster, `pruning` removes
what nothing needs any more, `backup_files` shows a backup as the directory that it was.
"""

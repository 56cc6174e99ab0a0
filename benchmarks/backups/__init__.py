"""Backups: `following` measures what a loss would cost while a backup follows a busy cluster, `restoring` how long it
takes to be back, `stores` finds the object store.
"""

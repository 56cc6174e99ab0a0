"""`trimaran log tail|dump`: the entries of a cluster's log, from a member's directory or from a running cluster.

`command` is the command line, `entry` what is shown of an entry, `directory` finds and reads a log on a disk, `remote`
asks a member's archive for it.
"""

from .command import app as app

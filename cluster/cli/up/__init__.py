"""`trimaran up`: a cluster for development on this machine, in one command.

`command` is the command line, `place` the directory and what it remembers, `supervisor` keeps the processes running,
`view` shows how the cluster is.
"""

from .command import up as up

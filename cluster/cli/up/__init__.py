"""`trimaran up`: a cluster for development on this machine, in one command.

`up` is the command, `place` the directory and what it remembers, `supervisor` keeps the processes running, `up_view`
shows the cluster.
"""

from .up import up as up

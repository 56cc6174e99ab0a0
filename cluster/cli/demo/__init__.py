"""`trimaran demo`: three nodes, real requests, the leader killed half-way, every reply checked.

`command` puts it together; `requests` reads the input, `stream` sends and receives, `recordings` compares what the
members recorded, `report` checks and shows the outcome. The processes are those of `trimaran.cluster.cli.local`.
"""

from .command import demo as demo

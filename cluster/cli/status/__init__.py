"""`trimaran status`: how every member of a cluster is, also when some are down.

`command` asks and ends the process, `report` makes one picture of the members' answers, `view` draws it.
"""

from .command import status as status

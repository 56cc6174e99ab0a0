"""`trimaran members|sessions|timers`: look into a cluster that runs.

`command` is the command line, `asking` chooses the member whose answer is shown, `view` draws it.
"""

from .command import members as members
from .command import sessions as sessions
from .command import timers as timers

"""`trimaran health`: whether a cluster is well, as an exit status and a list of what is not.

`command` asks and ends the process, `diagnosis` judges the members' answers.
"""

from .command import health as health

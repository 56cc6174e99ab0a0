"""`trimaran recover`: make a cluster of what is left. `command` has the commands, `report` what they print."""

from .command import app as app

"""`trimaran recover`: `command` has the commands, `report` what they print."""

"""`trimaran sim`: run seeds of the simulator, show what they met, and make a failure small enough to look at.

`flags` are its flags, `command` does what they say, `seed_job` is what a worker process does with a seed, `workers` are
the processes, `view` is what is shown meanwhile, `report` what is printed in the end.
"""

from .command import sim as sim

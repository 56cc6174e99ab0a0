"""`trimaran sim`: run seeds of the simulator, show the results, and shrink a failure.

`sim` is the command and `flags` its flags; `seed_job` is what a worker process does with a seed, `workers` are the
processes, `sim_view` shows the progress, `campaign_report` is printed at the end.
"""

from .sim import sim as sim

"""A deterministic simulator: the real node and client code on virtual time, with a network and disks that fail.

time and processes: scheduler, loop, machine, network · cluster: members on machines · faults: what goes wrong
referee: what must hold · workload, history, linearizability: what clients do, saw, and may have seen
run: one seed · campaign, shrink: many seeds, and what is left of a failure
"""

from .run import Failure as Failure
from .run import Options as Options
from .run import RunOutcome as RunOutcome
from .run import run_seed as run_seed

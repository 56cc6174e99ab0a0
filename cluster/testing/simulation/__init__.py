"""A deterministic simulator: the real node and client code on virtual time, with a network and disks that fail.

time and processes: scheduler, loop, machine, network · cluster: members on machines · faults: what goes wrong
referee: what must hold · workload, history, linearizability: what clients do, saw, and may have seen
run: one seed · campaign, shrink: many seeds, and what is left of a failure
"""

from trimaran.cluster.testing.simulation.run import Failure as Failure
from trimaran.cluster.testing.simulation.run import Options as Options
from trimaran.cluster.testing.simulation.run import RunOutcome as RunOutcome
from trimaran.cluster.testing.simulation.run import run_seed as run_seed

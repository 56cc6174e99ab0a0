"""A deterministic simulator: the real node and client code on virtual time, with a network and disks that fail.

`world` has time and processes: scheduler, loop, machine, network. `cluster` puts members on machines; `faults` strike
them; `rules` holds what every run must keep. `clients` has the generator of what clients do, their history, and
the check that it is linearizable. `run` runs one seed; `campaign` many, and `shrink` makes a failure smaller.
"""

from .run import Failure as Failure
from .run import Options as Options
from .run import RunOutcome as RunOutcome
from .run import run_seed as run_seed

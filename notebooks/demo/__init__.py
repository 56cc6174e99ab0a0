"""Real data for the notebooks, made by real processes on this machine.

`recorded_morning` has three members record a morning of web traffic, once; `recorded_groups` does so with a member of
two groups; `LiveCluster` runs a cluster under load while a notebook looks on; `BackedUpShop` is one with a backup, for
a morning on which something goes wrong; `aeron_member` unpacks what a real Aeron Cluster left; `silently_changed_copy`
makes a member that went astray. `figures` draws what is of web requests and of the shop only.

A notebook's kernel runs in the directory `notebooks` and imports this package as `demo`. The services of `examples` are
in the checkout above that directory, so the checkout goes on the import path, and on that of the
processes that a notebook starts.
"""

import os
import sys

from .checkout import CHECKOUT

if str(CHECKOUT) not in sys.path:
    sys.path.append(str(CHECKOUT))
    paths = (str(CHECKOUT), os.environ.get("PYTHONPATH"))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))  # for Spark's workers

from .aeron import aeron_member as aeron_member
from .damage import silently_changed_copy as silently_changed_copy
from .groups import recorded_groups as recorded_groups
from .live import LiveCluster as LiveCluster
from .morning import RecordedMorning as RecordedMorning
from .morning import recorded_morning as recorded_morning
from .shop import BackedUpShop as BackedUpShop

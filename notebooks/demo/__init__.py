"""Real data for the notebooks, made by real processes on this machine.

`recorded_morning` has three members record a morning of web traffic, once; `LiveCluster` runs a cluster under load
while a notebook looks on; `aeron_member` unpacks what a real Aeron Cluster left; `silently_changed_copy` makes a member
that went astray. `figures` draws what is of web requests only.
"""

from .aeron import aeron_member as aeron_member
from .damage import silently_changed_copy as silently_changed_copy
from .live import LiveCluster as LiveCluster
from .morning import RecordedMorning as RecordedMorning
from .morning import recorded_morning as recorded_morning

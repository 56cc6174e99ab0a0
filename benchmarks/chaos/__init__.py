"""Real faults as a campaign: real processes under checked load, faults by seed, and what must still hold after them.

campaign: rounds, each a fresh cluster · modes, schedule: which faults a seed draws · cluster, inflicting: members, and
what is done to them · roster, rotating, backing_up: operators · shim, power_loss: disks and clocks that fail · load,
hostile: clients
service, models: what is replicated, and what it must answer · probe, journal: what each member ran · checks, timeline
"""

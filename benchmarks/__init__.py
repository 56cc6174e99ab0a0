"""Benchmarks of Trimaran: `python -m trimaran.benchmarks echo --help`. Not part of the wheel.

app               the command line; `page` makes a page for a browser and docs/performance.md of what it writes
scenarios         what is measured, one module each; `peers` are the other systems that `compare` measures
tails             how steady latencies are, and what holds up the slow ones
guard, profiling  instruction counts of the hot paths; profilers, and the stage that each function belongs to
load, logs        clients' traffic; logs made in seconds
chaos             real faults as a campaign, under checked load
rig               clusters of real processes, also for the system tests; `services` run in them
machine           the machine under a measurement; `statistics` turns counts into figures
"""

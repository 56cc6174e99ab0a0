"""Benchmarks of Trimaran: `python -m trimaran.benchmarks echo --help`. Not part of the wheel.

app               the command line: a table of commands; `options` makes each of the dataclass of its parameters
scenarios         what is measured, one module each; `peers` are the other systems that `compare` measures
tails, backups    steady latencies, and what holds up the slow ones; recovery point and recovery time
page              docs/performance.md of the stored results: `sections` writes it, `plots` draws
guard, profiling  instruction counts of the hot paths; profilers, and the stage that each function belongs to
load, logs        clients' traffic; logs made in seconds
chaos             real faults as a campaign, under checked load
rig               clusters of real processes, also for the system tests; `services` run in them
machine           the machine under a measurement; `statistics` turns counts into figures
"""

"""Benchmarks of Trimaran: `python -m trimaran.benchmarks echo --help`. Not part of the wheel.

scenarios        what is measured: echo and failover (whole clusters), client (the client's own cost), archive (reading)
load             closed and open loop traffic of one session; failover_load goes on across leaders
client_process   the process that makes it; coordination is the harness's side of such processes
processes        members as processes, also for the system tests; member_log and log_end read what they leave
proxies          TCP proxies that cut a member off without closing anything, also for the system tests
histogram, environment, report, data_directory: what the figures say, and where they come from
"""

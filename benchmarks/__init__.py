"""Benchmarks of Quorate: `python -m benchmarks echo --help`. Not part of the wheel.

scenarios    what is measured: echo (a whole cluster), client (the client's own cost) load         closed
and open loop traffic of one session      client_process  the process that makes it processes    members
as processes, also for the demo          coordination    the harness's side of the clients histogram,
environment, report                                what the figures say, and where they come from
"""

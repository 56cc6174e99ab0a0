"""What is measured, one module each: parameters in, a report (a dictionary for JSON) out.

echo      a cluster of real processes that answers every message: throughput, latency, CPU time
client    what an offer and a received message cost the client, without a cluster
"""

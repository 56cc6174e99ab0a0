"""What is measured, one module each: parameters in, a report (a dictionary for JSON) out.

echo      a cluster of real processes that answers every message: throughput, latency, CPU time
failover  the leader is killed, stopped or cut off: time until the next one has committed a message
client    what an offer and a received message cost the client, without a cluster
"""

"""A cluster of real processes on loopback: members, proxies between them, and what they use, log and report."""

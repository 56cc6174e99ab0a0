"""Faults of a simulated cluster: disks, network, services, operators."""

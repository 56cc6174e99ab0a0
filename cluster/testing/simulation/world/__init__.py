"""The simulated machines: virtual time, loop, network, disk."""

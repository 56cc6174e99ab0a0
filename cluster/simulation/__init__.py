"""A deterministic simulator: the real node and client code on virtual time, with a network and disks that fail."""

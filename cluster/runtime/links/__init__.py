"""Sockets of a member: ingress, consensus links, log links."""

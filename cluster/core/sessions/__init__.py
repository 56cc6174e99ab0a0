"""Cluster sessions, from the pending one to the closed one."""

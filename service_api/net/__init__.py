"""Connections: one transport seam, one gate, sockets."""

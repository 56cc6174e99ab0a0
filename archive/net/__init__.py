"""The archive over TCP: its protocol, and the client of it."""

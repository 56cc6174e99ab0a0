"""The archive's end of a connection."""

"""The session's state machine without I/O: bytes in, effects out."""
